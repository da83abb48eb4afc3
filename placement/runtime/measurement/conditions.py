"""The conditions of a measurement: how long it took, and how much else the processor did meanwhile.

Linux reports how long each core was busy and how long each process ran. The busy time of this
process's cores, less the time of the measuring processes, is other work: other processes, or the
time that another guest took from this virtual machine (`steal`). Both slow measurements down, some
of them many times.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

BUSY = 0.1  # share of the cores' time; the housekeeping of an idle machine takes a few hundredths
UNSTEADY = 1.5  # width of a median's 95% interval: its high end over its low end

_MIN_CORES_S = 0.3  # Linux counts in hundredths of a second


class Conditions(NamedTuple):
    """The conditions of all measurements of one kind."""

    seconds: float = 0.0
    other_work_s: float = 0.0  # time that other work had, summed over the cores
    cores_s: float = 0.0  # time of the cores; 0 if Linux does not report their work
    interval_width: float = 1.0  # median of the intervals' high over low ends, in the worst request
    left_out: tuple[str, ...] = ()  # descriptions of what the time limit left out

    def __add__(self, addend: "Conditions") -> "Conditions":  # type: ignore[override]
        return Conditions(
            self.seconds + addend.seconds,
            self.other_work_s + addend.other_work_s,
            self.cores_s + addend.cores_s,
            max(self.interval_width, addend.interval_width),
            tuple(dict.fromkeys(self.left_out + addend.left_out)),
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
            "left_out": list(self.left_out),
        }


class WorkClock:
    """Measures the work of the cores and of some processes from its creation on."""

    def __init__(self, pids: Iterable[int]):
        self._pids = tuple(pids)
        self._start_s = time.monotonic()
        self._start_work_s = self._read_work_s()

    def conditions(self) -> Conditions:
        """Returns the conditions since the creation; only the seconds if Linux reports no work."""
        seconds = time.monotonic() - self._start_s
        work_s = self._read_work_s()
        if work_s is None or self._start_work_s is None:
            return Conditions(seconds)
        cores_s, processes_s = (
            end_s - start_s for end_s, start_s in zip(work_s, self._start_work_s, strict=True)
        )
        num_cores = len(os.sched_getaffinity(0))
        return Conditions(seconds, max(0.0, cores_s - processes_s), seconds * num_cores)

    def _read_work_s(self) -> tuple[float, float] | None:
        """Reads the busy seconds of the usable cores, summed, and the seconds the processes ran.

        None if a file is missing or not as Linux writes it. Stolen time counts as busy.
        """
        with contextlib.suppress(OSError, ValueError, IndexError):
            core_names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            with open("/proc/stat") as file:
                rows = [line.split() for line in file]
            # user, nice, system, idle, iowait, irq, softirq, steal
            counts = [list(map(int, row[1:9])) for row in rows if row and row[0] in core_names]
            if not any(map(any, counts)):
                return None
            cores_ticks = sum(sum(row) - row[3] - row[4] for row in counts)
            processes_ticks = 0
            for pid in self._pids:
                with open(f"/proc/{pid}/stat") as file:
                    # The process's name, in brackets, may contain blanks.
                    fields = file.read().rpartition(")")[2].split()
                processes_ticks += int(fields[11]) + int(fields[12])  # utime, stime
            ticks_per_s = os.sysconf("SC_CLK_TCK")
            return cores_ticks / ticks_per_s, processes_ticks / ticks_per_s
        return None


def median_width(intervals: Sequence[tuple[float, float]]) -> float:
    """Returns the median of high / low over intervals (low, high); 1 if there are none."""
    return float(np.median([high / low for low, high in intervals if low > 0] or [1.0]))
