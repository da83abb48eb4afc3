"""The placements that longer searches start from."""

import numpy as np
import pytest

from placement.solvers import starts
from placement.solvers.heuristics import human_expert
from placement.solvers.limits import SearchLimits
from tests import helpers


@pytest.mark.parametrize(("max_ops", "num_missing"), [(10_000, 0), (5, 2)])
def test_large_graphs_skip_slow_methods(monkeypatch, max_ops, num_missing):
    monkeypatch.setattr(starts, "_MAX_SLOW_OPS", max_ops)
    monkeypatch.setitem(starts.STARTS, "makespan", (human_expert.human_expert, *starts._SLOW))
    problem = helpers.random_problem()._replace(objective="makespan")
    assert problem.graph.num_ops > 5
    found = list(starts.find_starts(problem, 0, SearchLimits(60.0, 1_000)))
    assert len(found) == 3 - num_missing
    expert = human_expert.human_expert(problem, 0, SearchLimits(60.0, 1_000))
    np.testing.assert_array_equal(found[0].placement, expert.placement)
