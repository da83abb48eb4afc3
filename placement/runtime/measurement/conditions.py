"""The conditions of a measurement: how long it took, and how much else the processor did meanwhile.

The system reports how long each core was busy and how long each process ran. The busy time of this
process's cores, less the time of the measuring processes, is other work: other processes, or the
time that another guest took from this virtual machine (Linux's `steal`). Both slow measurements
down, some of them many times.
"""

import contextlib
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import psutil

from placement.runtime import processors

BUSY = 0.1  # share of the cores' time; the housekeeping of an idle machine takes a few hundredths
UNSTEADY = 1.5  # width of a median's 95% interval: its high end over its low end

_MIN_CORES_S = 0.3  # systems count in hundredths of a second
# Linux counts the time of guests in that of users too.
_NO_WORK = {"idle", "iowait", "guest", "guest_nice"}


class Conditions(NamedTuple):
    """The conditions of all measurements of one kind."""

    seconds: float = 0.0
    other_work_s: float = 0.0  # time that other work had, summed over the cores
    cores_s: float = 0.0  # time of the cores; 0 if the system does not report their work
    interval_width: float = 1.0  # median of the intervals' high over low ends, in the worst request

    def __add__(self, addend: "Conditions") -> "Conditions":  # type: ignore[override]
        return Conditions(
            self.seconds + addend.seconds,
            self.other_work_s + addend.other_work_s,
            self.cores_s + addend.cores_s,
            max(self.interval_width, addend.interval_width),
        )

    @property
    def other_work_share(self) -> float:
        """The share of the cores' time that other work had; nan if it is not known."""
        return self.other_work_s / self.cores_s if self.cores_s >= _MIN_CORES_S else np.nan

    def describe_disturbances(self) -> str:
        """Describes how the machine was disturbed; '' if no disturbance is known."""
        disturbances = []
        if self.other_work_share > BUSY:
            share = f"{self.other_work_share:.0%}"
            disturbances.append(f"other programs took {share} of the processor's time")
        if self.interval_width > UNSTEADY:
            disturbances.append(
                f"half of the 95% intervals are wider than a factor of {self.interval_width:.1f}"
            )
        return ", and ".join(disturbances)

    def to_json(self) -> dict[str, Any]:
        """Returns JSON-able data."""
        return {
            "seconds": self.seconds,
            "others_share": self.other_work_share,
            "interval_width": self.interval_width,
            "busy": self.describe_disturbances(),
        }


class WorkClock:
    """Measures the work of the cores and of some processes from its creation on."""

    def __init__(self, pids: Iterable[int]):
        self._pids = tuple(pids)
        self._start_s = time.monotonic()
        self._start_work_s = self._read_work_s()

    def conditions(self) -> Conditions:
        """Returns the conditions since the creation; only the seconds if no work is reported."""
        seconds = time.monotonic() - self._start_s
        work_s = self._read_work_s()
        if work_s is None or self._start_work_s is None:
            return Conditions(seconds)
        cores_s, processes_s = (
            end_s - start_s for end_s, start_s in zip(work_s, self._start_work_s, strict=True)
        )
        num_cores = len(processors.list_allowed_cores())
        return Conditions(seconds, max(0.0, cores_s - processes_s), seconds * num_cores)

    def _read_work_s(self) -> tuple[float, float] | None:
        """Reads the busy seconds of the usable cores, summed, and the seconds the processes ran.

        None if the system reports no work, or a process has ended. Stolen time counts as busy.
        """
        with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
            all_cores = psutil.cpu_times(percpu=True)
            times = [all_cores[core]._asdict() for core in processors.list_allowed_cores()]
            if not any(any(core_times.values()) for core_times in times):
                return None
            cores_s = sum(
                sum(seconds for kind, seconds in core_times.items() if kind not in _NO_WORK)
                for core_times in times
            )
            processes = [psutil.Process(pid).cpu_times() for pid in self._pids]
            return cores_s, sum(process.user + process.system for process in processes)
        return None
