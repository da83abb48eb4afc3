"""Solvers in C++, which look at no clock of ours: run beside, so that a stop reaches them.

While one computes in the main thread Python handles no signal, Ctrl-C among them.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from placement.solvers.limits import SearchLimits

T = TypeVar("T")
_LOOK_S = 0.05  # between two looks for a stop


def call(
    solve: Callable[[], T], limits: SearchLimits, cancel: Callable[[], None] | None = None
) -> T | None:
    """Calls `solve`, which keeps the time limit itself, in another thread.

    Args:
      solve: releases Python's lock while it computes.
      limits: whose stop is looked for.
      cancel: makes `solve` return soon. Without it a stopped one is left to its time limit.

    Returns:
      What `solve` returns; None if it was stopped and cannot be cancelled.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(solve())
        except BaseException as error:  # raised again where the caller waits
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_S)
        if limits.stopped():
            if cancel is None:
                return None
            cancel()
    if errors:
        raise errors[0]
    return results[0]
