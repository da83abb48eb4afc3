"""Decision diagrams of `makespan`, against the enumeration of small problems."""

import sys

import numpy as np
import pytest

from placement import methods, solvers, suite
from placement.errors import UserError
from placement.problem import Problem
from placement.solvers import base, starts
from placement.solvers.bounds import makespan
from placement.solvers.diagrams.sweep import Diagram, make_diagram, sweep
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph
from tests import helpers
from tests.solvers import exhaustive


def _limits(time_limit_s: float = 60.0) -> SearchLimits:
    return SearchLimits(time_limit_s, 10**9)


def _diagram(problem: Problem) -> Diagram:
    diagram = make_diagram(problem)
    assert diagram is not None
    return diagram


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [3, pytest.param(4, marks=pytest.mark.nightly)])
def test_relaxed_diagrams_bound_optimum(num_devices):
    tight = 0
    problems = exhaustive.problems("makespan", 50, num_devices=num_devices, shared=True)
    for number, problem in enumerate(problems):
        best_s = exhaustive.optimum(problem)
        diagram = _diagram(problem)
        max_s = makespan.compute_longest_s(diagram.edges, diagram.windows.compute_s)
        for latency_s in (max_s, 1.1 * best_s, best_s, 0.9 * best_s):
            if not 0 < latency_s < np.inf:
                continue
            width = 1 + number % 7
            bound_s = sweep(diagram, latency_s, width, _limits(), relaxed=True).bound_s
            assert bound_s <= min(latency_s, best_s * (1 + base.ROUNDING))
            tight += bound_s > 0.99 * best_s
    assert tight > 30


@pytest.mark.nightly
def test_wide_diagrams_prove_optimum():
    for problem in exhaustive.problems("makespan", 100, seed=1, shared=True):
        exhaustive.check(methods.solve(problem, "diagram"), exhaustive.optimum(problem))


def test_modules_in_series():
    problem = _in_series([helpers.fork_join(4, 3)] * 12)
    solution = methods.solve(problem, "diagram", time_limit_s=20.0)
    assert solution.status == "optimal"
    assert solution.value_s <= methods.solve(problem, "lns", budget=2000).value_s * (1 + 1e-5)
    np.testing.assert_allclose(solvers.lower_bound(problem), solution.value_s, rtol=1e-4)


def test_sweep_without_time():
    problem = _in_series([helpers.fork_join(4, 3)] * 4)
    best_s = methods.solve(problem, "diagram").value_s
    diagram = _diagram(problem)
    swept = sweep(diagram, 2 * best_s, 100, _limits(0.0), relaxed=True)
    assert not swept.exact
    assert 0 < swept.bound_s <= best_s * (1 + base.ROUNDING)
    assert starts.narrow_diagram(problem, 0, _limits(0.0)).placement is None


@pytest.mark.parametrize(("num_ops", "is_refuted"), [(300, True), (100, True), (1, False)])
def test_sampled_weights_refute_latency(num_ops, is_refuted, monkeypatch):
    monkeypatch.setattr(sys.modules[sweep.__module__], "_MAX_WEIGHT_OPS", num_ops)
    name = "layered_300-makespan"
    diagram, best_s = _diagram(suite.load(name, 1)), suite.best_known(name, 1).value_s
    assert sweep(diagram, best_s, 4, _limits(), relaxed=True).bound_s < best_s
    # The linear program of the load gives 0.911 of the best known value.
    bound_s = sweep(diagram, 0.9 * best_s, 4, _limits(), relaxed=True).bound_s
    assert (bound_s == pytest.approx(0.9 * best_s)) == is_refuted


def test_wide_graphs_are_refused():
    graph = helpers.build("wide", 1200, [(n, n + 600) for n in range(600)])
    costs = helpers.unit_costs(graph)
    costs.compute_s[:] = np.random.default_rng(0).integers(1, 9, costs.compute_s.shape)
    problem = helpers.as_problem(graph, costs, "makespan")
    with pytest.raises(UserError, match="more than 512 tensors alive"):
        methods.solve(problem, "diagram")
    assert starts.narrow_diagram(problem, 0, _limits()).placement is None
    assert solvers.lower_bound(problem) == solvers.lower_bound(problem, any_order=True) > 0


def _in_series(modules: list[OpGraph]) -> Problem:
    """Joins modules in a chain, from the last operation of each to the first of the next."""
    edges: list[tuple[int, int]] = []
    begin = 0
    for module in modules:
        ends = np.stack([module.senders, module.receivers], axis=1) + begin
        edges += [(begin - 1, begin)] * (begin > 0) + [(u, v) for u, v in ends.tolist()]
        begin += module.num_ops
    graph = helpers.build("series", begin, edges, edge_bytes=[10] * len(edges))
    costs = helpers.random_costs(np.random.default_rng(0), graph, 3)
    return helpers.as_problem(graph, costs, "makespan")
