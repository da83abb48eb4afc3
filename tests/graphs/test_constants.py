"""Constants with several readers: each device has a copy, so that nothing crosses."""

import dataclasses
import itertools

import numpy as np
import openvino as ov
import pytest

from placement.costs import tables
from placement.graphs import coarsen, constants, opgraph
from placement.runtime.models import extract
from placement.types import OpGraph
from tests import helpers
from tests.runtime import small


def _extract(model: ov.Model) -> OpGraph:
    return extract.op_graph(model, name="m").graph


def _names(graph: OpGraph, senders: np.ndarray, receivers: np.ndarray) -> set[tuple[str, str]]:
    names = np.array(graph.op_names)
    return set(zip(names[senders].tolist(), names[receivers].tolist(), strict=True))


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


@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_cuts_cost_tensors_alone(objective):
    graph = constants.copy_to_readers(_extract(small.shared_constant()))
    is_busy = np.isin(graph.op_names, ("first", "second"))
    compute_s = np.repeat(is_busy[:, None], 2, axis=1).astype(np.float32)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph, compute_s=compute_s), objective)
    placement = np.isin(graph.op_names, ("second", "y")).astype(np.int32)
    placement = placement[problem.decisions.first_ops]
    assert problem.value_s(placement) == 2 + 100 + 4 * 8 * 4  # a transfer takes 100 and its bytes


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
    memory = {"memory_bytes": graph.weight_bytes.astype(np.float32)}
    costs = helpers.unit_costs(graph, capacity_bytes=np.full(2, 10.0, np.float32), **memory)
    problem = helpers.as_problem(graph, costs, "makespan")
    used = np.array([problem.peak_bytes(placement) for placement in placements])
    np.testing.assert_array_equal(used, expected)
    is_feasible = np.isfinite(problem.evaluate(placements))
    np.testing.assert_array_equal(is_feasible, (expected <= 10).all(axis=1))
    assert 0 < is_feasible.sum() < len(placements)
    # A coarsening that merges readers loses no copy and counts none twice.
    coarsening = coarsen.merge(graph, np.array([0, 1, 1, 2, 3, 4]))
    coarse_costs = tables.coarse_costs(costs, coarsening.assignment, coarsening.edges)
    coarse = helpers.as_problem(coarsening.graph, coarse_costs, "makespan")
    for placement in placements[:, :5]:
        lifted = placement[..., coarsening.assignment]
        np.testing.assert_array_equal(coarse.peak_bytes(placement), problem.peak_bytes(lifted))
