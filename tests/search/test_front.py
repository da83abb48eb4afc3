"""The front against all placements of small problems, and what the archive keeps."""

import numpy as np
import pytest

from placement.search import front
from placement.solvers.limits import SearchLimits
from tests import helpers


def _dominated(values: np.ndarray) -> np.ndarray:
    """Returns whether another row is nowhere larger and somewhere smaller, bool [K]."""
    return np.array([any((v <= w).all() and (v < w).any() for v in values) for w in values], bool)


@pytest.mark.slow
@pytest.mark.parametrize(("latency", "colocated"), [("makespan", 0.0), ("serial", 0.3)])
def test_a_search_finds_the_whole_front_of_a_small_problem(latency, colocated):
    rng = np.random.default_rng(1)
    graph = helpers.random_dag(rng, 8, colocated=colocated)
    problem = helpers.as_problem(graph, helpers.random_costs(rng, graph, 2), latency)
    placements = helpers.all_placements(8, 2)
    values = np.stack(
        [
            np.asarray(problem.evaluate(placements), np.float64),
            np.asarray(problem._replace(objective="max_load").evaluate(placements), np.float64),
            problem.fullest_bytes(placements),
        ],
        axis=1,
    )
    values = values[np.isfinite(values).all(axis=1)]
    best = np.unique(values[~_dominated(values)], axis=0)
    result = front.search_front(problem, 0, SearchLimits(60.0, 20_000))
    np.testing.assert_allclose(result.archive.values, best, rtol=1e-5)
    assert (result.bounds <= best.min(axis=0) * (1 + 1e-5)).all()
    latency_s = np.asarray(problem.evaluate(result.archive.placement))
    np.testing.assert_allclose(latency_s, result.archive.values[:, 0], rtol=1e-6)
    assert result.evaluations <= 20_000


def test_the_archive_keeps_distinct_values_that_nothing_dominates():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 6, (200, 3)).astype(float)
    values[7] = np.inf
    rows = np.arange(200, dtype=np.int32)[:, None]
    archive = front.merge(front.merge(None, rows[:90], values[:90]), rows[90:], values[90:])
    finite = values[np.isfinite(values).all(axis=1)]
    expected = np.unique(finite[~_dominated(finite)], axis=0)
    np.testing.assert_array_equal(archive.values, expected)
    np.testing.assert_array_equal(values[archive.placement[:, 0]], archive.values)


def test_a_full_archive_drops_members_with_the_nearest_neighbours():
    angle = np.linspace(0, np.pi / 2, 4 * front.ARCHIVE_SIZE)
    values = np.stack([1 - np.cos(angle), 1 - np.sin(angle), np.ones_like(angle)], axis=1)
    rows = np.arange(len(angle), dtype=np.int32)[:, None]
    archive = front.merge(None, rows, values)
    assert len(archive.values) == front.ARCHIVE_SIZE
    np.testing.assert_allclose(archive.values[[0, -1]], values[[0, -1]])
    gaps = np.linalg.norm(np.diff(archive.values, axis=0), axis=1)
    assert gaps.max() < 3 * np.median(gaps)


def test_knees_are_the_ends_of_the_axes_and_the_member_nearest_to_all_best_values():
    values = np.array([[1.0, 9, 5], [2, 3, 5], [4, 2, 9], [5, 2, 5], [9, 8, 1]])
    assert front.find_knees(values) == [0, 1, 3, 4]
    assert front.find_knees(values[:1]) == [0]


def test_the_front_is_empty_if_no_placement_can_run():
    graph = helpers.chain(3)
    costs = helpers.unit_costs(graph, compute_s=np.full((3, 2), np.inf, np.float32))
    problem = helpers.as_problem(graph, costs, "makespan")
    result = front.search_front(problem, 0, SearchLimits(10.0, 1_000))
    assert not len(result.archive.values)
