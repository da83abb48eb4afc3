"""The fitted costs of changes between groups of cores, against costs that are known."""

import numpy as np
import pytest

from placement.analysis import group_changes
from placement.analysis.group_changes import GroupChanges
from placement.types import SegmentCosts
from tests import helpers

CORES = np.array([[True, True], [True, False], [False, True]])  # all cores and each core
NUM_CORES = (2, 1, 1)


def _problem(length=6):
    graph = helpers.fork_join(2, length)
    compute_s = np.tile([5.5e-3, 10e-3, 10e-3], (graph.num_ops, 1)).astype(np.float32)
    costs = helpers.unit_costs(graph, 3, compute_s=compute_s, resources=CORES)
    costs = costs._replace(
        transfer_latency_s=np.where(np.eye(3, dtype=bool), 0, 5e-5).astype(np.float32),
        transfer_s_per_byte=np.zeros((3, 3), np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
    )
    return helpers.as_problem(graph, costs, "makespan")


@pytest.mark.parametrize("seed", range(10))
def test_a_longest_path_is_as_long_as_the_schedule(seed):
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, 12)
    costs = helpers.random_costs(rng, graph, 3)
    if seed % 2:
        costs = costs._replace(resources=helpers.random_resources(rng, 3))
    costs = costs._replace(
        transfer_s_per_byte=np.zeros((3, 3), np.float32),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    for placement in helpers.random_placements(rng, graph, 3, 8):
        path = group_changes.find_longest_path(problem, placement)
        expected_s = float(np.asarray(problem.evaluate(placement[None]))[0])
        latency_s = np.asarray(costs.transfer_latency_s, float)
        sum_s = path.compute_s.sum() + (path.num_transfers * latency_s).sum()
        assert path.latency_s == pytest.approx(expected_s, rel=1e-5)
        assert sum_s == pytest.approx(expected_s, rel=1e-4)


def test_a_fit_predicts_placements_that_it_has_not_seen():
    problem, rng = _problem(), np.random.default_rng(0)
    truth = GroupChanges(
        np.array([0.0, 0.08, 0.08]),
        np.array([[0, 8e-4, 8e-4], [8e-4, 0, 3e-4], [8e-4, 3e-4, 0]]),
    )
    actual = problem._replace(costs=group_changes.apply(problem.costs, truth))
    placements = helpers.random_placements(rng, problem.graph, 3, 12)
    latency_s = np.asarray(actual.evaluate(placements), float)
    fitted = group_changes.fit([problem] * 8, placements[:8], latency_s[:8], NUM_CORES)
    assert fitted.slowdown[0] == 0
    assert fitted.slowdown[1] == fitted.slowdown[2]
    np.testing.assert_array_equal(fitted.latency_s, fitted.latency_s.T)
    np.testing.assert_array_equal(np.diag(fitted.latency_s), 0)
    changed = problem._replace(costs=group_changes.apply(problem.costs, fitted))
    profiled_error, fitted_error = (
        np.abs(np.asarray(p.evaluate(placements[8:])) / latency_s[8:] - 1)
        for p in (problem, changed)
    )
    assert profiled_error.max() > 0.05
    assert fitted_error.max() < 0.02


def test_right_predictions_are_left_as_they_are():
    problem = _problem()
    placements = helpers.random_placements(np.random.default_rng(0), problem.graph, 3, 6)
    latency_s = np.asarray(problem.evaluate(placements), float)
    fitted = group_changes.fit([problem] * 6, placements, latency_s, NUM_CORES)
    assert max(fitted.slowdown.max(), fitted.latency_s.max()) < 1e-6
    # Faster than predicted is not a negative cost.
    faster = group_changes.fit([problem] * 6, placements, 0.9 * latency_s, NUM_CORES)
    assert min(faster.slowdown.min(), faster.latency_s.min()) >= 0


def test_a_latency_is_fitted_where_the_longest_path_has_no_transfer():
    problem = _problem()
    costs = problem.costs._replace(
        compute_s=problem.costs.compute_s / 20, transfer_latency_s=np.zeros((3, 3), np.float32)
    )
    problem = problem._replace(costs=costs)
    placement = np.zeros(problem.graph.num_ops, np.int32)
    placement[5] = 1
    path = group_changes.find_longest_path(problem, placement)
    assert path.num_transfers.sum() == 0
    latency_s = np.array([path.latency_s + 2e-3])
    fitted = group_changes.fit([problem], [placement], latency_s, NUM_CORES)
    changed = problem._replace(costs=group_changes.apply(costs, fitted))
    assert float(changed.evaluate(placement[None])[0]) == pytest.approx(latency_s[0], rel=0.01)
    assert fitted.slowdown.max() < 0.01


def test_cautious_costs_exceed_the_true_ones_where_nothing_was_measured():
    problem = _problem()
    truth = GroupChanges(np.array([0.0, 0.05, 0.05]), 3e-4 * (1 - np.eye(3)))
    actual = problem._replace(costs=group_changes.apply(problem.costs, truth))
    split = np.zeros(problem.graph.num_ops, np.int32)
    split[1:7], split[7:13] = 1, 2  # a branch on each core
    whole = np.zeros_like(split)

    def fit(placements, num_deviations):
        latency_s = np.asarray(actual.evaluate(np.array(placements)), float)
        problems = [problem] * len(placements)
        return group_changes.fit(
            problems, placements, latency_s, NUM_CORES, num_deviations=num_deviations
        )

    probable, cautious = fit([whole], 0.0), fit([whole], 1.0)
    assert probable.slowdown.max() == probable.latency_s.max() == 0
    for cost, true_cost in zip(cautious, truth, strict=True):
        assert (cost >= true_cost).all()
    # A measurement leaves less to caution, but nothing less than its own error.
    measured = group_changes.apply(problem.costs, fit([whole, split], 1.0))
    predicted_s = float(problem._replace(costs=measured).evaluate(split[None])[0])
    assert 1 < predicted_s / float(actual.evaluate(split[None])[0]) < 1.1
    cautious_s = float(
        problem._replace(costs=group_changes.apply(problem.costs, cautious)).evaluate(split[None])[
            0
        ]
    )
    assert predicted_s < cautious_s


def test_a_slowdown_is_not_counted_twice_in_segments():
    problem = _problem()
    graph = problem.graph
    slowdown = np.tile([0.0, 0.05, 0.3], (graph.num_ops, 1)).astype(np.float32)
    costs = problem.costs._replace(
        segment_costs=SegmentCosts(
            np.zeros((graph.num_edges, 3), np.float32), np.zeros(3, np.float32), slowdown
        )
    )
    changes = GroupChanges(np.array([0.0, 0.1, 0.1]), np.zeros((3, 3)))
    applied = group_changes.apply(costs, changes)
    np.testing.assert_allclose(
        applied.segment_costs.slowdown[0], [0.0, 0.0, 1.3 / 1.1 - 1], rtol=1e-5
    )
    np.testing.assert_allclose(applied.compute_s, costs.compute_s * [1, 1.1, 1.1], rtol=1e-6)


def test_costs_are_saved_and_read():
    changes = GroupChanges(np.array([0.0, 0.1]), np.array([[0.0, 1e-4], [1e-4, 0.0]]))
    data = group_changes.to_json(changes) | {"placements": []}
    for read, written in zip(group_changes.from_json(data), changes, strict=True):
        np.testing.assert_array_equal(read, written)
