"""What the threads of this process do while something is inferred."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_THREAD_WINDOW_S = 0.06


class Read(NamedTuple):
    """How long a thread had run or waited for a core, and when that was read."""

    spent_ns: int
    at_ns: int


def shares(request: Any, alive: Callable[[], None]) -> dict[str, float]:
    """Returns for each thread the share of the time, 1 at most, in which it runs or waits
    for a core while `request` is inferred.

    Waiting counts, because on a busy machine two threads that share a core would pass for one.
    """
    before, start, count = _times(), time.perf_counter(), 0
    while count < 3 or time.perf_counter() - start < _THREAD_WINDOW_S:
        alive()
        request.infer()
        count += 1
    return _between(before, _times())


def share(before: Read, after: Read) -> float:
    """Returns the share of the time between two reads in which a thread ran or waited for a core.

    Each thread has a clock of its own: where threads are many, reading all of them takes long, and
    they run meanwhile. The system books a wait when it ends, though it may have begun before the
    first read, so that the quotient alone can exceed 1.
    """
    spent = (after.spent_ns - before.spent_ns) / max(1, after.at_ns - before.at_ns)
    return min(1.0, max(0.0, spent))


def at_once(shares: Iterable[float]) -> float:
    """Returns how many threads of these shares compute at once: no more than there are cores.

    More of them than cores can only wait for one another.
    """
    return min(sum(shares), float(len(os.sched_getaffinity(0))))


def settle(alive: Callable[[], None]) -> None:
    """Waits, 2 s at most, until no thread spins that a compilation or another model left.

    They yield while they spin, which on a busy machine takes them long.
    """
    start, busy = time.perf_counter(), True
    while busy and time.perf_counter() - start < 2.0:
        alive()
        before = _times()
        time.sleep(0.01)
        own = str(threading.get_native_id())  # reads the times: long, where threads are many
        found = _between(before, _times())
        busy = sum(share for thread, share in found.items() if thread != own) > 0.2


def _between(before: dict[str, Read], after: dict[str, Read]) -> dict[str, float]:
    """The share of each thread; of one that began between the reads, since the first of them."""
    begun = Read(0, min(read.at_ns for read in before.values()))
    return {thread: share(before.get(thread, begun), read) for thread, read in after.items()}


def _times() -> dict[str, Read]:
    """Reads how long each thread of this process ran or waited for a core."""
    times = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                running, waiting, _ = map(int, file.read().split())
        except OSError:  # it ended
            continue
        times[thread] = Read(running + waiting, time.perf_counter_ns())
    return times
