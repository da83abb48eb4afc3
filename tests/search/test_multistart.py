"""The search, checked against the enumeration of small random problems."""

import functools

import numpy as np
import pytest

from placement import methods
from placement.problem import Problem
from placement.search import multistart
from placement.solvers import starts
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status
from tests import helpers
from tests.simulators import reference

SIZE = (9, 13, 9, 3)  # operations, edges, tensors, devices: too many placements to enumerate
BUDGET = 4_000
BUDGET_FOR_OPTIMUM = 24_000


@functools.cache
def problems(objective: str) -> list[tuple[Problem, float]]:
    """Returns six problems with the latency of their best placements; costs are whole numbers.

    In turn nothing limits a problem, memory does, and memory and one co-located pair do. The
    problems of each of these kinds share one compilation.
    """
    rng = np.random.default_rng(0)
    drawn: list[tuple[Problem, float]] = []
    while len(drawn) < 6:
        is_limited, is_colocated = len(drawn) % 3 > 0, len(drawn) % 3 > 1
        problem, _ = reference.random_problem(
            rng,
            objective,
            SIZE,
            colocated=0.2 * is_colocated,
            limited=0.7 * is_limited,
            shared=len(drawn) % 4 > 1,
        )
        num_options = problem.decisions.allowed.sum(axis=1)
        if len(num_options) != SIZE[0] - is_colocated or np.prod(num_options) <= 4096:
            continue
        if (problem.memory is not None) != is_limited:
            continue
        best_s = float(_latency_of_all_s(problem).min())
        if 0 < best_s < np.inf:
            drawn.append((problem, best_s))
    return drawn


def _latency_of_all_s(problem: Problem) -> np.ndarray:
    return np.asarray(problem.evaluate(helpers.every_placement(problem)))


def test_starts_are_reported_when_found(monkeypatch):
    problem, best_s = problems("makespan")[0]
    best = helpers.every_placement(problem)[_latency_of_all_s(problem).argmin()]
    reported_s: list[float] = []

    def find_best(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
        assert min(reported_s) > best_s
        return Solution(best)

    def check_report(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
        assert reported_s[-1] == best_s
        raise InterruptedError

    monkeypatch.setitem(starts.STARTS, "makespan", (find_best, check_report))
    limits = SearchLimits(60.0, BUDGET, lambda _, value_s, *rest: reported_s.append(value_s))
    with pytest.raises(InterruptedError):
        multistart.search(problem, 0, limits)


def solve(problem: Problem, seed: int = 1, **options) -> Solution:
    limits = SearchLimits(
        options.pop("time_limit_s", 60.0), options.pop("budget", BUDGET), **options
    )
    return methods.run("search", multistart.search, problem, seed, limits)


@pytest.fixture
def unproven(monkeypatch):
    """Removes decision diagrams, which prove that small problems' starts are optimal."""
    monkeypatch.setattr(starts, "_MAX_DIAGRAM_OPS", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    helpers.nightly_except(["makespan"], ("serial", "makespan", "max_load", "subgraph")),
)
def test_small_problems_end_near_optimum(objective, monkeypatch):
    """The search starts from single devices alone, because other methods often find the optimum.

    It ends when it has result the optimum.
    """
    monkeypatch.setitem(starts.STARTS, objective, ())
    ratios = []
    for problem, best_s in problems(objective):
        incumbents_s = [np.inf]
        solution = solve(
            problem,
            budget=BUDGET_FOR_OPTIMUM,
            observe=lambda _, value_s, *__, seen=incumbents_s: seen.append(value_s),
            stop=lambda seen=incumbents_s, optimum_s=best_s: seen[-1] <= optimum_s,
        )
        assert solution.value_s >= best_s
        if solution.status == "optimal":
            assert solution.value_s == best_s
        ratios.append(solution.value_s / best_s)
    assert np.mean(np.array(ratios) == 1) >= 0.75
    assert np.max(ratios) < 1.1


def test_proven_start_ends_search():
    reports: list[tuple[int, float]] = []
    problem, best_s = problems("makespan")[0]
    solution = solve(problem, observe=lambda count, value_s, *_: reports.append((count, value_s)))
    assert solution.status == "optimal"
    assert solution.value_s == best_s
    assert reports[-1] == (solution.evaluations, best_s)
    assert solution.evaluations < BUDGET


def test_single_device_wins_ties(monkeypatch):
    graph = helpers.chain(40)
    costs = helpers.unit_costs(graph, compute_s=np.ones((40, 2), np.float32))
    none = np.zeros((2, 2), np.float32)
    costs = costs._replace(transfer_latency_s=none, transfer_s_per_byte=none)
    problem = helpers.as_problem(graph, costs, "makespan")
    proven = Solution(np.arange(40, dtype=np.int32) % 2, status=Status.OPTIMAL)
    assert problem.value_s(proven.placement) == problem.value_s(np.zeros(40, np.int32))
    monkeypatch.setattr(starts, "find_starts", lambda *_, **__: [proven])
    assert len(np.unique(solve(problem).placement)) == 1


@pytest.mark.usefixtures("unproven")
def test_search_keeps_its_limits():
    problem = problems("makespan")[0][0]
    first, second = (solve(problem, budget=3_000) for _ in range(2))
    np.testing.assert_array_equal(first.placement, second.placement)
    assert first.evaluations == second.evaluations <= 3_000
    assert first.status == "finished"
    late = solve(problem, budget=10**12, time_limit_s=0.5)
    assert late.status == "time limit"
    assert late.search_s < 20


@pytest.mark.parametrize(("objective", "improve_order"), [("serial", False), ("makespan", True)])
@pytest.mark.usefixtures("unproven")
def test_infeasible_start_becomes_feasible(objective, improve_order, monkeypatch):
    monkeypatch.setitem(starts.STARTS, objective, ())
    problem, _ = problems(objective)[1]
    latency_s = problem.costs.transfer_latency_s
    costs = problem.costs._replace(
        compute_s=np.tile(np.float32([1, 5, 5]), (SIZE[0], 1)),
        transfer_latency_s=np.where(np.isfinite(latency_s), latency_s, 29).astype(np.float32),
        memory_bytes=np.ones(SIZE[0], np.float32),
        capacity_bytes=np.float32([2, 4, 4]),
        accelerator=np.arange(3, dtype=np.int32),
    )
    problem = problem._replace(costs=costs)
    search = functools.partial(multistart.search, improve_order=improve_order)
    solution = methods.run("search", search, problem, 1, SearchLimits(60, BUDGET))
    assert solution.evaluations <= BUDGET
    assert (np.bincount(solution.placement, minlength=3) <= [2, 4, 4]).all()
    assert np.isfinite(solution.value_s)


def test_equal_shapes_share_compilation():
    equal_shapes = [problem for problem, _ in problems("makespan")[::3]]
    solve(equal_shapes[0], budget=900)
    with helpers.count_compilations() as compiled:
        for seed, problem in enumerate(equal_shapes):
            solve(problem, seed=seed, budget=900)
    assert not [name for name in compiled if "advance" in name]


def test_blocks_leave_local_optima():
    # Two chains of eight; a transfer takes as long as two operations.
    graph = helpers.fork_join(2, 8)
    costs = helpers.unit_costs(
        graph,
        compute_s=np.ones((18, 2), np.float32),
        transfer_latency_s=2 * (1 - np.eye(2, dtype=np.float32)),
        transfer_s_per_byte=np.zeros((2, 2), np.float32),
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    alone = np.zeros(18, np.int32)
    single_moves = np.where(np.eye(18, dtype=bool), 1, alone)
    assert min(problem.evaluate(single_moves)) >= problem.value_s(alone) == 18
    result = multistart.run_chain(problem, alone[None], 1, 3, SearchLimits(60, 1_280))
    # op0 0-1; device 1 has the input at 3 and is done at 11, its result is there at 13.
    assert problem.value_s(result.placement) <= 14
    assert result.evaluations <= 1_280
