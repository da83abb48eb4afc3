import dataclasses

import jax
import numpy as np
import pytest

from placement import methods
from placement.problem import Problem
from placement.search import multistart, windows
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph, Solution
from tests import helpers

SIZE, STEPS = 16, 20
_simulate = jax.jit(windows._SIMULATE)
BUDGET = 5_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "SIZE", SIZE)
    monkeypatch.setattr(windows, "_MAX_STEPS", STEPS)


def _problem(
    seed: int = 0, num_ops: int = 60, colocated: float = 0.0, degree: float = 2.5
) -> Problem:
    """Random operations on three devices that run everything."""
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, num_ops, edge_probability=degree / num_ops, colocated=colocated)
    costs = helpers.random_costs(rng, graph, 3)
    seconds = rng.integers(1, 20, (num_ops, 3)).astype(np.float32)
    return helpers.as_problem(graph, costs._replace(compute_s=seconds), "makespan")


def _starts(problem: Problem, seed: int = 0) -> np.ndarray:
    """Returns one random placement."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, problem.num_decisions)[None].astype(np.int32)


def _improved(problem: Problem, starts: np.ndarray, seed: int = 0, **options) -> Solution:
    limits = SearchLimits(
        options.pop("time_limit_s", 60.0), options.pop("budget", BUDGET), **options
    )
    return windows.improve(problem, starts, seed, limits)


def _longest_around(
    ordered: windows._OrderedProblem, window: windows._Window, placement: np.ndarray
) -> float:
    """Computes the longest path through the schedule that does not enter a window."""
    forward = windows.PathSweep(ordered.incoming, ordered.compute_s, backwards=False)
    backward = windows.PathSweep(ordered.outgoing, ordered.compute_s, backwards=True)
    forward.advance(0, window.begin, placement)
    backward.advance(window.end, len(placement), placement)
    longest_s = [0.0, *(forward.device_free_s + backward.device_free_s)]
    edges = ordered.incoming.select(window.end, len(placement))
    for reader, source, edge in zip(*edges, strict=True):
        if source < window.begin:
            delay_s = ordered.incoming.delay_s[edge, placement[source], placement[reader]]
            longest_s.append(forward.path_s[source] + delay_s + backward.path_s[reader])
    return max(longest_s)


def _without_colocation(graph: OpGraph) -> OpGraph:
    return dataclasses.replace(graph, colocation=np.arange(graph.num_ops, dtype=np.int32))


def test_windows_simulate_the_whole_makespan():
    num_decisive = 0
    for seed in range(4):
        problem = _problem(seed, colocated=0.3 * (seed % 2))
        rng = np.random.default_rng(seed)
        ordered = windows._order_problem(problem)
        search = windows._Search(ordered, _starts(problem, seed)[0], rng)
        placement = search.placement[ordered.decision]
        drawn = search.draw_windows()
        sweep = windows.PathSweep(ordered.incoming, ordered.compute_s, backwards=False)
        for window, tail_s in zip(drawn, search._tails_s(drawn), strict=True):
            begin, end, next_begin = window
            ready_s = sweep.ready_s(begin, end, placement)
            window_search = windows._prepare(ordered, window, rng)
            space = search._add_boundary(window_search, window, ready_s, tail_s)
            devices = rng.integers(0, 3, SIZE).astype(np.int32)
            outcome = _simulate(space.tables, devices[:, None])
            through_s = float(outcome.latency_s[0]) + ready_s.max() + tail_s.max()
            changed = placement.copy()
            decision = space.tables.decision
            window_devices = devices if decision is None else devices[decision]
            changed[begin:end] = window_devices[: end - begin]
            # Decisions that are only partly in the window are changed there alone.
            free_problem = problem._replace(graph=_without_colocation(problem.graph))
            changed_ops = np.empty_like(changed)
            changed_ops[problem.priority_order] = changed
            around_s = _longest_around(ordered, window, placement)
            expected = free_problem.value_s(changed_ops)
            assert max(through_s, around_s) == pytest.approx(expected, rel=1e-5)
            num_decisive += through_s >= around_s
            sweep.advance(begin, next_begin, placement)
    assert num_decisive > 8


def test_windows_improve_random_start():
    ratios = []
    for seed in range(3):
        problem = _problem(seed, colocated=0.15 * seed)
        starts = _starts(problem)
        result = _improved(problem, starts)
        assert result.evaluations <= BUDGET
        ratios.append(problem.value_s(result.placement) / problem.value_s(starts[0]))
    assert max(ratios) < 0.8


def test_search_reports_complete_placements():
    problem = _problem()
    reports: list[tuple[int, float, np.ndarray]] = []
    result = _improved(
        problem,
        _starts(problem),
        observe=lambda *step: reports.append(step[:3]),
        stop=lambda: len(reports) > 6,
    )
    assert result.status == "time limit"
    evaluations, best_s, rows = zip(*reports, strict=True)
    assert len(reports) < 10
    assert list(evaluations) == sorted(evaluations)
    assert list(best_s) == sorted(best_s, reverse=True)
    assert best_s[-1] < best_s[0]
    for value_s, row in zip(best_s, rows, strict=True):
        assert value_s == problem.value_s(row)


def test_graphs_share_one_compilation():
    _improved(_problem(0), _starts(_problem(0)), budget=600)
    with helpers.count_compilations() as compiled:
        for seed, num_ops in enumerate([60, 47, 90], start=1):
            problem = _problem(seed, num_ops)
            _improved(problem, _starts(problem), budget=600)
    assert not [name for name in compiled if "advance" in name]


def test_large_graphs_use_windows(monkeypatch):
    problem = _problem()
    results = []
    improve = windows.improve
    monkeypatch.setattr(windows, "improve", lambda *a: results.append(improve(*a)) or results[-1])

    def solve(budget: int):
        limits = SearchLimits(60, budget)
        return methods.run("search", multistart.search, problem, 0, limits)

    solve(2_000)
    assert not results
    monkeypatch.setattr(multistart, "_LARGE", 50)
    result = solve(8_000)
    assert len(results) == 1
    assert results[0].evaluations < result.evaluations <= 8_000
    assert result.value_s <= problem.value_s(results[0].placement)
    other = problem._replace(objective="serial")
    methods.run("search", multistart.search, other, 0, SearchLimits(60, 2_000))
    assert len(results) == 1


def test_windows_suit_local_decisions():
    problem = _problem(num_ops=60)
    assert windows.is_suitable(problem)
    # As in a step of training: the first operations with the last.
    position = np.argsort(problem.priority_order)
    pairs = np.minimum(position, 59 - position).astype(np.int32)
    graph = dataclasses.replace(problem.graph, colocation=pairs)
    mirrored = problem._replace(graph=graph)
    assert not windows.is_suitable(mirrored)
