"""The correction of costs by measurements, on devices that are not what the profile says."""

import numpy as np
import pytest

from placement.graphs import coarsen
from placement.pipeline import correction_loop, loading
from placement.pipeline.target import Target
from placement.solvers.limits import SearchLimits
from tests.costs import test_correction

LIMITS = {"time_limit_s": 600.0, "budget": 50}


def _correct(seed: int, objective: str, **limits):
    """Returns the correction, the profiled problem and the true one, of nine operations."""
    profiled = test_correction.make_problem(np.random.default_rng(seed), objective, num_ops=9)
    net = loading.Network(None, profiled.graph, coarsen.coarsen(profiled.graph), {})
    costs = profiled.costs
    target = Target(net, profiled.devices, profiled.devices, (), costs)
    problem = target.problem(objective)
    truth = loading.make_problem(net, test_correction.distort(costs), profiled.devices, objective)
    # Devices run operations in the profile's order of priority.
    true = truth._replace(order=problem.priority_order)
    search_limits = SearchLimits(**(LIMITS | limits))
    result = correction_loop.correct(
        target, problem, true.evaluate, 0, search_limits, thorough=True
    )
    return result, problem, true


@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_loop_finds_what_profile_hides(objective):
    gains = []
    for seed in range(3):
        result, profiled, true = _correct(seed, objective)
        assert result.record["error_after"] < result.record["error_before"]
        assert result.record["error_before"] > 0.1
        best_s = float(np.asarray(true.evaluate(result.placements[:1]))[0])
        assert best_s == pytest.approx(result.latency_s[0])
        assert (np.diff(result.latency_s) >= 0).all()
        placements = np.array(np.meshgrid(*[[0, 1]] * profiled.graph.num_ops)).reshape(
            profiled.graph.num_ops, -1
        )
        placements = placements.T.astype(np.int32)
        true_s = np.asarray(true.evaluate(placements))
        profile_choice = np.asarray(profiled.evaluate(placements)).argmin()
        assert best_s <= true_s[profile_choice] * (1 + 1e-6)
        assert best_s <= 1.05 * true_s.min()
        gains.append(best_s / true_s[profile_choice])
    assert min(gains) < 0.99


def test_one_measurement_corrects_nothing():
    result, *_ = _correct(0, "serial", budget=1, time_limit_s=1e-9)
    assert len(result.latency_s) == 1
    assert result.record is None
