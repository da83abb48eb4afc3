import pytest

from placement import methods, simulators
from tests import helpers


@pytest.mark.parametrize("objective", simulators.OBJECTIVES)
def test_search_beats_zero_shot(objective):
    problem = helpers.random_problem(0.3)._replace(objective=objective)
    solution = methods.solve(problem, "search", budget=20_000)
    alone = methods.solve(problem, "zero_shot")
    assert solution.value_s <= alone.value_s
    if solution.status != "optimal":
        assert 10_000 < solution.evaluations <= 20_000
