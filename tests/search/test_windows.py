import dataclasses
import itertools

import jax
import numpy as np
import pytest

from placement import methods
from placement.instance import Instance
from placement.search import population, sweeps, windows
from placement.simulators import schedule
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph, Solution
from tests import helpers

SIZE, STEPS = 16, 20
_simulate = jax.jit(windows._SIMULATE)
BUDGET = 5_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "SIZE", SIZE)
    monkeypatch.setattr(windows, "_STEPS", STEPS)


def _problem(
    seed: int = 0, num_ops: int = 60, colocated: float = 0.0, degree: float = 2.5
) -> Instance:
    """Random operations on three devices that run everything."""
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, num_ops, edge_probability=degree / num_ops, colocated=colocated)
    costs = helpers.random_costs(rng, graph, 3)
    seconds = rng.integers(1, 20, (num_ops, 3)).astype(np.float32)
    return helpers.as_problem(graph, costs._replace(compute_s=seconds), "makespan")


def _limited(problem: Instance, capacity_bytes: list[float]) -> Instance:
    num_ops = problem.graph.num_ops
    costs = problem.costs._replace(
        memory_bytes=np.ones(num_ops, np.float32),
        capacity_bytes=np.float32(capacity_bytes),
        accelerator=np.arange(3),
    )
    return problem._replace(costs=costs)


def _starts(problem: Instance, seed: int = 0) -> np.ndarray:
    """One placement, which keeps classes together."""
    classes = problem.classes
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, len(classes.compute_s))[classes.ids][None].astype(np.int32)


def _improved(problem: Instance, starts: np.ndarray, seed: int = 0, **options) -> Solution:
    limits = SearchLimits(
        options.pop("time_limit_s", 60.0), options.pop("budget", BUDGET), **options
    )
    return windows.improve(problem, starts, seed, limits)


def test_windows_cover_all_operations_and_overlap():
    problem = _problem()
    whole = windows._whole(problem)
    drawn = windows._windows(whole, 5)
    assert drawn[0] == (0, drawn[0].end, 5)
    for one, following in itertools.pairwise(drawn):
        assert one.begin < one.settled == following.begin < one.end <= following.end
    assert drawn[-1].settled == drawn[-1].end == problem.graph.num_ops


def test_a_window_is_as_long_as_its_steps_allow():
    problem = _problem(degree=20)
    whole = windows._whole(problem)

    def num_steps(begin: int, end: int) -> int:
        own, other, _ = whole.into.of(begin, end)
        fan_in = np.bincount(own[other >= begin] - begin, minlength=end - begin)
        return int(schedule.num_steps(fan_in).sum())

    full = 0
    for window in windows._windows(whole, 5):
        assert num_steps(window.begin, window.end) <= STEPS
        if window.end < min(window.begin + SIZE, problem.graph.num_ops):
            assert num_steps(window.begin, window.end + 1) > STEPS
            full += 1
    assert full


def _longest_beside(whole: windows._Whole, window: windows._Window, placed: np.ndarray) -> float:
    """The longest path through the schedule that passes a window by."""
    before = sweeps.Sweep(whole.into, whole.compute_s, backwards=False)
    after = sweeps.Sweep(whole.out, whole.compute_s, backwards=True)
    before.advance(0, window.begin, placed)
    after.advance(window.end, len(placed), placed)
    longest_s = [0.0, *(before.free_s + after.free_s)]
    own, other, edge = whole.into.of(window.end, len(placed))
    for reader, source, number in zip(own, other, edge, strict=True):
        if source < window.begin:
            delay_s = whole.into.delay_s[number, placed[source], placed[reader]]
            longest_s.append(before.path_s[source] + delay_s + after.path_s[reader])
    return max(longest_s)


def _without_colocation(graph: OpGraph) -> OpGraph:
    return dataclasses.replace(graph, colocation=np.arange(graph.num_ops, dtype=np.int32))


@pytest.mark.parametrize("colocated", [0.0, 0.3])
def test_a_windows_simulation_gives_the_makespan_of_the_whole(colocated):
    bound = 0
    for seed in range(4):
        problem = _problem(seed, colocated=colocated)
        rng = np.random.default_rng(seed)
        whole = windows._whole(problem)
        search = windows._Search(whole, _starts(problem, seed)[0], rng)
        placed = search._placed.copy()
        drawn = search.draw()
        before = sweeps.Sweep(whole.into, whole.compute_s, backwards=False)
        for window, onward_s in zip(drawn, search._onward_s(drawn), strict=True):
            begin, end, settled = window
            ready_s = before.ready_s(begin, end, placed)
            part = windows._part(whole, window, rng)
            space = search._bounded(part, window, ready_s, onward_s)
            of_classes = rng.integers(0, 3, SIZE).astype(np.int32)
            columns = of_classes if space.number is None else of_classes[space.number]
            outcome = _simulate(space.tables, columns[:, None])
            through_s = float(outcome.latency_s[0]) + ready_s.max() + onward_s.max()
            changed = placed.copy()
            changed[begin:end] = of_classes[part.number]
            # Co-location is the search's matter: the simulator of all is asked without it.
            free = problem._replace(graph=_without_colocation(problem.graph))
            by_op = np.empty_like(changed)
            by_op[whole.order] = changed
            beside_s = _longest_beside(whole, window, placed)
            expected = free.value_s(by_op)
            assert max(through_s, beside_s) == pytest.approx(expected, rel=1e-5)
            bound += through_s >= beside_s
            before.advance(begin, settled, placed)
    assert bound > 8


@pytest.mark.parametrize("colocated", [0.0, 0.3])
def test_what_is_found_is_much_better_than_where_it_began(colocated):
    ratios = []
    for seed in range(3):
        problem = _problem(seed, colocated=colocated)
        starts = _starts(problem)
        found = _improved(problem, starts)
        assert found.evaluations <= BUDGET
        ratios.append(problem.value_s(found.placement) / problem.value_s(starts[0]))
    assert max(ratios) < 0.8


def test_memory_is_kept_where_it_is_scarce():
    for seed in range(3):
        problem = _limited(_problem(seed), [21, 21, 21])
        start = np.arange(60, dtype=np.int32) % 3
        found = _improved(problem, start[None])
        assert (np.bincount(found.placement, minlength=3) <= 21).all()
        assert problem.value_s(found.placement) < 0.95 * problem.value_s(start)


def test_goes_on_from_the_best_start_and_from_none_that_is_not_feasible():
    problem = _limited(_problem(), [30, 30, 30])
    full, even = np.zeros(60, np.int32), np.arange(60, dtype=np.int32) % 3
    assert _improved(problem, full[None]).placement is None
    found = _improved(problem, np.stack([full, even]), budget=3)
    np.testing.assert_array_equal(found.placement, even)
    assert found.evaluations == 2


def test_the_seed_alone_decides():
    problem = _problem()
    one, again = (_improved(problem, _starts(problem), seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.placement, again.placement)
    assert one.evaluations == again.evaluations


def test_ends_in_time_with_the_best_and_tells_whole_placements():
    problem = _problem()
    told: list[tuple[int, float, np.ndarray]] = []
    found = _improved(
        problem,
        _starts(problem),
        observe=lambda *step: told.append(step[:3]),
        stop=lambda: len(told) > 6,
    )
    assert found.status == "time limit"
    evaluations, best_s, rows = zip(*told, strict=True)
    assert len(told) < 10
    assert list(evaluations) == sorted(evaluations)
    assert list(best_s) == sorted(best_s, reverse=True)
    assert best_s[-1] < best_s[0]
    for value_s, row in zip(best_s, rows, strict=True):
        assert value_s == problem.value_s(row)


def test_all_graphs_share_one_compilation():
    _improved(_problem(0), _starts(_problem(0)), budget=600)
    with helpers.count_compilations() as compiled:
        for seed, num_ops in enumerate([60, 47, 90], start=1):
            problem = _problem(seed, num_ops)
            _improved(problem, _starts(problem), budget=600)
    assert not [name for name in compiled if "advance" in name]


def test_the_search_of_a_large_graph_goes_over_windows_first(monkeypatch):
    problem = _problem()
    asked = []
    improve = windows.improve
    monkeypatch.setattr(windows, "improve", lambda *a: asked.append(improve(*a)) or asked[-1])

    def solve(budget: int):
        limits = SearchLimits(60, budget)
        return methods.run("search", population.find, problem, 0, limits)

    solve(2_000)
    assert not asked
    monkeypatch.setattr(population, "_LARGE", 50)
    found = solve(8_000)
    assert len(asked) == 1
    assert asked[0].evaluations < found.evaluations <= 8_000
    assert found.value_s <= problem.value_s(asked[0].placement)
    other = problem._replace(objective="serial")
    methods.run("search", population.find, other, 0, SearchLimits(60, 2_000))
    assert len(asked) == 1


def test_windows_suit_classes_that_they_hold():
    problem = _problem(num_ops=60)
    assert windows.suit(problem)
    # As in a step of training: the first operations with the last.
    position = np.argsort(problem.priority_order)
    pairs = np.minimum(position, 59 - position).astype(np.int32)
    graph = dataclasses.replace(problem.graph, colocation=pairs)
    mirrored = problem._replace(graph=graph)
    assert not windows.suit(mirrored)
