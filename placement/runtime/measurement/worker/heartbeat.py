"""The worker's current task, in a file that it shares with the waiting process."""

from pathlib import Path

import numpy as np

STAGES = ("open", "compile", "request", "infer", "wrong output", "threads")


class Heartbeat:
    """Three int64 in a memory-mapped file: the candidate (-1: none), the stage and a counter.

    The waiting process takes a worker whose counter stands still for hung.
    """

    def __init__(self, directory: Path, *, create: bool = False):
        mode = "w+" if create else "r+"
        self._numbers = np.memmap(directory / "beat", dtype=np.int64, mode=mode, shape=(3,))  # type: ignore[call-overload]

    def set(self, candidate: int, stage: str) -> None:
        """Announces the task that begins: a candidate, -1 for none, and one of `STAGES`."""
        self._numbers[0], self._numbers[1] = candidate, STAGES.index(stage)
        self._numbers[2] += 1

    def keep_alive(self) -> None:
        """Announces an inference, or a step before one, that belongs to no candidate."""
        self.set(-1, "infer")

    def touch(self) -> None:
        """Announces that the current task goes on."""
        self._numbers[2] += 1

    def read(self) -> tuple[int, str, int]:
        """Returns the candidate, the stage and the counter."""
        candidate, stage, count = (int(number) for number in self._numbers)
        return candidate, STAGES[stage], count
