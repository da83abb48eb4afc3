"""What a solver may spend: the one place of the pure part that reads a clock.

A solver that is cut off returns the best that it has, so the clock decides how much is searched and
nothing else: with the same seed, a search that ends by itself finds the same.
"""

import time


class Allowance:
    """Seconds from now on, and how many placements a search may evaluate."""

    def __init__(self, time_limit_s: float, budget: int):
        self._began = time.monotonic()
        self._ends = self._began + time_limit_s
        self.budget = budget

    def left_s(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, self._ends - time.monotonic())

    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def over(self) -> bool:
        """Whether no time is left."""
        return self.left_s() <= 0
