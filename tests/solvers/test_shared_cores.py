"""Methods on devices that share cores, against brute force on small problems."""

import functools
import importlib.util
import itertools

import numpy as np
import pytest

from placement import methods, solvers
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.bounds import makespan
from placement.solvers.limits import SearchLimits
from tests import helpers
from tests.simulators import reference

HALVES = np.array([[True, True], [True, False], [False, True]])  # all cores, and one each
SIZE = (6, 9, 6, 3)
NUM_PROBLEMS = 10


@functools.cache
def _problems() -> list[tuple[Instance, float]]:
    """Returns problems whose halves take up to twice as long as all cores, and their optima.

    Every second pair of halves is equal. The optima are those of the event-driven reference.
    """
    rng, every = np.random.default_rng(3), helpers.all_placements(SIZE[0], SIZE[-1])
    problems = []
    for number in range(NUM_PROBLEMS):
        problem, _ = reference.random_problem(rng, "makespan", SIZE, colocated=0.2 * (number % 3))
        all_s = rng.integers(1, 20, SIZE[0])
        half_s = all_s[:, None] + (all_s[:, None] * rng.random((SIZE[0], 2))).astype(int)
        apart = 1 - np.eye(3, dtype=np.float32)
        costs = problem.costs._replace(
            compute_s=np.column_stack([all_s, half_s]).astype(np.float32),
            transfer_latency_s=apart * (number % 4),
            transfer_s_per_byte=0 * apart,
            resources=HALVES,
        )
        if number % 2:
            costs.compute_s[:, 2] = costs.compute_s[:, 1]
        problem = problem._replace(costs=costs)
        leaders = problem.leaders
        rows = every[(every == every[:, leaders]).all(axis=1)]
        problems.append((problem, min(reference.latencies(problem, rows))))
    return problems


def _solve(problem: Instance, method: str):
    if method.startswith("cpsat") and importlib.util.find_spec("ortools") is None:
        pytest.skip("ortools is not installed")
    return methods.solve(problem, method, seed=1, time_limit_s=30.0, budget=4_000)


def test_the_problems_need_both_all_cores_and_halves():
    placements = np.array([_solve(problem, "brute_force").placement for problem, _ in _problems()])
    is_parallel = (placements > 0).any(axis=1)
    assert is_parallel.any()
    assert not is_parallel.all()


@pytest.mark.parametrize("method", ["brute_force", "cpsat", "diagram"])
def test_exact_methods_prove_the_optimum(method):
    for problem, optimum_s in _problems():
        solution = _solve(problem, method)
        assert solution.status == "optimal"
        assert solution.value_s == pytest.approx(optimum_s, rel=1e-6)
        assert solution.bound_s <= optimum_s * (1 + base.ROUNDING)


@pytest.mark.parametrize("method", ["search", "lns", "cpsat_free"])
def test_searches_find_the_optimum_of_the_order_or_a_better_order(method):
    num_optimal = 0
    for problem, optimum_s in _problems():
        solution = _solve(problem, method)
        num_optimal += solution.value_s <= optimum_s * (1 + 1e-6)
        assert solution.value_s <= optimum_s * 1.1
        scheduled = problem.with_order(solution.order)
        (value_s,) = reference.latencies(scheduled, solution.placement[None])
        assert solution.value_s == pytest.approx(value_s, rel=1e-6)
    assert num_optimal >= (NUM_PROBLEMS // 2 if method == "lns" else NUM_PROBLEMS)


def test_no_schedule_in_any_order_is_shorter_than_the_free_optimum():
    problem, _ = _problems()[0]
    best_s = np.inf
    position = [np.argsort(order) for order in itertools.permutations(range(SIZE[0]))]
    senders, receivers = problem.graph.senders, problem.graph.receivers
    every = helpers.all_placements(SIZE[0], SIZE[-1])
    for order in (np.argsort(p) for p in position if (p[senders] < p[receivers]).all()):
        best_s = min(best_s, float(np.min(problem.with_order(order).evaluate(every))))
    solution = _solve(problem, "cpsat_free")
    assert (solution.status, solution.value_s) == ("optimal", pytest.approx(best_s, rel=1e-6))


@pytest.mark.parametrize("method", ["heft", "peft", "m_etf", "m_sct", "m_topo", "single"])
def test_fast_methods_are_no_faster_than_the_optimum_and_lists_follow_shared_cores(method):
    ratios = []
    for problem, optimum_s in _problems():
        solution = _solve(problem, method)
        ratios.append(solution.value_s / optimum_s)
    assert min(ratios) >= 1 - 1e-6
    if method in ("heft", "m_etf", "m_sct"):
        assert np.median(ratios) < 1.35


def test_a_list_schedule_runs_independent_operations_on_all_cores_one_after_another():
    # All cores take 1, one core takes 3: two operations end at 2 on all cores, at 3 on one each.
    graph = helpers.random_dag_of_size(np.random.default_rng(0), 2, 0, 0)
    costs = helpers.unit_costs(
        graph, 3, compute_s=np.array([[1, 3, 3]] * 2, np.float32), resources=HALVES
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    for method in ("heft", "m_etf", "peft"):
        assert _solve(problem, method).placement.tolist() == [0, 0]
    # Without common cores one of them runs on one core meanwhile, if that takes 1.5.
    faster = costs._replace(compute_s=np.array([[1, 1.5, 1.5]] * 2, np.float32), resources=None)
    problem = helpers.as_problem(graph, faster, "makespan")
    assert sorted(_solve(problem, "heft").placement.tolist()) == [0, 1]


@pytest.mark.parametrize("any_order", [True, False])
def test_bounds_are_valid_and_count_common_cores(any_order):
    ratios = []
    for problem, optimum_s in _problems():
        bound_s = solvers.lower_bound(problem, any_order=any_order)
        assert bound_s <= optimum_s * (1 + base.ROUNDING)
        ratios.append(bound_s / optimum_s)
    assert max(ratios) > 0.95
    # Eight operations of 1 on both cores, or 2 on one: 8 whatever is done, 4 if nothing is shared.
    graph = helpers.random_dag_of_size(np.random.default_rng(0), 8, 0, 0)
    costs = helpers.unit_costs(
        graph, 3, compute_s=np.array([[1, 2, 2]] * 8, np.float32), resources=HALVES
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    limits = SearchLimits(10.0, 1)
    assert makespan.bound_makespan(problem, limits) == pytest.approx(8, rel=2e-3)
    apart = problem._replace(costs=costs._replace(resources=None))
    assert makespan.bound_makespan(apart, limits) == pytest.approx(4, rel=2e-3)


def test_learned_methods_see_the_shared_schedule():
    problem, optimum_s = _problems()[0]
    solution = methods.solve(problem, "placeto", seed=0, time_limit_s=20.0, budget=64)
    assert solution.value_s >= optimum_s * (1 - 1e-6)
    (value_s,) = reference.latencies(problem, solution.placement[None])
    assert solution.value_s == pytest.approx(value_s, rel=1e-6)
