"""What latencies consist of, against the objectives themselves."""

import numpy as np
import pytest

from placement.analysis import latency_terms, segments
from placement.costs import calibrate
from placement.instance import Instance
from placement.types import CostModel
from tests import helpers

DRAWS = 8
GRAPH = helpers.random_dag_of_size(np.random.default_rng(0), 12, 18, 12)


def _problem(rng: np.random.Generator, objective: str) -> tuple[Instance, np.ndarray, np.ndarray]:
    """A problem, placements of it and the kinds of its operations."""
    graph = helpers.rewired(rng, GRAPH)
    costs = helpers.random_costs(rng, graph, 3, transfer=objective != "max_load")
    problem = helpers.as_problem(graph, costs, objective)
    placements = helpers.random_placements(rng, graph, 3, DRAWS)
    return problem, placements, calibrate.classify_ops(graph, costs)


def _latency_s(problem: Instance, profiled: Instance, placement: np.ndarray) -> float:
    """As devices run a placement: cut by the costs as profiled."""
    if problem.objective == "makespan":
        cut = segments.cut(profiled, placement)
        return segments.schedule(problem, placement, cut).latency_s
    return float(problem.evaluate(placement[None])[0])


def _distorted(rng: np.random.Generator, costs: CostModel) -> calibrate.Calibration:
    return calibrate.Calibration(
        compute=np.exp(rng.normal(0, 0.5, (3, calibrate.NUM_KINDS))),
        latency_s=np.asarray(costs.transfer_latency_s) * np.exp(rng.normal(0, 0.5, (3, 3))),
        s_per_byte=np.asarray(costs.transfer_s_per_byte) * np.exp(rng.normal(0, 0.5, (3, 3))),
        cut=1.5,
        fusion_loss_s=2.0,
    )


@pytest.mark.parametrize("objective", latency_terms.TERMS)
def test_the_terms_add_up_to_the_latency_at_whatever_costs(objective):
    rng = np.random.default_rng(0)
    for _ in range(4):
        problem, placements, kind = _problem(rng, objective)
        calibration = _distorted(rng, problem.costs)
        costs = calibrate.apply_calibration(problem.costs, calibration, kind)
        there = problem._replace(costs=costs)
        for placement in placements:
            of = latency_terms.prepare(problem, placement, kind)(costs)
            latency_s = _latency_s(there, problem, placement)
            np.testing.assert_allclose(
                calibrate.predict_latency(of, calibration), latency_s, rtol=1e-4
            )


@pytest.mark.parametrize("objective", latency_terms.TERMS)
def test_kinds_add_up_to_what_a_device_computes(objective):
    problem, placements, kind = _problem(np.random.default_rng(1), objective)
    for placement in placements:
        of_kinds = latency_terms.prepare(problem, placement, kind)(problem.costs)
        of_all = latency_terms.prepare(problem, placement)(problem.costs)
        assert of_kinds.compute_s.shape == (3, calibrate.NUM_KINDS)
        np.testing.assert_allclose(of_kinds.compute_s.sum(axis=1), of_all.compute_s)
        np.testing.assert_array_equal(of_kinds.transfers, of_all.transfers)
