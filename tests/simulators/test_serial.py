from collections.abc import Iterator

import numpy as np
import pytest

from placement import simulators
from placement.costs import tables
from placement.graphs import coarsen, opgraph
from placement.types import CostModel, OpGraph, Problem
from tests import helpers

# (N, E, tensors, D): each compiles once and serves many random graphs.
SIZES = [
    (2, 1, 1, 2),
    (2, 5, 2, 3),
    (3, 4, 2, 2),
    (4, 3, 3, 1),
    (5, 8, 4, 2),
    (6, 2, 1, 4),
    (8, 12, 6, 3),
    (8, 20, 14, 2),
    (12, 30, 10, 4),
    (16, 24, 24, 2),
    (20, 60, 25, 3),
    (30, 45, 20, 5),
]
DRAWS, BATCH = 100, 8


def _reference(graph: OpGraph, costs: CostModel, placement: np.ndarray) -> float:
    """The objective as the module's docstring words it, with dictionaries and loops."""
    device = {op: int(placement[op]) for op in range(graph.num_ops)}
    total = 0.0
    for op in device:
        total += float(costs.compute_s[op, device[op]])
    read_by: dict[int, set[int]] = {}
    sender_of, bytes_of = {}, {}
    for edge in range(graph.num_edges):
        sender, receiver = int(graph.senders[edge]), int(graph.receivers[edge])
        tensor = int(graph.tensors[edge])
        sender_of[tensor], bytes_of[tensor] = sender, int(graph.edge_bytes[edge])
        read_by.setdefault(tensor, set()).add(device[receiver])
        if device[sender] != device[receiver]:
            total += float(costs.cut_s[edge])
    for tensor, readers in read_by.items():
        source = device[sender_of[tensor]]
        for reader in readers - {source}:
            total += float(costs.transfer_latency_s[source, reader])
            total += bytes_of[tensor] * float(costs.transfer_s_per_byte[source, reader])
    return total


def _evaluate(graph: OpGraph, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    num_devices = costs.compute_s.shape[1]
    problem = Problem(graph, costs, "serial", tuple(f"device{i}" for i in range(num_devices)))
    return np.asarray(simulators.evaluator(problem)(placements))


def _problems(
    size: tuple[int, int, int, int], draws: int
) -> Iterator[tuple[OpGraph, CostModel, np.ndarray]]:
    num_ops, num_edges, num_tensors, num_devices = size
    rng = np.random.default_rng(list(size))
    for _ in range(draws):
        graph = helpers.random_dag_of_size(rng, num_ops, num_edges, num_tensors)
        costs = helpers.random_costs(rng, graph, num_devices, unsupported=rng.choice([0, 0, 0.02]))
        yield graph, costs, rng.integers(0, num_devices, (BATCH, num_ops)).astype(np.int32)


def _unit_costs(graph: OpGraph, num_devices: int = 2, **changes: np.ndarray) -> CostModel:
    """Computing takes 1 on device 0, 2 on device 1 and so on; crossings take 100 + bytes."""
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    costs = CostModel(
        compute_s=np.tile(np.arange(1, num_devices + 1, dtype=np.float32), (graph.num_ops, 1)),
        transfer_latency_s=100 * apart,
        transfer_s_per_byte=apart,
        cut_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=np.zeros(graph.num_ops, np.float32),
        capacity_bytes=np.full(num_devices, np.inf, np.float32),
    )
    return costs._replace(**changes)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_reference_on_random_problems(size):
    for graph, costs, placements in _problems(size, DRAWS):
        expected = [_reference(graph, costs, placement) for placement in placements]
        np.testing.assert_array_equal(_evaluate(graph, costs, placements), expected)


def test_random_problems_cover_what_the_objective_must_get_right():
    seen = set()
    for size in SIZES:
        for graph, costs, placements in _problems(size, DRAWS):
            ends = list(zip(graph.senders, graph.receivers, strict=True))
            reads = [
                (t, p[r]) for p in placements for t, (_, r) in zip(graph.tensors, ends, strict=True)
            ]
            tensors_of = {s: set(graph.tensors[graph.senders == s]) for s, _ in ends}
            seen |= {"parallel edges"} if len(set(ends)) < len(ends) else set()
            seen |= {"read twice"} if len(set(reads)) < len(reads) else set()
            seen |= {"two outputs"} if max(map(len, tensors_of.values())) > 1 else set()
            seen |= {"isolated"} if len({op for e in ends for op in e}) < graph.num_ops else set()
            seen |= {"join"} if max(np.bincount(graph.receivers)) > 1 else set()
            seen |= {"inf"} if np.isinf(costs.compute_s).any() else set()
    assert seen == {"parallel edges", "read twice", "two outputs", "isolated", "join", "inf"}


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 4),
        ([1, 1, 1, 1], 8),
        ([0, 1, 0, 0], 5 + 110 + 130),  # op0's tensor goes over, op1's comes back
        ([0, 1, 1, 0], 6 + 110 + 130 + 140),  # both branches read one copy of op0's tensor
        ([0, 0, 0, 1], 5 + 130 + 140),
        ([1, 0, 0, 0], 5 + 110),
        ([0, 1, 2, 0], 7 + 110 + 110 + 130 + 140),  # two devices read it: two crossings
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    value = _evaluate(graph, _unit_costs(graph, num_devices=3), np.array([placement]))
    assert value.tolist() == [seconds]


def test_a_cut_costs_once_an_edge_even_where_the_tensor_crosses_once():
    graph = helpers.diamond()
    costs = _unit_costs(graph, cut_s=np.array([1000, 2000, 4000, 8000], np.float32))
    value = _evaluate(graph, costs, np.array([[0, 1, 1, 1]]))
    assert value.tolist() == [7 + 110 + 1000 + 2000]


def test_transfers_may_cost_differently_each_way():
    graph = helpers.chain(2)
    latency_s = np.array([[0, 5], [7, 0]], np.float32)
    s_per_byte = np.array([[0, 2], [3, 0]], np.float32)
    costs = _unit_costs(graph, transfer_latency_s=latency_s, transfer_s_per_byte=s_per_byte)
    value = _evaluate(graph, costs, np.array([[0, 1], [1, 0]]))
    assert value.tolist() == [3 + 5 + 20, 3 + 7 + 30]


def test_two_outputs_of_one_sender_cross_apart():
    def graph(tensors):
        return opgraph.make(
            name="two",
            op_names=["a", "b"],
            op_types=["Split", "Add"],
            senders=[0, 0],
            receivers=[1, 1],
            edge_bytes=[10, 10],
            tensors=tensors,
        )

    apart = np.array([[0, 1]])
    assert _evaluate(graph([0, 1]), _unit_costs(graph([0, 1])), apart) == 3 + 110 + 110
    assert _evaluate(graph([0, 0]), _unit_costs(graph([0, 0])), apart) == 3 + 110


def test_an_unsupported_operation_makes_only_its_placements_infinite():
    graph = helpers.chain(2)
    costs = _unit_costs(graph, compute_s=np.array([[1, 2], [1, np.inf]], np.float32))
    value = _evaluate(graph, costs, helpers.all_placements(2, 2))
    assert value.tolist() == [2, np.inf, 3 + 110, np.inf]


def test_a_graph_without_edges_costs_its_computation():
    graph = helpers.chain(1)
    assert _evaluate(graph, _unit_costs(graph), np.array([[0], [1]])).tolist() == [1, 2]


def test_a_coarse_placement_costs_what_its_lifted_one_does():
    rng = np.random.default_rng(0)
    merged = 0
    for _ in range(15):
        graph = helpers.random_dag(rng, 14, edge_probability=0.12, colocated=0.2)
        costs = helpers.random_costs(rng, graph, 3, unsupported=0.02)
        coarse = coarsen.coarsen(graph)
        coarse_costs = tables.coarse_costs(costs, coarse.assignment, coarse.edges)
        merged += graph.num_ops - coarse.graph.num_ops
        placements = rng.integers(0, 3, (BATCH, coarse.graph.num_ops))
        lifted = coarsen.lift(coarse.assignment, placements)
        expected = [_reference(graph, costs, placement) for placement in lifted]
        np.testing.assert_array_equal(_evaluate(coarse.graph, coarse_costs, placements), expected)
    assert merged > 30


def test_problems_of_equal_sizes_share_one_compilation():
    size = (7, 11, 5, 2)  # occurs in no other test
    with helpers.count_compilations() as compiled:
        for problem in _problems(size, draws=1):
            _evaluate(*problem)
    assert len(compiled) > 0
    with helpers.count_compilations() as compiled:
        for problem in _problems(size, draws=5):
            _evaluate(*problem)
    assert compiled == []


def test_an_unknown_objective_is_one_line_that_names_the_valid_ones():
    with pytest.raises(ValueError, match="unknown objective 'latency'; valid objectives: serial"):
        simulators.objective("latency")
