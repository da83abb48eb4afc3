"""Calls of solvers in C++ from a second thread, so that they can be stopped.

While such a solver computes in the main thread, Python handles no signal, not even Ctrl-C.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from placement.solvers.limits import SearchLimits

T = TypeVar("T")
_POLL_INTERVAL_S = 0.05


def call(
    solve: Callable[[], T], limits: SearchLimits, cancel: Callable[[], None] | None = None
) -> T | None:
    """Calls `solve` in a second thread and waits for it.

    Args:
      solve: releases Python's lock while it computes, and without `cancel` keeps the time limit.
      limits: polled for a stop, and with `cancel` for their end, of whatever clock they read.
      cancel: makes `solve` return soon. Without it, a stopped `solve` runs on in the background
        until its time limit.

    Returns:
      The result of `solve`; None if it was stopped and cannot be cancelled.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(solve())
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(min(_POLL_INTERVAL_S, max(1e-3, limits.remaining_s())))
        if cancel is not None and limits.is_over():
            cancel()
        elif limits.is_stopped():
            return None
    if errors:
        raise errors[0]
    return results[0]
