"""Constants with several readers: each device has a copy, so that nothing crosses."""

import dataclasses
import itertools

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.costs import tables
from placement.graphs import coarsen, constants, opgraph, training
from placement.instance import Instance
from placement.runtime.models import extract
from placement.types import CostModel, OpGraph
from tests.runtime import small


def _extract(model: ov.Model) -> OpGraph:
    return extract.op_graph(model, name="m").graph


def _two_converts() -> ov.Model:
    """As `small.shared_constant`, but each product has a Convert of its own."""
    matrix = ops.constant(np.ones((8, 8), np.float16), name="matrix")
    source = ops.parameter([4, 8], np.float32, name="x")
    unpacks = [ops.convert(matrix, np.float32, name=f"unpack{i}") for i in range(2)]
    first = ops.matmul(source, unpacks[0], False, False, name="first")
    second = ops.matmul(first, unpacks[1], False, False, name="second")
    return ov.Model([ops.result(second, name="y")], [source], "m")


def _names(graph: OpGraph, senders: np.ndarray, receivers: np.ndarray) -> set[tuple[str, str]]:
    names = np.array(graph.op_names)
    return set(zip(names[senders].tolist(), names[receivers].tolist(), strict=True))


def _costs(graph: OpGraph, capacity_bytes: float = np.inf) -> CostModel:
    """One second an operation, and a transfer of a byte takes a second."""
    apart = 1 - np.eye(2, dtype=np.float32)
    return CostModel(
        compute_s=np.ones((graph.num_ops, 2), np.float32),
        transfer_latency_s=0 * apart,
        transfer_s_per_byte=apart,
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(2, capacity_bytes, np.float32),
        accelerator=np.arange(2, dtype=np.int32),
    )


def test_owners_keep_their_edges():
    graph = constants.copy_to_readers(_extract(small.shared_constant()))
    assert _names(graph, graph.senders, graph.receivers) == {
        ("matrix", "unpack"),
        ("unpack", "first"),
        ("x", "first"),
        ("first", "second"),
        ("second", "y"),
    }
    assert _names(graph, graph.copy_sources, graph.copy_readers) == {("unpack", "second")}
    assert graph.copy_bytes.tolist() == [128]  # float16, as the model stores it
    opgraph.validate(graph)


@pytest.mark.parametrize("model", [small.shared_constant(), _two_converts()])
def test_coarse_edges_are_no_constants(model):
    graph = constants.copy_to_readers(_extract(model))
    # Without the copy, the products are one chain.
    coarse = coarsen.coarsen(graph).graph
    assert (coarse.num_ops, coarse.num_edges, len(coarse.copy_sources)) == (1, 0, 0)
    parts = np.array([name in ("second", "unpack1", "y") for name in graph.op_names]).astype(int)
    coarse = coarsen.merge(graph, parts).graph
    assert coarse.op_names == ("first", "second")
    assert coarse.edge_bytes.tolist() == [4 * 8 * 4]
    assert coarse.copy_bytes.tolist() == [128]


@pytest.mark.parametrize("model", [small.shared_constant(), _two_converts()])
@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_cuts_cost_tensors_alone(model, objective):
    graph = constants.copy_to_readers(_extract(model))
    costs = _costs(graph)
    is_busy = np.isin(graph.op_names, ("first", "second"))
    costs = costs._replace(compute_s=costs.compute_s * is_busy[:, None])
    problem = Instance(graph, costs, objective, ("a", "b"))
    placement = np.isin(graph.op_names, ("second", "unpack1", "y")).astype(np.int32)
    assert problem.value_s(placement) == 2 + 4 * 8 * 4


def test_constants_read_twice():
    matrix = ops.constant(np.ones((8, 8), np.float32), name="matrix")
    source = ops.parameter([8, 8], np.float32, name="x")
    first = ops.add(source, matrix, name="first")
    twice = ops.add(matrix, matrix, name="twice")
    model = ov.Model([ops.result(ops.matmul(first, twice, False, False)),
                      ops.result(ops.select(ops.greater(source, matrix), matrix, matrix))],
                     [source], "m")  # fmt: skip
    graph = constants.copy_to_readers(_extract(model))
    pairs = list(zip(graph.copy_constants.tolist(), graph.copy_readers.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) > 0
    is_constant, _ = constants.find_constants(graph)
    assert dict(zip(graph.op_names, is_constant.tolist(), strict=True))["twice"]


def test_training_needs_the_edges():
    graph = constants.copy_to_readers(_extract(small.shared_constant()))
    with pytest.raises(ValueError, match="lacks the edges of its copied constants"):
        training.make_training_graph(graph)


def test_devices_hold_constants_once():
    rng = np.random.default_rng(0)
    graph = dataclasses.replace(
        opgraph.make_graph(
            name="m",
            op_names=[f"op{i}" for i in range(6)],
            op_types=["MatMul"] * 6,
            senders=np.arange(5),
            receivers=np.arange(1, 6),
            edge_bytes=np.zeros(5),
            weight_bytes=[0, 10, 0, 1, 0, 0],
            member_types=[["MatMul"]] * 6,
        ),
        copy_sources=np.array([1, 3, 1, 1], np.int32),
        copy_readers=np.array([0, 5, 2, 4], np.int32),
        copy_bytes=np.array([10, 1, 10, 7]),
        copy_constants=np.array([8, 3, 8, 5], np.int32),
    )
    placements = rng.permutation(list(itertools.product(range(2), repeat=6))).astype(np.int32)

    def used_bytes(placement: np.ndarray, device: int) -> int:
        total = int(graph.weight_bytes[placement == device].sum())
        for constant, source in ((8, 1), (3, 3), (5, 1)):
            members = graph.copy_constants == constant
            is_read = (placement[graph.copy_readers[members]] == device).any()
            if is_read and placement[source] != device:
                total += int(graph.copy_bytes[members][0])
        return total

    expected = np.array([[used_bytes(p, d) for d in range(2)] for p in placements])
    problem = Instance(graph, _costs(graph, capacity_bytes=10.0), "makespan", ("a", "b"))
    used = np.array([problem.peak_bytes(placement) for placement in placements])
    np.testing.assert_array_equal(used, expected)
    is_feasible = np.isfinite(problem.evaluate(placements))
    np.testing.assert_array_equal(is_feasible, (expected <= 10).all(axis=1))
    assert 0 < is_feasible.sum() < len(placements)
    # A coarsening that merges readers loses no copy and counts none twice.
    coarsening = coarsen.merge(graph, np.array([0, 1, 1, 2, 3, 4]))
    coarse = Instance(
        coarsening.graph,
        tables.coarse_costs(problem.costs, coarsening.assignment, coarsening.edges),
        *("makespan", ("a", "b")),
    )
    for placement in placements[:, :5]:
        lifted = coarsen.lift(coarsening.assignment, placement)
        np.testing.assert_array_equal(coarse.peak_bytes(placement), problem.peak_bytes(lifted))
