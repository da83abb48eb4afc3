"""The search by few measurements, on devices that are not what the profile says."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from placement import methods
from placement.analysis import segments
from placement.costs import calibrate
from placement.instance import Instance
from placement.search import multistart, thompson_sampling
from placement.solvers.limits import SearchLimits
from tests import helpers

NUM_OPS = 9
SEEDS = 10


def _problem(rng: np.random.Generator, transfer_s: float = 5e-5) -> Instance:
    """Operations of about a millisecond on two devices."""
    graph = helpers.random_dag_of_size(rng, NUM_OPS, 12, 10)
    graph = dataclasses.replace(graph, edge_bytes=graph.edge_bytes * 200)
    off_diagonal = 1 - np.eye(2, dtype=np.float32)
    costs = helpers.unit_costs(
        graph,
        compute_s=rng.uniform(2e-4, 2e-3, (NUM_OPS, 2)).astype(np.float32),
        transfer_latency_s=off_diagonal * np.float32(transfer_s),
        transfer_s_per_byte=off_diagonal * np.float32(3e-10),
    )
    return helpers.as_problem(graph, costs, "makespan")


def _distorted(rng: np.random.Generator, problem: Instance) -> Instance:
    """Makes each device and link up to twice as fast or as slow as profiled."""
    off_diagonal = 1 - np.eye(2)
    factors = 2 ** rng.uniform(-1, 1, 4)
    costs = problem.costs
    truth = calibrate.Calibration(
        compute=factors[:2],
        latency_s=off_diagonal * np.asarray(costs.transfer_latency_s) * factors[2],
        s_per_byte=off_diagonal * np.asarray(costs.transfer_s_per_byte) * factors[3],
        cut=1.0,
        fusion_loss_s=0.0,
    )
    return problem._replace(costs=calibrate.apply_calibration(costs, truth))


class _Call(NamedTuple):
    new: list[bytes]
    repeated: list[bytes]


class _Devices:
    """Measures placements at true costs, in segments cut by the profile, and records its calls."""

    def __init__(self, profiled: Instance, true: Instance, noise: float = 0.0):
        self._profiled, self._true, self._noise = profiled, true, noise
        self._rng = np.random.default_rng(7)
        self._seen: dict[bytes, list[float]] = {}
        self.calls: list[_Call] = []

    def latency_s(self, placement: np.ndarray) -> float:
        cut = segments.cut(self._profiled, placement)
        return segments.schedule(self._true, placement, cut).latency_s

    def best_s(self) -> float:
        """Returns the latency of the fastest placement.

        Enumerates placements by the load of their busiest device, which bounds the latency, until
        none that is left can be faster.
        """
        rows = helpers.all_placements(NUM_OPS, 2)
        compute_s = np.asarray(self._true.costs.compute_s, np.float64)
        on_device = rows[:, :, None] == np.arange(2)
        busiest_s = (compute_s * on_device).sum(axis=1).max(axis=1) * (1 - 1e-6)
        fastest_s = np.inf
        for number in busiest_s.argsort():
            if busiest_s[number] >= fastest_s:
                break
            fastest_s = min(fastest_s, self.latency_s(rows[number]))
        return float(fastest_s)

    def __call__(self, new: np.ndarray, repeated: np.ndarray) -> np.ndarray:
        self.calls.append(_Call([p.tobytes() for p in new], [p.tobytes() for p in repeated]))
        return np.array([self._sample_s(placement) for placement in (*new, *repeated)])

    def _sample_s(self, placement: np.ndarray) -> float:
        samples = self._seen.setdefault(placement.tobytes(), [])
        samples.append(self.latency_s(placement) * (1 + self._noise * self._rng.standard_normal()))
        return float(np.median(samples))


def _find(
    devices: thompson_sampling.Measure, problem: Instance, **limits
) -> thompson_sampling.MeasuredPlacements:
    first = _simulated(problem)
    limits = {"time_limit_s": 600.0, "budget": 1000} | limits
    return thompson_sampling.search_devices(problem, first, devices, 0, SearchLimits(**limits))


def _simulated(problem: Instance) -> np.ndarray:
    return methods.run(
        "search", multistart.search, problem, 0, SearchLimits(60.0, 10_000)
    ).placement


def test_few_measurements_find_the_optimum_that_the_profile_hides():
    ratios, simulated_ratios, counts = [], [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        problem = _problem(rng)
        devices = _Devices(problem, _distorted(rng, problem))
        best_s = devices.best_s()
        result = _find(devices, problem)
        assert result.latency_s[0] == pytest.approx(devices.latency_s(result.placement[0]))
        ratios.append(result.latency_s[0] / best_s)
        simulated_ratios.append(devices.latency_s(_simulated(problem)) / best_s)
        counts.append(len(result.placement))
    assert max(counts) <= thompson_sampling.MAX_MEASUREMENTS
    assert np.sum(np.array(ratios) <= 1.02) >= 9
    assert np.sum(np.array(simulated_ratios) > 1.02) >= 5


def test_noise_makes_no_winner_that_is_slower_than_the_best_single_device():
    """Where handing over is dear, one device is the best and everything else is slower."""
    for seed in range(SEEDS // 2):
        rng = np.random.default_rng(seed)
        problem = _problem(rng, transfer_s=1e-3)
        devices = _Devices(problem, _distorted(rng, problem), noise=0.03)
        single_s = min(devices.latency_s(np.full(NUM_OPS, d, np.int32)) for d in range(2))
        result = _find(devices, problem)
        assert devices.latency_s(result.placement[0]) <= 1.03 * single_s


def test_the_search_ends_if_no_placement_can_be_faster():
    rng = np.random.default_rng(0)
    problem = _problem(rng, transfer_s=1.0)
    devices = _Devices(problem, problem)
    result = _find(devices, problem)
    assert result.status == "finished"
    assert len(result.placement) <= 8
    assert result.latency_s[0] == devices.best_s()


def test_new_placements_are_measured_once_and_the_fastest_with_them_again():
    rng = np.random.default_rng(0)
    problem = _problem(rng)
    devices = _Devices(problem, _distorted(rng, problem))
    result = _find(devices, problem)
    new = [placement for call in devices.calls for placement in call.new]
    assert len(new) == len(set(new)) == len(result.placement)
    assert {np.full(NUM_OPS, d, np.int32).tobytes() for d in range(2)} <= set(devices.calls[0].new)
    assert devices.calls[0].repeated == []
    assert len(devices.calls) > 2
    for call, later in zip(devices.calls, devices.calls[1:], strict=False):
        assert 1 <= len(later.repeated) <= 2
        assert set(later.repeated) <= set(new)
        assert not set(later.new) & set(call.new)
    assert (np.diff(result.latency_s) >= 0).all()


def test_placements_that_do_not_run_are_skipped():
    rng = np.random.default_rng(2)
    problem = _problem(rng)
    devices = _Devices(problem, _distorted(rng, problem))

    def measure(new: np.ndarray, repeated: np.ndarray) -> np.ndarray:
        rows = np.concatenate([new, repeated])
        return np.where(rows[:, 0] == 1, np.inf, devices(new, repeated))

    result = _find(measure, problem)
    assert np.isfinite(result.latency_s[0])
    assert result.placement[0, 0] == 0
    assert np.isinf(result.latency_s[result.placement[:, 0] == 1]).all()


def test_the_budget_and_the_reports_count_measured_placements():
    rng = np.random.default_rng(1)
    problem = _problem(rng)
    devices = _Devices(problem, _distorted(rng, problem))
    reports: list[tuple[int, float]] = []
    result = _find(devices, problem, budget=5, observe=lambda *step: reports.append(step[:2]))
    assert len(result.placement) == 5
    assert reports[-1] == (5, result.latency_s[0])
    assert [count for count, _ in reports] == [3, 5]


def test_without_time_nothing_is_measured():
    problem = _problem(np.random.default_rng(1))
    result = _find(None, problem, stop=lambda: True)
    assert result.status == "time limit"
    np.testing.assert_array_equal(result.placement, _simulated(problem)[None])
    assert np.isinf(result.latency_s).all()
