"""Placements without a search, worked out by hand on a chain."""

import numpy as np
import pytest

from placement import methods
from placement.simulators import residency
from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from placement.types import Status, TensorBytes
from tests import helpers


def _problem(memory, capacity, objective="serial", **changes):
    graph = helpers.chain(len(memory))
    costs = helpers.unit_costs(
        graph,
        len(capacity),
        memory_bytes=np.array(memory, np.float32),
        capacity_bytes=np.array(capacity, np.float32),
        **changes,
    )
    return helpers.as_problem(graph, costs, objective)


def _place(problem, method):
    return methods.solve(problem, method).placement.tolist()


def test_devices_are_filled_in_order():
    problem = _problem([4, 4, 4, 2, 2, 2], [9, 7, 100])
    assert _place(problem, "fill_in_order") == [0, 0, 1, 1, 2, 2]
    assert _place(_problem([4, 4, 4], [np.inf, 9]), "fill_in_order") == [0, 0, 0]


def test_filling_leaves_memory_for_tensors():
    # op0 and op1 fill the first device; their tensors leave room for op0 alone.
    page = residency.PAGE_BYTES
    tensors = np.full(3, page, np.float32)
    memory = [4 * page] * 4
    problem = _problem(memory, [8 * page, 100 * page], "makespan")
    assert _place(problem, "fill_in_order") == [0, 0, 1, 1]
    costs = problem.costs._replace(tensor_bytes=TensorBytes(tensors, tensors))
    problem = problem._replace(costs=costs)
    assert problem.exceeds_memory(np.array([0, 0, 1, 1]))
    assert _place(problem, "fill_in_order") == [0, 1, 1, 1]


def test_filling_fails_without_memory():
    solution = methods.solve(_problem([4, 4, 4], [5, 5]), "fill_in_order")
    assert solution.status == Status.INFEASIBLE
    solution = methods.solve(_problem([3, 3, 3], [5, 5]), "fill_in_order")
    assert solution.status_text == "failed: out of memory"


@pytest.mark.parametrize("method", ["fill_in_order", "split_by_memory"])
def test_unsupported_operations_go_elsewhere(method):
    compute_s = np.ones((4, 2), np.float32)
    compute_s[1, 0] = np.inf
    problem = _problem([2, 2, 2, 2], [6, 6], compute_s=compute_s)
    placement = _place(problem, method)
    assert placement[:2] == [0, 1]
    assert np.isfinite(problem.value_s(np.array(placement)))


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        ([12, 6], [0, 0, 0, 0, 1, 1]),
        ([np.inf, np.inf], [0, 0, 0, 1, 1, 1]),
        ([6, np.inf], [0, 0, 1, 1, 1, 1]),  # 6 : 12, the bytes of the whole model
        ([6, 6, 6], [0, 0, 1, 1, 2, 2]),
    ],
)
def test_parts_follow_memory(capacity, expected):
    assert _place(_problem([2] * 6, capacity), "split_by_memory") == expected


def test_accelerator_parts_share_memory():
    accelerator = np.array([0, 0, 1], np.int32)
    problem = _problem([1] * 8, [8, 8, 8], accelerator=accelerator)
    assert _place(problem, "split_by_memory") == [0, 0, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(("first", "second"), [(6, 6), (4, 8)])
def test_slices_fit_accelerators(first, second):
    """Only one cut fits into the memory of the accelerators; without one, the first is as fast."""
    graph = helpers.chain(12)
    costs = helpers.unit_costs(
        graph,
        3,
        compute_s=np.tile(np.float32([1, 1, 1]), (12, 1)),
        memory_bytes=np.ones(12, np.float32),
        capacity_bytes=np.float32([0, first, second]),
        accelerator=np.array([-1, 0, 1], np.int32),
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    result = trivial.slices(problem, 0, SearchLimits(10, 10))
    assert result.placement.tolist() == [1] * first + [2] * second


def test_greedy_fills_accelerators_in_order():
    graph = helpers.chain(5)
    costs = helpers.unit_costs(
        graph,
        3,
        accelerator=np.array([0, 1, -1], np.int32),
        memory_bytes=np.full(5, 10, np.float32),
        capacity_bytes=np.array([20, 20, np.inf], np.float32),
    )
    found = methods.solve(helpers.as_problem(graph, costs, "subgraph"), "greedy")
    assert found.placement.tolist() == [0, 0, 1, 1, 2]
    assert found.status == "finished"
