"""The front of latency against error, compared with all placements of small problems."""

import itertools

import numpy as np
import pytest

from placement.instance import Instance
from placement.solvers import error_front
from placement.solvers.error_front import FrontPoint
from placement.solvers.limits import SearchLimits
from tests import helpers


def find(problem: Instance, errors: np.ndarray, time_limit_s: float = 60.0) -> list[FrontPoint]:
    return error_front.error_front(problem, errors, SearchLimits(time_limit_s, 1))


def draw_problem(seed: int, num_devices: int = 2) -> tuple[Instance, np.ndarray]:
    """Draws a problem of six operations and errors, of which the first device has none."""
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, 6, colocated=0.3 * (seed % 2))
    costs = helpers.random_costs(rng, graph, num_devices)
    errors = rng.random((6, num_devices)) * rng.integers(0, 2, (6, num_devices))
    errors[:, 0] = 0.0
    return helpers.as_problem(graph, costs, "serial"), errors


def all_points(problem: Instance, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns latencies and errors of all placements that can run."""
    placements = helpers.all_placements(6, len(problem.devices))
    latency_s = np.asarray(problem.evaluate(placements), np.float64)
    total = np.take_along_axis(errors[None], placements[..., None], axis=2).sum(axis=(1, 2))
    can_run = np.isfinite(latency_s) & np.isfinite(total)
    return latency_s[can_run], total[can_run]


@pytest.mark.parametrize("seed", range(8))
def test_no_placement_is_below_the_front_for_any_multiplier(seed):
    problem, errors = draw_problem(seed)
    front = find(problem, errors)
    latency_s, total = all_points(problem, errors)
    assert front[0].latency_s == pytest.approx(latency_s.min(), rel=1e-5)
    assert front[-1].error == pytest.approx(total.min())
    for multiplier in [0.0, *np.geomspace(1e-3, 1e3, 40) * latency_s.max()]:
        best = min(point.latency_s + multiplier * point.error for point in front)
        assert best == pytest.approx((latency_s + multiplier * total).min(), rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_vertices_are_placements_with_their_latency_and_error_and_form_a_convex_curve(seed):
    problem, errors = draw_problem(seed)
    front = find(problem, errors)
    for point in front:
        assert problem.value_s(point.placement) == pytest.approx(point.latency_s, rel=1e-5)
        assert errors[np.arange(6), point.placement].sum() == pytest.approx(point.error)
    slopes = [
        (right.latency_s - left.latency_s) / (left.error - right.error)
        for left, right in itertools.pairwise(front)
    ]
    assert all(slope >= 0 for slope in slopes)
    assert slopes == sorted(slopes)


def test_an_infinite_error_keeps_an_operation_off_the_device():
    problem, errors = draw_problem(0)
    errors[:, 1], errors[2, 1] = 0.0, np.inf
    (point,) = find(problem, errors)
    latency_s, _ = all_points(problem, errors)
    assert point.placement[2] == 0
    assert point.latency_s == pytest.approx(latency_s.min(), rel=1e-5)


def test_three_devices_have_a_front_whose_ends_are_the_fastest_and_the_most_accurate():
    problem, errors = draw_problem(3, num_devices=3)
    front = find(problem, errors)
    latency_s, total = all_points(problem, errors)
    assert front[0].latency_s == pytest.approx(latency_s.min(), rel=1e-5)
    assert front[-1].error == pytest.approx(total.min())


def test_without_time_both_ends_are_left():
    problem, errors = draw_problem(4)
    whole = find(problem, errors)
    assert len(whole) > 2
    ends = find(problem, errors, time_limit_s=0.0)
    assert [point.error for point in ends] == [whole[0].error, whole[-1].error]


def test_without_a_placement_that_can_run_the_front_is_empty():
    problem, errors = draw_problem(0)
    errors[4] = np.inf
    assert find(problem, errors) == []
