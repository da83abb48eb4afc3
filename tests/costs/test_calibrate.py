import dataclasses
import json

import numpy as np
import pytest

from placement.analysis import latency_terms, segments
from placement.costs import calibrate
from placement.instance import Instance
from placement.types import CostModel, OpGraph
from tests import helpers

TRUE = calibrate.Calibration(
    compute=np.array([0.9, 1.1]),
    latency_s=np.array([[0, 15e-6], [3e-6, 0]]),
    s_per_byte=np.array([[0, 0.3e-9], [0.1e-9, 0]]),
    cut=0.5,
    fusion_loss_s=8e-6,
)


def _problem(rng: np.random.Generator) -> tuple[OpGraph, CostModel, np.ndarray]:
    """Microseconds and tensors to a megabyte, as on real devices; a quarter of the edges fused."""
    graph = helpers.random_dag(rng, 40, edge_probability=0.06)
    graph = dataclasses.replace(graph, edge_bytes=graph.edge_bytes * 1000)
    costs = helpers.random_costs(rng, graph, 2)
    apart = 1 - np.eye(2, dtype=np.float32)
    fused = rng.random(graph.num_edges) < 0.25
    costs = costs._replace(
        compute_s=costs.compute_s * np.float32(1e-5),
        transfer_latency_s=apart * np.float32(5e-6),
        transfer_s_per_byte=apart * np.float32(2e-10),
        fusion_loss_s=np.where(fused, rng.random(graph.num_edges) * 1e-4, 0).astype(np.float32),
    )
    return graph, costs, rng.integers(0, 2, (200, 40)).astype(np.int32)


def _serial_s(graph: OpGraph, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    return np.asarray(Instance(graph, costs, "serial", ("a", "b")).evaluate(placements))


def _fit(
    graph: OpGraph, costs: CostModel, placements: np.ndarray, measured_s: np.ndarray
) -> calibrate.Calibration:
    return calibrate.fit_posterior(costs, _serial(graph, costs, placements), measured_s).mode


def _serial(
    graph: OpGraph, costs: CostModel, placements: np.ndarray, kind: np.ndarray | None = None
) -> list[calibrate.ComputeTerms]:
    """Terms that are the same at all costs."""
    fixed = [calibrate.serial_terms(graph, costs, placement, kind) for placement in placements]
    return [lambda _, of=of: of for of in fixed]


def test_recovers_what_distorted_the_profile():
    graph, costs, placements = _problem(np.random.default_rng(0))
    truth = calibrate.apply_calibration(costs, TRUE)
    measured_s = _serial_s(graph, truth, placements)
    found = _fit(graph, costs, placements[:100], measured_s[:100])
    predicted_s = _serial_s(graph, calibrate.apply_calibration(costs, found), placements)
    before = np.abs(_serial_s(graph, costs, placements) / measured_s - 1)[100:]
    after = np.abs(predicted_s / measured_s - 1)[100:]
    assert np.median(before) > 0.02
    assert np.median(after) < np.median(before) / 5
    np.testing.assert_allclose(found.compute, TRUE.compute, rtol=0.03)


def test_recovers_what_distorted_the_profile_of_devices_that_overlap():
    """What is critical depends on the costs, so that it is fitted in rounds."""
    graph, costs, placements = _problem(np.random.default_rng(0))
    problem = helpers.as_problem(graph, costs, "makespan")
    placements, num_fitted = placements[:90], 60
    ran = [segments.cut(problem, placement) for placement in placements]

    def latency_s(costs: CostModel) -> np.ndarray:
        there = problem._replace(costs=costs)
        pairs = zip(placements, ran, strict=True)
        return np.array([segments.schedule(there, p, cut).latency_s for p, cut in pairs])

    terms = [latency_terms.prepare(problem, placement) for placement in placements[:num_fitted]]
    measured_s = latency_s(calibrate.apply_calibration(costs, TRUE))

    def error(rounds: int) -> tuple[float, calibrate.Calibration]:
        found = calibrate.fit_posterior(costs, terms, measured_s[:num_fitted], rounds=rounds).mode
        predicted_s = latency_s(calibrate.apply_calibration(costs, found))
        return float(np.median(np.abs(predicted_s / measured_s - 1)[num_fitted:])), found

    before = np.median(np.abs(latency_s(costs) / measured_s - 1)[num_fitted:])
    (once, _), (after, found) = error(1), error(8)
    assert before > 0.02
    assert after < before / 5
    assert after <= once
    np.testing.assert_allclose(found.compute, TRUE.compute, rtol=0.03)


def test_every_round_asks_for_the_terms_at_the_costs_so_far():
    graph, costs, placements = _problem(np.random.default_rng(5))
    measured_s = 2 * _serial_s(graph, costs, placements[:20])
    seen = []

    def first(at: CostModel) -> calibrate.Terms:
        seen.append(at)
        return calibrate.serial_terms(graph, costs, placements[0])

    terms = [first, *_serial(graph, costs, placements[1:20])]
    found = calibrate.fit_posterior(costs, terms, measured_s, rounds=3).mode
    once = calibrate.fit_posterior(costs, terms, measured_s).mode
    assert len(seen) == 3 + 1
    for name in ("compute_s", "fusion_loss_s", "transfer_latency_s", "transfer_s_per_byte"):
        np.testing.assert_allclose(getattr(seen[0], name), getattr(costs, name), rtol=1e-6)
        np.testing.assert_array_equal(
            getattr(seen[1], name), getattr(calibrate.apply_calibration(costs, once), name)
        )
    for one, other in zip(found, once, strict=True):  # of terms that stay the same
        np.testing.assert_allclose(one, other)


def test_without_measurements_the_profile_stands():
    graph, costs, placements = _problem(np.random.default_rng(1))
    found = _fit(graph, costs, placements[:0], np.zeros(0))
    calibrated = calibrate.apply_calibration(costs, found)
    np.testing.assert_allclose(
        _serial_s(graph, calibrated, placements), _serial_s(graph, costs, placements), rtol=1e-5
    )


def test_what_placements_cannot_tell_stays_near_the_profile():
    """Single devices say nothing of transfers."""
    graph, costs, _ = _problem(np.random.default_rng(2))
    singles = np.tile([[0], [1]], (1, graph.num_ops)).astype(np.int32)
    measured_s = _serial_s(graph, costs, singles) * [1.2, 0.8]
    found = _fit(graph, costs, singles, measured_s)
    np.testing.assert_allclose(found.latency_s, costs.transfer_latency_s, atol=1e-12)
    np.testing.assert_allclose(found.s_per_byte, costs.transfer_s_per_byte, atol=1e-16)
    assert found.compute == pytest.approx([1.2, 0.8], rel=0.02)


def test_no_coefficient_is_negative():
    graph, costs, placements = _problem(np.random.default_rng(3))
    slow_s = _serial_s(graph, costs, placements[:2])
    found = _fit(graph, costs, placements[:2], slow_s * [0.01, 30.0])
    for name, value in found._asdict().items():
        assert np.all(np.asarray(value) >= 0), name


def test_unfused_edges_and_the_diagonal_stay_free():
    _, costs, _ = _problem(np.random.default_rng(4))
    calibrated = calibrate.apply_calibration(costs, TRUE)
    np.testing.assert_array_equal(calibrated.fusion_loss_s > 0, costs.fusion_loss_s > 0)
    assert (np.diag(calibrated.transfer_latency_s) == 0).all()
    assert np.isinf(
        calibrate.apply_calibration(costs._replace(compute_s=costs.compute_s + np.inf), TRUE)[0]
    ).all()


def test_a_device_and_a_kind_of_operation_are_told_apart():
    graph, costs, placements = _problem(np.random.default_rng(6))
    kind = calibrate.classify_ops(graph, costs)
    factors = np.tile([[2.0], [0.5]], (1, calibrate.NUM_KINDS))
    factors[1, 2] = 0.8
    truth = TRUE._replace(compute=factors)
    measured_s = _serial_s(graph, calibrate.apply_calibration(costs, truth, kind), placements)[:100]
    terms = _serial(graph, costs, placements[:100], kind)
    found = calibrate.fit_posterior(costs, terms, measured_s, kind=kind, error=None)
    np.testing.assert_allclose(found.mode.compute, factors, rtol=0.05)
    assert found.error < calibrate.MODEL_ERROR


def test_kinds_have_like_operations_and_about_the_same_share_of_the_time():
    graph, costs, _ = _problem(np.random.default_rng(7))
    kind = calibrate.classify_ops(graph, costs)
    mean_s = costs.compute_s.mean(axis=1)
    shares = np.bincount(kind, mean_s, calibrate.NUM_KINDS) / mean_s.sum()
    largest = (mean_s / mean_s.sum()).max()
    np.testing.assert_allclose(shares, 1 / calibrate.NUM_KINDS, atol=largest)
    for op_type in set(graph.op_types):
        of_type = np.flatnonzero(np.array(graph.op_types) == op_type)
        assert (np.diff(kind[of_type][np.argsort(mean_s[of_type], kind="stable")]) >= 0).all()


def test_measurements_narrow_what_is_drawn():
    graph, costs, placements = _problem(np.random.default_rng(8))
    truth = calibrate.apply_calibration(costs, TRUE)
    measured_s = _serial_s(graph, truth, placements)
    spreads = []
    for count in (2, 10, 50):
        found = calibrate.fit_posterior(
            costs, _serial(graph, costs, placements[:count]), measured_s[:count]
        )
        rng = np.random.default_rng(0)
        drawn_s = [
            _serial_s(graph, calibrate.apply_calibration(costs, found.draw(rng)), placements[100:])
            for _ in range(40)
        ]
        spreads.append(np.mean(np.std(drawn_s, axis=0) / measured_s[100:]))
    assert spreads[0] > 1.5 * spreads[1] > 1.5**2 * spreads[2]


def test_draws_scatter_as_measurements_do_around_what_they_are_drawn_from():
    """With as many noisy measurements as make the noise known, its estimate is that noise."""
    graph, costs, placements = _problem(np.random.default_rng(9))
    rng = np.random.default_rng(1)
    exact_s = _serial_s(graph, costs, placements)
    noisy_s = exact_s * (1 + 0.1 * rng.standard_normal(len(placements)))
    terms = _serial(graph, costs, placements)
    found = calibrate.fit_posterior(costs, terms, noisy_s, rounds=3, error=None)
    assert found.error == pytest.approx(0.1, rel=0.25)
    drawn = [found.draw(rng) for _ in range(200)]
    for draw in drawn:
        for name, value in draw._asdict().items():
            assert np.all(np.asarray(value) >= 0), name
    factors = np.array([draw.compute for draw in drawn])
    assert (np.abs(factors.mean(axis=0) - found.mode.compute) < 0.3 * factors.std(axis=0)).all()
    assert (np.abs(found.mode.compute - 1) < 4 * factors.std(axis=0)).all()


def test_a_calibration_is_kept_where_placements_that_it_has_not_seen_gain_by_it():
    graph, costs, placements = _problem(np.random.default_rng(10))
    measured_s = _serial_s(graph, calibrate.apply_calibration(costs, TRUE), placements)[:40].astype(
        float
    )
    terms = _serial(graph, costs, placements[:40])
    found = calibrate.fit_if_better(costs, terms, measured_s)
    assert found is not None
    fitted = calibrate.fit_posterior(costs, terms, measured_s).mode
    for one, other in zip(found, fitted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [0, 3, 40])
def test_where_a_profile_is_right_noise_does_not_change_it(count):
    kept = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        graph, costs, placements = _problem(rng)
        exact_s = _serial_s(graph, costs, placements)[:count].astype(float)
        noisy_s = exact_s * (1 + 0.05 * rng.standard_normal(count))
        terms = _serial(graph, costs, placements[:count])
        kept.append(calibrate.fit_if_better(costs, terms, noisy_s) is None)
    assert sum(kept) >= 7  # a standard error is exceeded by chance, now and then


def test_survives_json():
    again = calibrate.from_json(json.loads(json.dumps(calibrate.to_json(TRUE))))
    for name in TRUE._fields:
        np.testing.assert_array_equal(getattr(again, name), getattr(TRUE, name))
