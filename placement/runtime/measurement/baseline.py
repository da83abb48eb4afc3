"""Measures candidates with single devices, with ratios to the fastest single device.

The device that is predicted to be the fastest need not be the fastest. So every round times every
single device, and the ratios to the one that turns out to be the fastest count. Every ratio
compares two latencies of the same rounds.
"""

import math
from collections.abc import Sequence

from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    MIN_SAMPLES,
    Candidate,
    Failure,
    Interval,
    Measure,
    Measurement,
)

Outcome = Measurement | Failure


def measure(
    measurer: Measurer,
    singles: Sequence[Candidate],
    candidates: Sequence[Candidate],
    *,
    seconds: float,
    compile_s: float = math.inf,
) -> list[Outcome]:
    """Measures all candidates in the same rounds.

    Args:
      measurer: measures the model.
      singles: single devices, those with enough memory.
      candidates: the candidates to compare with them.
      seconds: the most time for timing.
      compile_s: time for compiling. Candidates are compiled in order and fail once it is over.

    Returns:
      The outcomes of the single devices and of the candidates. The ratios are to the best single
      device, whose ratio is 1, or nan without single devices.
    """
    num_singles = len(singles)
    request = Measure(
        [*singles, *candidates],
        MIN_SAMPLES,
        seconds,
        compile_s=compile_s,
        num_baselines=max(1, num_singles),
    )
    outcomes = measurer.ask(request)
    measured_singles = [o for o in outcomes[:num_singles] if isinstance(o, Measurement)]

    def least_ratio(single: int) -> float:
        """Returns the smallest ratio of any single device to this one; 1 for the fastest."""
        if isinstance(outcomes[single], Failure):
            return -math.inf
        return min(outcome.ratios[single].median for outcome in measured_singles)

    best = max(range(num_singles), key=least_ratio, default=0)
    no_ratio = Interval(math.nan, math.nan, math.nan, 0)
    return [
        outcome._replace(ratio=outcome.ratios[best] if singles else no_ratio)
        if isinstance(outcome, Measurement)
        else outcome
        for outcome in outcomes
    ]


def ratio_or_latency(outcome: Outcome) -> float:
    """Returns the ratio to the baseline, or the latency if that failed; inf for a failure."""
    if isinstance(outcome, Failure):
        return math.inf
    median = outcome.ratio.median
    return outcome.latency.median if math.isnan(median) else median
