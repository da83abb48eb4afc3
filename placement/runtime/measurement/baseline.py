"""Measures candidates in the same rounds as the fastest single device, which their ratios are to.

The device that is predicted to be the fastest need not be. So the single devices are timed by
themselves first, and everything else is timed beside the one that this found. Where another single
device then turns out to be clearly faster, the session is repeated beside that one: no ratio is
made of two that were not taken in the same rounds.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    MIN_SAMPLES,
    Candidate,
    Failure,
    Measure,
    Measurement,
)

Outcome = Measurement | Failure
RANKING_SHARE = 0.25  # of the time for timing, to find the fastest single device


class Outcomes(NamedTuple):
    """What became of the candidates; ratios are to the first of `order`, whose own is 1."""

    order: tuple[int, ...]  # of the single devices, the fastest first
    singles: tuple[Outcome, ...]  # in the order in which they were given
    others: tuple[Outcome, ...]


def rank(measurer: Measurer, singles: Sequence[Candidate], seconds: float) -> tuple[int, ...]:
    """Times single devices; returns their indices, the fastest first and failures last."""
    if len(singles) < 2:
        return tuple(range(len(singles)))
    outcomes = measurer.ask(Measure(singles, MIN_SAMPLES, seconds))
    return tuple(sorted(range(len(singles)), key=lambda i: ratio(outcomes[i])))


def measure(
    measurer: Measurer,
    singles: Sequence[Candidate],
    others: Sequence[Candidate],
    order: Sequence[int],
    *,
    min_rounds: int,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> Outcomes:
    """Measures everything beside the fastest single device.

    Args:
      measurer: of the model.
      singles: one or more devices, each alone.
      others: all other candidates.
      order: indices of the single devices, as `rank` returns them.
      min_rounds: inferences of each candidate at least.
      seconds: of timing, in each session.
      say: called with what is being done.
    """
    order, count = list(order), len(singles)
    for _ in singles:
        say("placements beside the single devices")
        candidates = [*(singles[i] for i in order), *others]
        outcomes = measurer.ask(Measure(candidates, min_rounds, seconds))
        alone = dict(zip(order, outcomes, strict=False))
        measured = Outcomes(
            tuple(order), tuple(alone[i] for i in range(count)), tuple(outcomes[count:])
        )
        if not any(_is_faster_than_first(alone[i]) for i in order[1:]):
            break
        order.sort(key=lambda i: ratio(alone[i]))
    return measured


def ratio(outcome: Outcome) -> float:
    """Returns the ratio to the first candidate; the latency where that failed; inf of a failure."""
    if isinstance(outcome, Failure):
        return math.inf
    median = outcome.ratio.median
    return outcome.latency.median if math.isnan(median) else median


def _is_faster_than_first(outcome: Outcome) -> bool:
    """Returns whether a device is clearly faster than the first, or the first failed."""
    return isinstance(outcome, Measurement) and not outcome.ratio.high >= 1
