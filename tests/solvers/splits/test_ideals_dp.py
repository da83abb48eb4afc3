"""Dynamic programs over ideals against brute force, their limits, and cases by hand."""

import numpy as np
import pytest

from placement import methods
from placement.errors import UserError
from placement.problem import Problem
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import ideals_dp
from tests import helpers
from tests.solvers import exhaustive

INF = float("inf")


@pytest.mark.slow
def test_splits_equal_enumeration():
    """More problems than in the contract, some with operations of no cost."""
    rng, num_feasible = np.random.default_rng(7), 0
    for problem in exhaustive.problems("max_load", 24, seed=7):
        problem.costs.compute_s[rng.random(problem.graph.num_ops) < 0.3] = 0.0
        values_s = np.asarray(problem.evaluate(helpers.every_placement(problem)))
        values_s = np.where(exhaustive.follows_device_order(problem), values_s, INF)
        solution = methods.solve(problem, "ideals_dp")
        exhaustive.check(solution, values_s.min())
        num_feasible += np.isfinite(values_s.min())
        restricted = methods.solve(problem, "linearised_dp")
        assert restricted.value_s >= solution.value_s * (1 - 1e-5)
        assert np.isnan(restricted.bound_s)
        if np.isfinite(restricted.value_s):
            row = (helpers.every_placement(problem) == restricted.placement).all(axis=1)
            assert np.isfinite(values_s[row]).all()
    assert 0 < num_feasible < 24


def _problem(num_ops: int, edges: list[tuple[int, int]], **given: object) -> Problem:
    """Returns a problem on two accelerators: operations take 1, transfers 0, unless given."""
    fields = {key: given.pop(key) for key in ("colocation", "backward") if key in given}
    graph = helpers.build("hand-made", num_ops, edges, [0] * len(edges), **fields)
    free = {
        "compute_s": np.ones((num_ops, 2), np.float32),
        "transfer_latency_s": np.zeros((2, 2), np.float32),
        "transfer_s_per_byte": np.zeros((2, 2), np.float32),
    }
    return helpers.as_problem(graph, helpers.unit_costs(graph, **{**free, **given}), "max_load")


def test_too_many_ideals_are_refused():
    problem = _problem(20, [])
    with pytest.raises(UserError, match=r"has too many ideals.*linearised_dp") as raised:
        methods.solve(problem, "ideals_dp")
    assert "\n" not in str(raised.value)
    assert methods.solve(problem, "linearised_dp").value_s == 10


def test_contiguous_splits_need_memory():
    """Sizes 1, 2, 1 in 2 and 2: the ends fit together, but the middle lies between them."""
    problem = _problem(
        3,
        [(0, 1), (1, 2)],
        memory_bytes=np.array([1, 2, 1], np.float32),
        capacity_bytes=np.full(2, 2, np.float32),
    )
    found = methods.solve(problem, "ideals_dp")
    assert found.status_text.startswith("infeasible: no contiguous placement")
    assert found.scope == base.CONTIGUOUS


@pytest.mark.parametrize("edges", [[(0, 1), (3, 2)], [(0, 1), (2, 3)]], ids=["against", "along"])
def test_backward_pass_directions(edges: list[tuple[int, int]]):
    """Operations 2 and 3 are the backward ones of 0 and 1: half of both goes to each device."""
    problem = _problem(
        4, edges, backward=[False, False, True, True], colocation=np.array([0, 1, 0, 1], np.int32)
    )
    found = methods.solve(problem, "ideals_dp")
    assert (found.value_s, found.status) == (2, "optimal")


def test_backward_before_forward_is_refused():
    problem = _problem(2, [(0, 1)], backward=[True, False])
    with pytest.raises(UserError, match=r"backward operation 'op0' feeds forward operation 'op1'"):
        methods.solve(problem, "ideals_dp")


def test_shared_limited_memory_is_refused():
    problem = _problem(
        2,
        [(0, 1)],
        capacity_bytes=np.full(2, 9, np.float32),
        accelerator=np.zeros(2, np.int32),
    )
    with pytest.raises(UserError, match="share one limited memory"):
        methods.solve(problem, "ideals_dp")


def test_time_limit_gives_best_known():
    found = ideals_dp.ideals_dp(_problem(2, [(0, 1)]), 0, SearchLimits(0.0, 1))
    assert (found.status, found.scope) == ("time limit", base.CONTIGUOUS)
    assert found.placement.tolist() == [0, 0]
    assert np.isnan(found.bound_s)
