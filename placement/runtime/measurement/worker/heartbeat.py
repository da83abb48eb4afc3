"""What the worker is at, in a file that it shares with the process that waits for it."""

from pathlib import Path

import numpy as np

STAGES = ("open", "compile", "request", "infer", "wrong output", "threads")


class Heartbeat:
    """Three numbers in a file that two processes map: candidate (-1: none), stage and a counter."""

    def __init__(self, directory: Path, *, create: bool = False):
        mode = "w+" if create else "r+"
        self._numbers = np.memmap(directory / "beat", dtype=np.int64, mode=mode, shape=(3,))  # type: ignore[call-overload]

    def set(self, candidate: int, stage: str) -> None:
        """Tells what is worked at from now on: a candidate, -1 for none, and one of `STAGES`."""
        self._numbers[0], self._numbers[1] = candidate, STAGES.index(stage)
        self._numbers[2] += 1

    def alive(self) -> None:
        """Tells that something is inferred, or about to be, that is no candidate's."""
        self.set(-1, "infer")

    def touch(self) -> None:
        """Tells that it is still at the same."""
        self._numbers[2] += 1

    def read(self) -> tuple[int, str, int]:
        """Returns candidate, stage and counter."""
        candidate, stage, count = (int(number) for number in self._numbers)
        return candidate, STAGES[stage], count
