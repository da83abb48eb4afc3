"""Measures candidates beside single devices, with ratios to the fastest of them as measured.

The device that is predicted to be the fastest need not be. So every single device is timed in each
round, and ratios to all of them are known; those to the fastest count. No ratio is made of two
latencies that were not taken in the same rounds.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Measure, Measurement

Outcome = Measurement | Failure


class Outcomes(NamedTuple):
    """The outcomes of all candidates; ratios are to the best single device, whose ratio is 1."""

    best: int  # index of the fastest single device; 0 if all failed
    singles: tuple[Outcome, ...]
    others: tuple[Outcome, ...]


def measure(
    measurer: Measurer,
    singles: Sequence[Candidate],
    others: Sequence[Candidate],
    *,
    min_rounds: int,
    seconds: float,
    compile_s: float = math.inf,
) -> Outcomes:
    """Measures everything in the same rounds.

    Args:
      measurer: of the model.
      singles: one or more devices, each alone.
      others: all other candidates.
      min_rounds: inferences of each candidate at least.
      seconds: of timing.
      compile_s: of compiling; the candidates are compiled in their order, and fail where no time is
        left.
    """
    count = len(singles)
    request = Measure(
        [*singles, *others], min_rounds, seconds, compile_s=compile_s, num_baselines=count
    )
    outcomes = measurer.ask(request)
    best = max(range(count), key=lambda i: _least_ratio(outcomes[:count], i))
    paired = [
        outcome._replace(ratio=outcome.ratios[best])
        if isinstance(outcome, Measurement)
        else outcome
        for outcome in outcomes
    ]
    return Outcomes(best, tuple(paired[:count]), tuple(paired[count:]))


def ratio(outcome: Outcome) -> float:
    """Returns the ratio to the baseline; the latency where that failed; inf of a failure."""
    if isinstance(outcome, Failure):
        return math.inf
    median = outcome.ratio.median
    return outcome.latency.median if math.isnan(median) else median


def _least_ratio(singles: Sequence[Outcome], number: int) -> float:
    """Returns the least ratio of any single device to this one: 1 of the fastest."""
    if isinstance(singles[number], Failure):
        return -math.inf
    known = [outcome for outcome in singles if isinstance(outcome, Measurement)]
    return min(outcome.ratios[number].median for outcome in known)
