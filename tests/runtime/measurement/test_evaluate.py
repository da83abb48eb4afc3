"""Races of measured placements, on a machine that drifts and disturbs."""

from collections import Counter

import numpy as np

from placement.runtime.devices import resolve
from placement.runtime.measurement import evaluate
from placement.runtime.measurement.request import Candidate, Measure, Measurement, median_interval

HOST = resolve("host")
NUM_OPS, SLOWER = 8, 0.04  # each operation on the second device takes so much longer


class NoisyMeasurer:
    """Its latencies drift by 5% from call to call; every inference is 5% off."""

    devices, fingerprint = HOST, "noisy"

    def __init__(self, seed: int):
        self.rng, self.counts = np.random.default_rng(seed), Counter[int]()

    def measure_chunks(self, request: Measure):
        drift = np.exp(self.rng.normal(0, 0.05))
        names = [set(candidate.affinity.items()) for candidate in request.candidates]
        slow_ops = [sum(device == HOST[1].name for _, device in pairs) for pairs in names]
        self.counts.update(slow_ops)
        seconds = drift * (1 + SLOWER * np.array(slow_ops)[:, None])
        # Of the race's rounds everything but the fastest candidate takes part in two.
        noisy_s = seconds * np.exp(self.rng.normal(0, 0.05, (len(seconds), 8)))
        fastest = 1 + noisy_s[1:, :2].mean(axis=1).argmin() if len(seconds) > 1 else 0
        yield {
            i: Measurement(
                latency=median_interval(row if i in (0, fastest) else row[:2]),
                ratio=median_interval((row / noisy_s[0])[: None if i in (0, fastest) else 2]),
                submodels=1,
                output_error=0.0,
                tolerance=1.0,
                compile_s=0.0,
            )
            for i, row in enumerate(noisy_s)
        }


def make_evaluate(measurer: NoisyMeasurer) -> evaluate.MeasuredEvaluate:
    def candidate(placement: np.ndarray) -> Candidate:
        return Candidate({f"op_{i}": HOST[d].name for i, d in enumerate(placement)}, HOST)

    start = np.ones(NUM_OPS, np.int32)
    return evaluate.MeasuredEvaluate(measurer, start, candidate, evaluate.MeasurementCache())


def test_best_is_no_lucky_outlier():
    """A search by moves of one or two operations, eight placements a step."""
    errors, slow_ops = [], []
    for seed in range(10):
        measurer = NoisyMeasurer(seed)
        measured, rng = make_evaluate(measurer), np.random.default_rng(seed)
        best = np.ones(NUM_OPS, np.int32)
        known = best[None]
        for _ in range(25):
            moves = rng.random((8, NUM_OPS)) < 1.5 / NUM_OPS
            known = np.unique(np.concatenate([known, best ^ moves]), axis=0)
            seconds = measured(known)
            best = known[seconds.argmin()]
        errors.append(seconds.min() / (1 + SLOWER * best.sum()) - 1)
        slow_ops.append(best.sum())
        # Only the placements near the best are measured more than once.
        assert measured.num_measurements == len(known) - 1
        assert max(measurer.counts[i] for i in range(4, NUM_OPS)) < 100
    assert np.abs(errors).mean() < 0.05, errors
    assert np.mean(slow_ops) < 1.5, slow_ops
