"""The fastest single device is what ratios are to, on outcomes given by hand."""

import math

import pytest

from placement.runtime.measurement import baseline
from placement.runtime.measurement.request import Candidate, Failure, Interval, Measurement

A, B, MIXED = (Candidate({"op": name}, ()) for name in ("A", "B", "mixed"))


class Sessions:
    """Answers each request with the next of some latencies by name; None is a failure."""

    def __init__(self, *sessions: dict[str, float | None]) -> None:
        self.sessions = list(sessions)
        self.asked: list[list[str]] = []

    def ask(self, request):
        names = [candidate.affinity["op"] for candidate in request.candidates]
        self.asked.append(names)
        latencies_s = self.sessions.pop(0)
        first_s = latencies_s[names[0]] or math.nan
        return [self._outcome(latencies_s[name], first_s) for name in names]

    def _outcome(self, seconds, first_s):
        if seconds is None:
            return Failure("infer", "it broke")
        ratio = seconds / first_s
        spread = 0.0 if seconds == first_s else 0.02
        latency = Interval(seconds, seconds, seconds, 20)
        paired = Interval(ratio, ratio - spread, ratio + spread, 20)
        return Measurement(latency, paired, 1, 0.0, 1, True, (), 1.0, 0.0, 0.0, 1.0, 0.1)


def measured(sessions: Sessions) -> baseline.Outcomes:
    order = baseline.rank(sessions, [A, B], 1.0)
    return baseline.measure(sessions, [A, B], [MIXED], order, min_rounds=6, seconds=1.0)


def ratio(outcome: baseline.Outcome) -> float:
    assert isinstance(outcome, Measurement)
    return outcome.ratio.median


def test_ratios_are_to_the_device_that_is_measured_as_the_fastest():
    sessions = Sessions({"A": 2.0, "B": 1.0}, {"A": 2.0, "B": 1.0, "mixed": 0.5})
    found = measured(sessions)
    assert sessions.asked == [["A", "B"], ["B", "A", "mixed"]]
    assert found.order == (1, 0)
    assert [ratio(each) for each in found.singles + found.others] == [2.0, 1.0, 0.5]


def test_the_session_is_repeated_where_another_device_turns_out_to_be_faster():
    last = {"A": 2.0, "B": 1.0, "mixed": 0.5}
    sessions = Sessions({"A": 1.0, "B": 1.1}, last, last)
    found = measured(sessions)
    assert sessions.asked[1:] == [["A", "B", "mixed"], ["B", "A", "mixed"]]
    assert ratio(found.others[0]) == 0.5


def test_a_difference_within_the_interval_repeats_nothing():
    sessions = Sessions({"A": 1.0, "B": 1.1}, {"A": 1.0, "B": 0.99, "mixed": 0.5})
    assert measured(sessions).order == (0, 1)


@pytest.mark.parametrize("broken", [("A",), ("A", "B")])
def test_a_device_that_fails_is_the_baseline_only_if_all_fail(broken):
    times = {"A": 1.0, "B": 2.0, "mixed": 0.5} | dict.fromkeys(broken)
    sessions = Sessions(times, times)
    found = measured(sessions)
    assert isinstance(found.singles[0], Failure)
    assert found.order == ((1, 0) if len(broken) == 1 else (0, 1))
    assert math.isnan(ratio(found.others[0])) == (len(broken) == 2)
