"""Lower bounds against enumeration and by hand."""

import numpy as np
import pytest

from placement.solvers import base
from placement.solvers.bounds import counting, makespan
from placement.solvers.limits import SearchLimits
from tests import helpers
from tests.solvers import exhaustive


def _bound_makespan(problem, time_limit_s=60.0):
    return makespan.bound_makespan(problem, SearchLimits(time_limit_s, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "bound"),
    [
        ("max_load", counting.bound_max_load),
        ("subgraph", counting.bound_subgraph),
        ("makespan", _bound_makespan),
    ],
)
def test_bounds_are_below_optimum(objective, bound):
    tight = 0
    for problem in exhaustive.problems(objective, 16, shared=objective != "max_load"):
        bound_s, best_s = bound(problem), exhaustive.optimum(problem)
        assert bound_s <= best_s * (1 + base.ROUNDING)
        tight += bound_s > 0.9 * best_s
    assert tight > 2


def test_total_load_is_shared():
    graph = helpers.chain(6)
    costs = helpers.unit_costs(graph, 2)
    # 6 operations at 1 or 2 seconds: 4 on the first device, 2 on the second.
    bound_s = counting.bound_max_load(helpers.as_problem(graph, costs, "max_load"))
    np.testing.assert_allclose(bound_s, 4.0, rtol=1e-6)


def test_pigeonhole_by_hand():
    heavy = counting.pigeonhole(np.array([[3.0, 3.0]] * 4 + [[2.5, 2.5], [0.1, 0.1]]))
    assert heavy.bound_s == 8.5  # three of the five share a device
    assert sorted(heavy.members.tolist()) == [0, 1, 2, 3, 4]
    assert heavy.capacity.tolist() == [2, 2]


def test_longest_path_bounds_subgraph():
    graph = helpers.fork_join(2, 3)
    costs = helpers.unit_costs(graph, 3)
    costs.compute_s[1] = 7.0
    assert counting.bound_subgraph(helpers.as_problem(graph, costs, "subgraph")) == 1 + 7 + 3


def test_makespan_bound_by_hand():
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    assert _bound_makespan(problem) == 3  # the critical path
    # op1 must be on device 1: leaving it or coming to it takes more than 100.
    compute_s = np.array([[1, 2], [np.inf, 2], [1, 2]], np.float32)
    costs = helpers.unit_costs(graph, compute_s=compute_s)
    problem = helpers.as_problem(graph, costs, "makespan")
    assert _bound_makespan(problem) == 6  # all three on device 1


def test_makespan_bound_without_seconds():
    graph = helpers.chain(3)
    costs = helpers.unit_costs(graph)
    costs = costs._replace(
        **{f: 0 * getattr(costs, f) for f in costs._fields if "_s" in f and f != "segment_costs"}
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    assert _bound_makespan(problem) == 0


def test_makespan_bound_shares_load():
    graph = helpers.build("six", 6, [])
    equal = helpers.unit_costs(graph, compute_s=np.ones((6, 2), np.float32))
    problem = helpers.as_problem(graph, equal, "makespan")
    assert _bound_makespan(problem) == pytest.approx(3, rel=2e-3)
    # Device 1 takes twice as long: shares of 4 and 2 operations, 4 seconds each.
    problem = problem._replace(costs=helpers.unit_costs(graph))
    assert _bound_makespan(problem) == pytest.approx(4, rel=2e-3)
    # Device 0 holds one operation: the other five take 10 on device 1.
    full = helpers.unit_costs(
        graph,
        memory_bytes=np.ones(6, np.float32),
        capacity_bytes=np.array([1, np.inf], np.float32),
    )
    problem = problem._replace(costs=full)
    assert _bound_makespan(problem) == pytest.approx(10, rel=2e-3)


def _wide(num_ops):
    """Returns a wide graph on three devices, two of which cost the same."""
    rng = np.random.default_rng(3)
    graph = helpers.random_dag_of_size(rng, num_ops, 2 * num_ops, num_ops)
    compute_s = rng.uniform(1, 2, (num_ops, 1)) * rng.uniform(0.5, 2, (num_ops, 3))
    compute_s[:, 2] = compute_s[:, 1]
    costs = helpers.unit_costs(graph, 3, compute_s=compute_s.astype(np.float32))
    return helpers.as_problem(graph, costs, "makespan")


def test_sampled_decisions_bound_makespan(monkeypatch):
    problem = _wide(400)
    exact = _bound_makespan(problem)
    monkeypatch.setattr(makespan, "_MAX_SOLVED_DECISIONS", 100)
    monkeypatch.setattr(makespan, "_SAMPLE_DECISIONS", 100)
    solve, sizes = makespan.optimize.linprog, []
    monkeypatch.setattr(
        makespan.optimize,
        "linprog",
        lambda *program, bounds: (sizes.append(len(program[4])), solve(*program, bounds=bounds))[1],
    )
    sampled = _bound_makespan(problem)
    assert set(sizes) == {100}
    assert 0.94 * exact < sampled <= exact * (1 + 2e-3)


def test_makespan_bound_without_time():
    problem = _wide(100)
    whole = _bound_makespan(problem)
    edges = makespan.collect_edges(problem)
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    through_s = makespan.compute_windows(edges, compute_s).compute_through_s()
    path_s = through_s.min(axis=1).max()
    assert path_s <= _bound_makespan(problem, 0.0) < whole


def test_compiled_windows_agree(monkeypatch):
    problem = _wide(60)
    edges = makespan.collect_edges(problem)
    compute_s = np.array(problem.costs.compute_s, np.float64)
    compute_s[::7, 1] = np.inf
    looped = makespan.compute_windows(edges, compute_s)
    monkeypatch.setattr(makespan, "_MAX_LOOPED_EDGES", 0)
    compiled = makespan.compute_windows(edges, compute_s)
    assert compiled.head_s.dtype == np.float64
    np.testing.assert_allclose(compiled.head_s, looped.head_s, rtol=1e-12)
    np.testing.assert_allclose(compiled.tail_s, looped.tail_s, rtol=1e-12)
    assert looped.head_s.max() > 0
