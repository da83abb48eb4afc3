"""The limits of a search: the only part of the pure code that reads a clock.

A search that is cut off returns its best placement so far. So the clock decides only how much is
searched: with the same seed, a search that ends by itself returns the same result. A search reports
its incumbent, the best placement so far, when it finds it. Thus an observer has the incumbent
whatever ends the search.
"""

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

# (evaluations so far, best value so far, its placement int [K], further metrics by name); the value
# is inf and the placement None while no placement can run
Observe = Callable[[int, float, np.ndarray | None, Mapping[str, float]], None]
NO_METRICS: Mapping[str, float] = MappingProxyType({})
# Where searches start, see `placement.solvers.starts`: at the single devices and what heuristics
# find, or at the single devices alone.
START_KINDS = ("heuristics", "single")


class SearchLimits:
    """The time limit of a search, and the number of placements that it may evaluate."""

    def __init__(
        self,
        time_limit_s: float,
        budget: int,
        observe: Observe = lambda *step: None,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] | None = None,
        starts: str = "heuristics",
    ):
        """Starts the clock.

        Args:
          time_limit_s: seconds.
          budget: placements.
          observe: called after every step of the search.
          stop: whether the search should end before its time; called whenever the clock is read.
          clock: returns seconds, such as those of the processor (`time.process_time`), which other
            processes hardly change; by default those of the wall (`time.monotonic`).
          starts: one of `START_KINDS`.
        """
        self._clock = clock or time.monotonic
        self._start_s = self._clock()
        self._end_s = self._start_s + time_limit_s
        self._observe = observe
        self._stop = stop
        self._best_s = math.inf
        self._best: np.ndarray | None = None
        self.budget = budget
        self.starts = starts

    def take_share(self, share: float, budget: int, evaluations: int = 0) -> "SearchLimits":
        """Returns the limits of an inner search.

        Args:
          share: of the remaining seconds.
          budget: placements, at most those of this search.
          evaluations: made before, which are added to those that the inner search reports.
        """
        return SearchLimits(
            share * self.remaining_s(),
            min(budget, self.budget),
            lambda inner_evaluations, *step: self.report(evaluations + inner_evaluations, *step),
            self._stop,
            self._clock,
            self.starts,
        )

    def report(
        self,
        evaluations: int,
        value_s: float,
        placement: np.ndarray | None,
        numbers: Mapping[str, float] = NO_METRICS,
    ) -> None:
        """Reports the progress of the search; called once a step, also without a new incumbent.

        Args:
          evaluations: placements evaluated so far.
          value_s: of the best placement of the step, or of all.
          placement: that placement, int [K]; None if none can run.
          numbers: further metrics by name, to be logged.
        """
        if value_s < self._best_s:
            self._best_s, self._best = value_s, placement
        self._observe(evaluations, self._best_s, self._best, numbers)

    @property
    def incumbent(self) -> np.ndarray | None:
        """The best placement reported so far, int [K]; None while none that can run is known."""
        return self._best

    def is_stopped(self) -> bool:
        """Whether the search should end before its time."""
        return self._stop()

    def remaining_s(self) -> float:
        """Returns the remaining seconds, at least 0."""
        return 0.0 if self.is_stopped() else max(0.0, self._end_s - self._clock())

    def elapsed_s(self) -> float:
        """Returns the seconds since the start."""
        return self._clock() - self._start_s

    def extend(self, seconds: float) -> None:
        """Moves the end, for seconds that the limit excludes, such as those of compilation."""
        self._end_s += seconds

    def is_over(self) -> bool:
        """Whether no time remains."""
        return self.remaining_s() <= 0
