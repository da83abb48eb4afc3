"""What a solver may spend: the one place of the pure part that reads a clock.

A solver that is cut off returns the best that it has, so the clock decides how much is searched and
nothing else: with the same seed, a search that ends by itself finds the same. A search tells its
incumbent, the best placement so far, as it finds it: who watches has it whatever ends the search.
"""

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

# (placements evaluated so far, the objective's value of the best of them, that one int [N], other
# numbers that the search has, by name); inf and None while none can run
Observe = Callable[[int, float, np.ndarray | None, Mapping[str, float]], None]
NO_NUMBERS: Mapping[str, float] = MappingProxyType({})


def unobserved(
    evaluations: int, best_s: float, placement: np.ndarray | None, numbers: Mapping[str, float]
) -> None:
    """Ignores what it is told: nobody watches."""


class SearchLimits:
    """Seconds from now on, and how many placements a search may evaluate."""

    def __init__(
        self,
        time_limit_s: float,
        budget: int,
        observe: Observe = unobserved,
        stop: Callable[[], bool] = lambda: False,
    ):
        """Begins now.

        Args:
          time_limit_s: seconds.
          budget: placements.
          observe: told of every step.
          stop: whether the search is to end before its time, asked as often as the clock is read.
        """
        self._began = time.monotonic()
        self._ends = self._began + time_limit_s
        self._observe = observe
        self._stop = stop
        self._best_s = math.inf
        self._best: np.ndarray | None = None
        self.budget = budget

    def part(self, share: float, budget: int, evaluations: int = 0) -> "SearchLimits":
        """Returns limits of a search within: a share of the seconds left, so many evaluations.

        Args:
          share: of the seconds.
          budget: placements.
          evaluations: made before, which are added to those that the search tells.
        """

        def tell(
            more: int, value_s: float, placement: np.ndarray | None, numbers: Mapping[str, float]
        ) -> None:
            self.tell(evaluations + more, value_s, placement, numbers)

        return SearchLimits(share * self.left_s(), min(budget, self.budget), tell, self._stop)

    def tell(
        self,
        evaluations: int,
        value_s: float,
        placement: np.ndarray | None,
        numbers: Mapping[str, float] = NO_NUMBERS,
    ) -> None:
        """Tells whoever watches how far the search is; called once a step, whatever is new.

        Args:
          evaluations: placements evaluated so far.
          value_s: of the best placement of the step, or of all.
          placement: that one int [N]; None if none can run.
          numbers: others, by name, to be logged.
        """
        if value_s < self._best_s:
            self._best_s, self._best = value_s, placement
        self._observe(evaluations, self._best_s, self._best, numbers)

    def stopped(self) -> bool:
        """Whether the search is to end before its time."""
        return self._stop()

    def left_s(self) -> float:
        """Returns seconds that are left, 0 at least."""
        return 0.0 if self.stopped() else max(0.0, self._ends - time.monotonic())

    def spent_s(self) -> float:
        """Returns seconds since the beginning."""
        return time.monotonic() - self._began

    def over(self) -> bool:
        """Whether no time is left."""
        return self.left_s() <= 0
