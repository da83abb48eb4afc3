"""Processor cores and threads, on every operating system that OpenVINO supports.

Linux binds a thread to a core and says on which cores a thread may run. Windows tells the cores of
a process; macOS tells only their number. Without `CAN_BIND_THREADS` no device has a core of its
own, and the system chooses where its thread runs.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import psutil

CAN_BIND_THREADS = hasattr(os, "sched_setaffinity")


def list_allowed_cores() -> list[int]:
    """Returns the cores that this process may use, ascending."""
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):
        return sorted(process.cpu_affinity())
    return list(range(psutil.cpu_count() or 1))


@contextlib.contextmanager
def filled_memory(byte: int) -> Iterator[None]:
    """Fills all memory that the block allocates with a byte; does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    perturb = -6  # M_PERTURB: the complement of the value fills new memory
    if mallopt is not None:
        mallopt(perturb, byte ^ 0xFF)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(perturb, 0)


def end_with_parent() -> None:
    """Makes Linux kill this process when its parent ends; elsewhere it does nothing."""
    if sys.platform == "linux":
        import signal

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
