"""What a solver may spend: the one place of the pure part that reads a clock.

A solver that is cut off returns the best that it has, so the clock decides how much is searched and
nothing else: with the same seed, a search that ends by itself finds the same.
"""

import math
import time
from collections.abc import Callable

# (placements evaluated so far, the objective's value of the best of them, inf if none can run)
Observe = Callable[[int, float], None]


class Allowance:
    """Seconds from now on, and how many placements a search may evaluate."""

    def __init__(
        self, time_limit_s: float, budget: int, observe: Observe = lambda evaluations, best_s: None
    ):
        self._began = time.monotonic()
        self._ends = self._began + time_limit_s
        self._observe = observe
        self._best_s = math.inf
        self.budget = budget

    def part(self, share: float, budget: int) -> "Allowance":
        """A share of the seconds that are left and so many evaluations, for a search within."""
        return Allowance(share * self.left_s(), min(budget, self.budget), self._observe)

    def tell(self, evaluations: int, value_s: float) -> None:
        """Tells whoever watches how far the search is; called once a step, whatever is new."""
        self._best_s = min(self._best_s, value_s)
        self._observe(evaluations, self._best_s)

    def left_s(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, self._ends - time.monotonic())

    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def over(self) -> bool:
        """Whether no time is left."""
        return self.left_s() <= 0
