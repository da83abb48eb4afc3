"""What the threads of this process do while something is inferred."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

_THREAD_WINDOW_S = 0.06


def shares(request: Any, beat: Callable[[], None]) -> dict[str, float]:
    """For each thread the share of the time in which it runs, or waits for a core, while `request`
    is inferred.

    Waiting counts, because on a busy machine two threads that share a core would pass for one.
    """
    before, start, count = _times(), time.perf_counter(), 0
    while count < 3 or time.perf_counter() - start < _THREAD_WINDOW_S:
        beat()
        request.infer()
        count += 1
    wall_ns = 1e9 * (time.perf_counter() - start)
    return {t: (spent - before.get(t, 0)) / wall_ns for t, spent in _times().items()}


def settle(beat: Callable[[], None]) -> None:
    """Waits, 2 s at most, until no thread spins that a compilation or another model left.

    They yield while they spin, which on a busy machine takes them long.
    """
    start, busy = time.perf_counter(), True
    while busy and time.perf_counter() - start < 2.0:
        beat()
        before, begin = _times(), time.perf_counter()
        time.sleep(0.01)
        own = str(threading.get_native_id())  # reads the times: long, where threads are many
        spent = sum(t - before.get(n, 0) for n, t in _times().items() if n != own)
        busy = spent / 1e9 > 0.2 * (time.perf_counter() - begin)


def _times() -> dict[str, int]:
    """Nanoseconds that each thread of this process ran or waited for a core."""
    times = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                running, waiting, _ = map(int, file.read().split())
        except OSError:  # it ended
            continue
        times[thread] = running + waiting
    return times
