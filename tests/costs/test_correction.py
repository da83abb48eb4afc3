"""The fit of factors to latencies of placements at other costs than profiled."""

import dataclasses

import numpy as np
import pytest

from placement.costs import correction
from placement.types import CostModel
from tests import helpers

NUM_OPS = 30


def make_problem(rng: np.random.Generator, objective: str, num_ops: int = NUM_OPS):
    """Operations of about a millisecond and tensors to a megabyte, on two devices."""
    graph = helpers.random_dag(rng, num_ops, edge_probability=0.1)
    graph = dataclasses.replace(graph, edge_bytes=graph.edge_bytes * 1000)
    off_diagonal = 1 - np.eye(2, dtype=np.float32)
    costs = helpers.unit_costs(
        graph,
        compute_s=rng.uniform(2e-4, 2e-3, (num_ops, 2)).astype(np.float32),
        transfer_latency_s=off_diagonal * np.float32(5e-5),
        transfer_s_per_byte=off_diagonal * np.float32(2e-10),
        fusion_loss_s=np.float32(rng.random(graph.num_edges) * 1e-4),
    )
    return helpers.as_problem(graph, costs, objective)


def distort(costs: CostModel, device_factors=(0.8, 1.5), transfer_factor: float = 3.0) -> CostModel:
    """Returns costs of slower or faster devices and transfers than profiled."""
    return costs._replace(
        compute_s=np.float32(costs.compute_s * np.array(device_factors)),
        transfer_latency_s=np.float32(transfer_factor * costs.transfer_latency_s),
        transfer_s_per_byte=np.float32(transfer_factor * costs.transfer_s_per_byte),
    )


@pytest.mark.parametrize("objective", ["serial", "makespan", "max_load"])
def test_fit_predicts_other_placements(objective):
    rng = np.random.default_rng(0)
    problem = make_problem(rng, objective)._replace(order=np.arange(NUM_OPS, dtype=np.int32))
    placements = rng.integers(0, 2, (24, NUM_OPS)).astype(np.int32)
    measured_s = np.asarray(
        problem._replace(costs=distort(problem.costs)).evaluate(placements), np.float64
    )

    def predict(factors: np.ndarray) -> np.ndarray:
        costs = correction.apply(problem.graph, problem.costs, factors)
        return np.asarray(problem._replace(costs=costs).evaluate(placements))

    def error(factors: np.ndarray) -> np.ndarray:
        return np.abs(predict(factors) / measured_s - 1)

    is_judged = np.ones(12, bool)
    fit = correction.fit(lambda factors: predict(factors)[:12], measured_s[:12], 2, is_judged)
    before = error(np.ones(correction.num_factors(2)))
    np.testing.assert_allclose(fit.error_before, before[:12].mean(), rtol=1e-3)
    assert fit.error_after < before.mean() / 3
    assert error(fit.factors)[12:].mean() < before[12:].mean() / 3


def test_fit_keeps_correct_profile():
    rng = np.random.default_rng(1)
    problem = make_problem(rng, "serial")
    placements = rng.integers(0, 2, (6, NUM_OPS)).astype(np.int32)
    measured_s = np.asarray(problem.evaluate(placements), np.float64)

    def predict(factors: np.ndarray) -> np.ndarray:
        costs = correction.apply(problem.graph, problem.costs, factors)
        return np.asarray(problem._replace(costs=costs).evaluate(placements))

    fit = correction.fit(predict, measured_s, 2, np.ones(6, bool))
    np.testing.assert_allclose(fit.factors, 1, atol=1e-3)
