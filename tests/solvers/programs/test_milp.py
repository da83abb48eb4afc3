import numpy as np
import pytest

from placement import methods
from placement.solvers.programs import program_search
from tests import helpers
from tests.solvers import exhaustive


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "objective", "contiguous"),
    [
        ("milp", "max_load", True),
        ("milp_noncontiguous", "max_load", False),
        ("milp", "subgraph", False),
    ],
)
def test_equals_enumeration(method, objective, contiguous):
    for problem in exhaustive.problems(objective, 18, seed=1):
        found = methods.solve(problem, method)
        exhaustive.check(problem, found, exhaustive.optimum(problem, contiguous=contiguous))
        if np.isfinite(found.value_s):
            assert found.scope == ("contiguous" if contiguous else "all")
        if contiguous and np.isfinite(found.value_s):
            reach = program_search.reachability_within_passes(problem.graph)
            assert program_search.is_contiguous(found.placement, reach)


@pytest.mark.slow
def test_equals_enumeration_with_several_parts_an_accelerator():
    for problem in exhaustive.problems("subgraph", 12, seed=2, shared=True):
        exhaustive.check(problem, methods.solve(problem, "milp"), exhaustive.optimum(problem))


def test_no_time_returns_what_is_known():
    rng = np.random.default_rng(0)
    graph = helpers.random_dag_of_size(rng, 40, 80, 50)
    costs = helpers.random_costs(rng, graph, 4, accelerator=np.array([0, 1, 2, -1], np.int32))
    problem = helpers.as_problem(graph, costs, "max_load")
    found = methods.solve(problem, "milp_noncontiguous", time_limit_s=0.0)
    assert found.status == "time limit"
    assert 0 < found.bound_s <= found.value_s < np.inf
