"""Decision diagrams of `makespan`, against the enumeration of small problems."""

import numpy as np
import pytest

from placement import methods, solvers
from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.bounds import makespan
from placement.solvers.diagrams import layers, search
from placement.solvers.diagrams.sweep import sweep
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph
from tests import helpers
from tests.solvers import exhaustive


def _limits(time_limit_s: float = 60.0) -> SearchLimits:
    return SearchLimits(time_limit_s, 10**9)


def _layers(problem: Instance) -> layers.Diagram:
    made = layers.make(problem)
    assert made is not None
    return made


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [3, 4])
def test_relaxed_diagrams_refute_no_latency_that_a_placement_has(num_devices):
    tight = 0
    found = exhaustive.problems("makespan", 150, num_devices=num_devices, shared=True)
    for number, problem in enumerate(found):
        best_s = exhaustive.optimum(problem)
        of = _layers(problem)
        most_s = makespan.longest_s(of.edges, of.windows.compute_s)
        for asked_s in (most_s, 1.1 * best_s, best_s, 0.9 * best_s):
            if not 0 < asked_s < np.inf:
                continue
            width = 1 + number % 7
            bound_s = sweep(of, asked_s, width, _limits(), relaxed=True).bound_s
            assert bound_s <= min(asked_s, best_s * (1 + base.ROUNDING))
            tight += bound_s > 0.99 * best_s
    assert tight > 90


@pytest.mark.slow
def test_restricted_diagrams_know_what_their_placements_take():
    for number, problem in enumerate(exhaustive.problems("makespan", 100)):
        of = _layers(problem)
        most_s = makespan.longest_s(of.edges, of.windows.compute_s)
        if most_s == 0:
            continue
        swept = sweep(of, most_s, 1 + number % 5, _limits(), relaxed=False)
        if swept.placement is not None:
            value_s = problem.value_s(swept.placement)
            np.testing.assert_allclose(swept.latency_s, value_s, rtol=1e-6)


@pytest.mark.slow
def test_wide_diagrams_find_the_optimum_and_know_it():
    for problem in exhaustive.problems("makespan", 100, seed=1, shared=True):
        exhaustive.check(problem, methods.solve(problem, "diagram"), exhaustive.optimum(problem))


def test_modules_in_series_have_few_states():
    problem = _in_series([helpers.fork_join(4, 3)] * 12)
    found = methods.solve(problem, "diagram", time_limit_s=20.0)
    assert found.status == "optimal"
    assert found.value_s <= methods.solve(problem, "lns", budget=2000).value_s * (1 + 1e-5)
    np.testing.assert_allclose(solvers.lower_bound(problem), found.value_s, rtol=1e-4)


def test_equal_devices_are_one_state():
    graph = helpers.fork_join(3, 2)
    costs = helpers.unit_costs(graph, 4)
    costs.compute_s[:] = 1.0
    of = _layers(helpers.as_problem(graph, costs, "makespan"))
    assert of.problem.interchangeable_devices.tolist() == [0, 0, 0, 0]
    most_s = makespan.longest_s(of.edges, of.windows.compute_s)
    swept = sweep(of, most_s, 10**6, _limits(), relaxed=True)
    assert swept.exact
    assert swept.placement is not None
    # Each is charged what it would be as it stands, whichever name it has.
    value_s = of.problem.value_s(swept.placement)
    np.testing.assert_allclose(value_s, swept.latency_s, rtol=1e-6)


def test_where_the_time_ends_a_bound_is_one_of_what_is_to_come():
    problem = _in_series([helpers.fork_join(4, 3)] * 4)
    best_s = methods.solve(problem, "diagram").value_s
    of = _layers(problem)
    swept = sweep(of, 2 * best_s, 100, _limits(0.0), relaxed=True)
    assert not swept.exact
    assert 0 < swept.bound_s <= best_s * (1 + base.ROUNDING)
    assert search.start(problem, 0, _limits(0.0)).placement is None


def test_graphs_that_are_too_wide_are_refused_and_bounded_otherwise():
    graph = helpers.build("wide", 1200, [(n, n + 600) for n in range(600)])
    costs = helpers.unit_costs(graph)
    costs.compute_s[:] = np.random.default_rng(0).integers(1, 9, costs.compute_s.shape)
    problem = helpers.as_problem(graph, costs, "makespan")
    with pytest.raises(UserError, match="more than 512 tensors alive"):
        methods.solve(problem, "diagram")
    assert search.start(problem, 0, _limits()).placement is None
    assert solvers.lower_bound(problem) == solvers.lower_bound(problem, any_order=True) > 0


def _in_series(modules: list[OpGraph]) -> Instance:
    """One after another, the last operation of each before the first of the next; random costs."""
    edges: list[tuple[int, int]] = []
    begin = 0
    for module in modules:
        ends = np.stack([module.senders, module.receivers], axis=1) + begin
        edges += [(begin - 1, begin)] * (begin > 0) + [(u, v) for u, v in ends.tolist()]
        begin += module.num_ops
    graph = helpers.build("series", begin, edges, edge_bytes=[10] * len(edges))
    costs = helpers.random_costs(np.random.default_rng(0), graph, 3)
    return helpers.as_problem(graph, costs, "makespan")
