import numpy as np
import pytest

from placement import methods, simulators
from placement.methods import pretrained
from placement.solvers.limits import SearchLimits
from placement.types import Solution
from tests import helpers

AMPLE = {"time_limit_s": 60.0, "budget": 20_000}


def _within(objective: str = "makespan", **limits) -> Solution | None:
    problem = helpers.random_problem()._replace(objective=objective)
    return pretrained.find_if_worthwhile(problem, 0, SearchLimits(**{**AMPLE, **limits}))


def test_a_policy_places_where_it_pays(monkeypatch):
    found = _within()
    problem = helpers.random_problem()
    assert problem.value_s(found.placement) < np.inf
    assert found.evaluations > 100
    assert _within("serial") is None
    assert _within(time_limit_s=1.0) is None
    assert _within(budget=2_000) is None
    monkeypatch.setattr(pretrained, "_MAX_OPS", problem.graph.num_ops - 1)
    assert _within() is None


@pytest.mark.parametrize("objective", simulators.OBJECTIVES)
def test_the_search_is_no_worse_than_a_policy_that_it_starts_from(objective):
    problem = helpers.random_problem(0.3)._replace(objective=objective)
    solution = methods.solve(problem, "search", budget=20_000)
    alone = methods.solve(problem, "zero_shot")
    assert solution.value_s <= alone.value_s
    if solution.status != "optimal":
        assert 10_000 < solution.evaluations <= 20_000
