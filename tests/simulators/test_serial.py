import numpy as np
import pytest

from placement.costs import tables
from placement.graphs import coarsen, opgraph
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference


def _evaluate(graph: OpGraph, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    return np.asarray(helpers.as_problem(graph, costs, "serial").evaluate(placements))


@pytest.mark.slow
@pytest.mark.parametrize("size", reference.SIZES, ids=str)
def test_equals_the_reference_on_random_problems(size):
    for problem, placements in reference.random_problems("serial", size):
        expected = reference.latencies(problem, placements)
        np.testing.assert_array_equal(problem.evaluate(placements), expected)


def test_random_problems_cover_what_the_objective_must_get_right():
    seen = set()
    for size in reference.SIZES:
        for (graph, costs, *_), placements in reference.random_problems("serial", size):
            ends = list(zip(graph.senders, graph.receivers, strict=True))
            reads = [
                (t, p[r]) for p in placements for t, (_, r) in zip(graph.tensors, ends, strict=True)
            ]
            tensors_of = {s: set(graph.tensors[graph.senders == s]) for s, _ in ends}
            _, readers = np.unique(graph.tensors, return_counts=True)
            seen |= {"parallel edges"} if len(set(ends)) < len(ends) else set()
            seen |= {"read twice"} if len(set(reads)) < len(reads) else set()
            seen |= {"two outputs"} if max(map(len, tensors_of.values())) > 1 else set()
            seen |= {"isolated"} if len({op for e in ends for op in e}) < graph.num_ops else set()
            seen |= {"join"} if max(np.bincount(graph.receivers)) > 1 else set()
            seen |= {"many inputs"} if max(np.bincount(graph.receivers)) > 4 else set()
            seen |= {"many readers"} if max(readers) > 4 else set()
            seen |= {"unordered"} if (graph.senders > graph.receivers).any() else set()
            seen |= {"unsupported"} if np.isinf(costs.compute_s).any() else set()
            seen |= {"unlinked"} if np.isinf(costs.transfer_latency_s).any() else set()
            seen |= {"crossing"} if costs.transfer_fixed_s.any() else set()
            seen |= {"cut"} if costs.fusion_loss_s.any() else set()
            seen |= {f"{costs.compute_s.shape[1]} devices"}
    assert seen == {
        *("parallel edges", "read twice", "two outputs", "isolated", "join", "many inputs"),
        *("many readers", "unordered", "unsupported", "unlinked", "crossing", "cut"),
        *("1 devices", "2 devices", "3 devices", "4 devices", "5 devices"),
    }


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 4),
        ([1, 1, 1, 1], 8),
        ([0, 1, 0, 0], 5 + 110 + 130),  # op0's tensor goes over, op1's comes back
        ([0, 1, 1, 0], 6 + 110 + 130 + 140),  # both branches read one copy of op0's tensor
        ([0, 0, 0, 1], 5 + 130 + 140),
        ([1, 0, 0, 0], 5 + 110),
        ([0, 1, 2, 0], 7 + 110 + 110 + 130 + 140),  # two devices read it: two transfers
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    value = _evaluate(graph, unit_costs(graph, num_devices=3), np.array([placement]))
    assert value.tolist() == [seconds]


def test_a_cut_costs_once_an_edge_even_where_the_tensor_crosses_once():
    graph = helpers.diamond()
    costs = unit_costs(graph, fusion_loss_s=np.array([1000, 2000, 4000, 8000], np.float32))
    value = _evaluate(graph, costs, np.array([[0, 1, 1, 1]]))
    assert value.tolist() == [7 + 110 + 1000 + 2000]


def test_a_tensors_own_crossing_cost_counts_once_a_device_that_reads_it():
    graph = helpers.diamond()
    costs = unit_costs(graph, 3, transfer_fixed_s=np.array([1000, 1000, 2000, 4000], np.float32))
    value = _evaluate(graph, costs, np.array([[0, 1, 1, 1], [0, 1, 2, 1], [2, 2, 2, 2]]))
    assert value.tolist() == [7 + 1110, 8 + 1110 + 1110 + 4140, 12]


def test_an_infinite_link_matters_only_to_who_uses_it():
    graph = helpers.chain(3)
    latency_s = np.array([[0, np.inf], [100, 0]], np.float32)
    value = _evaluate(
        graph,
        unit_costs(graph, transfer_latency_s=latency_s),
        np.array([[0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]]),
    )
    assert value.tolist() == [3, 5 + 120, np.inf, np.inf]


def test_transfers_may_cost_differently_each_way():
    graph = helpers.chain(2)
    latency_s = np.array([[0, 5], [7, 0]], np.float32)
    s_per_byte = np.array([[0, 2], [3, 0]], np.float32)
    costs = unit_costs(graph, transfer_latency_s=latency_s, transfer_s_per_byte=s_per_byte)
    value = _evaluate(graph, costs, np.array([[0, 1], [1, 0]]))
    assert value.tolist() == [3 + 5 + 20, 3 + 7 + 30]


def test_two_outputs_of_one_sender_cross_apart():
    def graph(tensors):
        return opgraph.make_graph(
            name="two",
            op_names=["a", "b"],
            op_types=["Split", "Add"],
            senders=[0, 0],
            receivers=[1, 1],
            edge_bytes=[10, 10],
            tensors=tensors,
        )

    apart = np.array([[0, 1]])
    assert _evaluate(graph([0, 1]), unit_costs(graph([0, 1])), apart) == 3 + 110 + 110
    assert _evaluate(graph([0, 0]), unit_costs(graph([0, 0])), apart) == 3 + 110


def test_an_unsupported_operation_makes_only_its_placements_infinite():
    graph = helpers.chain(2)
    costs = unit_costs(graph, compute_s=np.array([[1, 2], [1, np.inf]], np.float32))
    value = _evaluate(graph, costs, helpers.all_placements(2, 2))
    assert value.tolist() == [2, np.inf, 3 + 110, np.inf]


def test_a_graph_without_edges_costs_its_computation():
    graph = helpers.chain(1)
    assert _evaluate(graph, unit_costs(graph), np.array([[0], [1]])).tolist() == [1, 2]


def test_a_coarse_placement_costs_what_its_lifted_one_does():
    rng = np.random.default_rng(0)
    merged = 0
    for _ in range(6):
        graph = helpers.random_dag(rng, 20, edge_probability=0.08, colocated=0.2)
        costs = helpers.random_costs(rng, graph, 3, unsupported=0.02)
        coarse = coarsen.coarsen(graph)
        coarse_costs = tables.coarse_costs(costs, coarse.assignment, coarse.edges)
        merged += graph.num_ops - coarse.graph.num_ops
        placements = rng.integers(0, 3, (8, coarse.graph.num_ops))
        lifted = coarsen.lift(coarse.assignment, placements)
        expected = reference.latencies(helpers.as_problem(graph, costs, "serial"), lifted)
        np.testing.assert_array_equal(_evaluate(coarse.graph, coarse_costs, placements), expected)
    assert merged > 20
