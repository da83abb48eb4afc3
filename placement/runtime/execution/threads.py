"""Measurement of how busy this process's threads are, from the system's statistics."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import psutil

from placement.runtime import processors

_TASKS = "/proc/self/task"  # a folder for each thread, on Linux
_HAS_SCHEDULER_STATISTICS = os.path.isdir(_TASKS)
# Other systems count in steps of up to 16 ms, and do not count the waiting.
_MEASURING_S = 0.06 if _HAS_SCHEDULER_STATISTICS else 0.5
_PAUSE_S = 0.01 if _HAS_SCHEDULER_STATISTICS else 0.1


class ThreadTime(NamedTuple):
    """A reading of how long a thread had run or waited for a core."""

    busy_ns: int
    read_ns: int  # when this was read


def measure_busy_shares(request: Any, alive: Callable[[], None]) -> dict[str, float]:
    """Returns for each thread the share of time, at most 1, in which it runs or waits for a core.

    Waiting counts, because on a busy machine two threads that share a core would otherwise look
    like one.

    Args:
      request: inferred again and again during the measurement, at least 3 times.
      alive: called before every inference.
    """
    first, begin_s, num_inferences = _read_thread_times(), time.perf_counter(), 0
    while num_inferences < 3 or time.perf_counter() - begin_s < _MEASURING_S:
        alive()
        request.infer()
        num_inferences += 1
    return busy_shares(first, _read_thread_times())


def busy_shares(first: dict[str, ThreadTime], last: dict[str, ThreadTime]) -> dict[str, float]:
    """Returns the share of the time between two readings in which each thread ran or waited.

    A new thread counts from the first reading of all. Each reading has its own time stamp, because
    reading many threads takes long and they run meanwhile.
    """
    begin = ThreadTime(0, min(reading.read_ns for reading in first.values()))
    shares = {}
    for thread, reading in last.items():
        before = first.get(thread, begin)
        share = (reading.busy_ns - before.busy_ns) / max(1, reading.read_ns - before.read_ns)
        # The system books a wait when it ends, although it may have begun before the first reading,
        # and gives the number of a thread that has ended to another one.
        shares[thread] = min(1.0, max(0.0, share))
    return shares


def count_active_threads(shares: Iterable[float]) -> float:
    """Returns how many threads with these busy shares compute at once, at most one per core.

    More threads than cores can only wait for one another.
    """
    return min(sum(shares), float(len(processors.list_allowed_cores())))


def wait_until_idle(alive: Callable[[], None]) -> None:
    """Waits, at most 2 s, until the threads of a compilation or another model stop spinning.

    They yield while they spin, so that on a busy machine this takes them long.

    Args:
      alive: called every 10 ms, or every 100 ms without the statistics of Linux.
    """
    begin_s, is_busy = time.perf_counter(), True
    while is_busy and time.perf_counter() - begin_s < 2.0:
        alive()
        first = _read_thread_times()
        time.sleep(_PAUSE_S)
        shares = busy_shares(first, _read_thread_times())
        # This thread itself is busy reading if there are many threads.
        shares.pop(str(threading.get_native_id()), None)
        is_busy = sum(shares.values()) > 0.2


def _read_thread_times() -> dict[str, ThreadTime]:
    """Reads how long each thread of this process has run or waited for a core, by thread id."""
    times = {}
    if not _HAS_SCHEDULER_STATISTICS:
        for reading in psutil.Process().threads():
            busy_ns = int((reading.user_time + reading.system_time) * 1e9)
            times[str(reading.id)] = ThreadTime(busy_ns, time.perf_counter_ns())
        return times
    for thread in os.listdir(_TASKS):
        try:
            with open(f"{_TASKS}/{thread}/schedstat") as file:
                running_ns, waiting_ns, _ = map(int, file.read().split())
        except OSError:  # the thread has ended
            continue
        times[thread] = ThreadTime(running_ns + waiting_ns, time.perf_counter_ns())
    return times
