"""Ratios are to the single device that is measured as the fastest, on latencies given by hand."""

import math

import pytest

from placement.runtime.measurement import baseline
from placement.runtime.measurement.request import Candidate, Failure, Interval, Measurement

A, B, MIXED = (Candidate({"op": name}, ()) for name in ("A", "B", "mixed"))


class Timed:
    """Answers with ratios to all baselines of latencies by name; None is a failure."""

    def __init__(self, **latencies_s: float | None) -> None:
        self.latencies_s = latencies_s

    def ask(self, request):
        known = [self.latencies_s[candidate.affinity["op"]] for candidate in request.candidates]
        baselines_s = [seconds or math.nan for seconds in known[: request.num_baselines]]
        return [self._outcome(seconds, baselines_s) for seconds in known]

    def _outcome(self, seconds, baselines_s):
        if seconds is None:
            return Failure("infer", "it broke")
        ratios = tuple(Interval(*3 * (seconds / each,), 20) for each in baselines_s)
        latency = Interval(*3 * (seconds,), 20)
        return Measurement(latency, ratios[0], 1, 0.0, 1.0, 0.1, ratios)


def measured(**latencies_s: float | None) -> list[baseline.Outcome]:
    return baseline.measure(Timed(**latencies_s), [A, B], [MIXED], seconds=1.0)


@pytest.mark.parametrize(("fastest", "slowest"), [("A", "B"), ("B", "A")])
def test_ratios_are_to_the_fastest(fastest, slowest):
    found = measured(**{fastest: 1.0, slowest: 2.0, "mixed": 0.5})
    ratios = dict(zip("ABm", map(baseline.ratio_or_latency, found), strict=True))
    assert ratios == {fastest: 1.0, slowest: 2.0, "m": 0.5}


def test_failed_devices_are_no_baseline():
    found = measured(A=None, B=2.0, mixed=1.0)
    assert [*map(baseline.ratio_or_latency, found)] == [math.inf, 1.0, 0.5]
    *_, mixed = measured(A=None, B=None, mixed=0.25)
    assert isinstance(mixed, Measurement)
    assert math.isnan(mixed.ratio.median)
    assert baseline.ratio_or_latency(mixed) == 0.25  # its latency


def test_no_devices_mean_no_ratios():
    timed = Timed(A=1.0, B=None)
    first, second = baseline.measure(timed, [], [A, B], seconds=1.0)
    assert math.isnan(first.ratio.median)
    assert baseline.ratio_or_latency(first) == 1.0  # its latency
    assert isinstance(second, Failure)
