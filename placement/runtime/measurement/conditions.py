"""Under what conditions something was measured: how long it took, and who else computed meanwhile.

The system tells how long each core was busy, and each process how long it ran. What the cores that
this process may use were busy with beyond the measuring processes is other work, or what another
guest of the same hardware took (`steal`). Both slow down what is measured, some of it many times.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

BUSY = 0.1  # of the cores' time; an idle machine's housekeeping takes a few hundredths
UNSTEADY = 1.5  # of the highest to the lowest end of a median's 95% interval

_SHORTEST_S = 0.3  # the system counts in hundredths of a second


class Conditions(NamedTuple):
    """Of all that was measured of one kind."""

    seconds: float = 0.0
    others_s: float = 0.0  # of the cores' time, summed over them, that others had
    cores_s: float = 0.0  # the cores' time
    unsteady: float = 1.0  # half of the intervals' high ends over their low ends, at the worst time
    left_out: tuple[str, ...] = ()  # for want of time, in words

    def __add__(self, other: "Conditions") -> "Conditions":  # type: ignore[override]
        return Conditions(
            self.seconds + other.seconds,
            self.others_s + other.others_s,
            self.cores_s + other.cores_s,
            max(self.unsteady, other.unsteady),
            tuple(dict.fromkeys(self.left_out + other.left_out)),
        )

    @property
    def others(self) -> float:
        """The share of the cores' time that others had; nan if that is not known."""
        return self.others_s / self.cores_s if self.cores_s >= _SHORTEST_S else np.nan

    def busy(self) -> str:
        """Says what was wrong with the machine; '' if nothing was, as far as is known."""
        words = []
        if self.others > BUSY:
            words.append(f"other work had {self.others:.0%} of the time of the cores")
        if self.unsteady > UNSTEADY:
            words.append(f"half of the 95% intervals are over a factor {self.unsteady:.1f} wide")
        return ", and ".join(words)

    def to_json(self) -> dict[str, Any]:
        """JSON-able data."""
        return {
            "seconds": self.seconds,
            "others_share": self.others,
            "interval_width": self.unsteady,
            "busy": self.busy(),
            "left_out": list(self.left_out),
        }


class Clock:
    """How long the cores were busy, and these processes ran, until now."""

    def __init__(self, pids: Iterable[int]):
        self._pids = tuple(pids)
        self._began_s = time.monotonic()
        self._began = _busy_s(), _ran_s(self._pids)

    def conditions(self) -> Conditions:
        """Returns those since this was made; of others nothing where the system does not tell."""
        seconds = time.monotonic() - self._began_s
        busy, ran = (
            now - before if now is not None and before is not None else None
            for now, before in zip((_busy_s(), _ran_s(self._pids)), self._began, strict=True)
        )
        if busy is None or ran is None:
            return Conditions(seconds)
        return Conditions(seconds, max(0.0, busy - ran), seconds * len(os.sched_getaffinity(0)))


def width(intervals: Sequence[tuple[float, float]]) -> float:
    """Returns how wide half of the intervals (low, high) are, as a factor; 1 without any."""
    return float(np.median([high / low for low, high in intervals if low > 0] or [1.0]))


def _busy_s() -> float | None:
    """Seconds that the cores which this process may use were at work, or stolen; summed."""
    own = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    with _unknown(), open("/proc/stat") as file:
        rows = [line.split() for line in file]
        counts = [list(map(int, row[1:9])) for row in rows if row and row[0] in own]
        # user, nice, system, idle, waiting for disks, interrupts of two kinds, stolen
        ticks = sum(sum(row) - row[3] - row[4] for row in counts)
        return ticks / os.sysconf("SC_CLK_TCK") if any(map(any, counts)) else None
    return None


def _ran_s(pids: Iterable[int]) -> float | None:
    """Seconds that processes have run, in the kernel too."""
    with _unknown():
        ticks = 0
        for pid in pids:
            with open(f"/proc/{pid}/stat") as file:  # its name, in brackets, may have blanks
                fields = file.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")
    return None


@contextlib.contextmanager
def _unknown() -> Iterator[None]:
    """What the system does not tell, or not as Linux does, is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        yield
