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
      solve: releases Python's lock while it computes, and keeps the time limit itself.
      limits: polled for a stop.
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
        thread.join(_POLL_INTERVAL_S)
        if limits.is_stopped():
            if cancel is None:
                return None
            cancel()
    if errors:
        raise errors[0]
    return results[0]
