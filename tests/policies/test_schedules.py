"""The schedules that policies read agree with the simulators of the objectives."""

import functools

import jax
import numpy as np
import pytest

from placement.policies import hsdag, schedules
from tests import helpers

_compute = jax.jit(schedules.compute_schedule)


@functools.cache
def _problem(objective: str):
    """A chain, of which every tensor has one reader, on a host and two accelerators."""
    rng = np.random.default_rng(0)
    graph = helpers.chain(9)
    costs = helpers.random_costs(rng, graph, 3)._replace(
        accelerator=np.array([-1, 0, 1], np.int32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        capacity_bytes=np.full(3, np.inf, np.float32),
    )
    costs = costs._replace(
        compute_s=rng.uniform(1, 2, (9, 3)).astype(np.float32),
        transfer_latency_s=0.25 * (1 - np.eye(3, dtype=np.float32)),
        transfer_s_per_byte=np.zeros((3, 3), np.float32),
    )
    return helpers.as_problem(graph, costs, objective)


@pytest.mark.parametrize("objective", ["serial", "makespan", "max_load", "subgraph"])
def test_last_finish_is_latency(objective):
    problem = _problem(objective)
    costs = hsdag.read(problem).graph.globals
    placements = np.random.default_rng(1).integers(0, 3, (6, 9)).astype(np.int32)
    for placement, latency_s in zip(placements, problem.evaluate(placements), strict=True):
        padded = np.pad(placement, (0, len(costs.compute_s) - 9))
        schedule = _compute(costs, padded)
        duration_s = (schedule.finish_s - schedule.start_s)[:9]
        compute_s = np.asarray(problem.costs.compute_s)[np.arange(9), placement]
        np.testing.assert_allclose(duration_s, compute_s, rtol=1e-5)
        if objective != "subgraph":
            assert schedule.latency_s == pytest.approx(float(latency_s), rel=1e-6)


def test_serial_has_no_slack():
    costs = hsdag.read(_problem("serial")).graph.globals
    placement = np.arange(len(costs.compute_s), dtype=np.int32) % 3
    schedule = _compute(costs, placement)
    np.testing.assert_allclose(schedule.slack_s[:9], 0.0, atol=1e-5)
    assert (np.diff(schedule.start_s[:9]) > 0).all()


def test_max_load_slack():
    costs = hsdag.read(_problem("max_load")).graph.globals
    placement = np.zeros(len(costs.compute_s), np.int32)
    placement[7:9] = 1, 2
    schedule = _compute(costs, placement)
    compute_s = np.asarray(costs.compute_s)
    load_s = [compute_s[:7, 0].sum(), 0.5 + compute_s[7, 1], 0.25 + compute_s[8, 2]]
    expected_s = max(load_s) - np.repeat(load_s, [7, 1, 1])
    np.testing.assert_allclose(schedule.slack_s[:9], expected_s, atol=1e-5)
