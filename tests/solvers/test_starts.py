"""The placements that longer searches start from."""

import numpy as np
import pytest

from placement import suite
from placement.solvers import starts
from placement.solvers.heuristics import human_expert
from placement.solvers.limits import SearchLimits
from tests import helpers


@pytest.mark.parametrize(("max_ops", "num_missing"), [(10_000, 0), (5, 1)])
def test_large_graphs_skip_slow_methods(monkeypatch, max_ops, num_missing):
    monkeypatch.setattr(starts, "_MAX_SLOW_OPS", max_ops)
    monkeypatch.setitem(starts.STARTS, "makespan", (human_expert.human_expert, *starts._SLOW))
    problem = helpers.random_problem()._replace(objective="makespan")
    assert problem.graph.num_ops > 5
    found = list(starts.find_starts(problem, 0, SearchLimits(60.0, 1_000)))
    assert len(found) == 2 - num_missing
    expert = human_expert.human_expert(problem, 0, SearchLimits(60.0, 1_000))
    np.testing.assert_array_equal(found[0].placement, expert.placement)


def test_starts_count_and_report():
    problem, reports = helpers.random_problem(), []
    limits = SearchLimits(60.0, 1_000, lambda count, value_s, *_: reports.append((count, value_s)))
    begun = [*starts.evaluate_starts(problem, 0, limits)]
    results = [*starts.find_starts(problem, 0, SearchLimits(60.0, 1_000))]
    count = 3 + sum(max(1, result.evaluations) for result in results)
    assert len(begun) == 3 + len(results) < count  # `slices` simulates five
    assert [start.evaluations for start in begun[:3]] == [1, 2, 3]
    assert begun[-1].evaluations == count
    assert reports[-1] == (count, min(start.value_s for start in begun))
    limits = SearchLimits(60.0, 1_000, starts="single")
    alone = [start.placement for start in starts.evaluate_starts(problem, 0, limits)]
    np.testing.assert_array_equal(alone, problem.single_devices)


def test_early_start_keeps_memory_limits():
    problem = suite.load("montage_128-max_load")  # no device has memory for all of it
    begun = [*starts.evaluate_starts(problem, 0, SearchLimits(60.0, len(problem.devices) + 1))]
    assert [np.isfinite(start.value_s) for start in begun] == [False] * len(problem.devices) + [
        True
    ]
