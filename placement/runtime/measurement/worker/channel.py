"""Messages between a worker process and its parent over pipes, and the worker's current task.

Every operating system has pipes. On Windows a pipe cannot be waited for with a time limit, so that
a thread reads it. Messages are pickled: both ends run the same program.
"""

import pickle
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

STAGES = ("open", "compile", "request", "infer", "wrong output", "threads")

_END = object()


class Channel:
    """One end of two pipes."""

    def __init__(
        self,
        reader: IO[bytes],
        writer: IO[bytes],
        close_callback: Callable[[], None] = lambda: None,
    ):
        """Starts the thread that reads.

        `close_callback` is called on that thread when the other process has ended or closed its
        pipe.
        """
        self._writer = writer
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._read, args=(reader, close_callback), daemon=True
        )
        self._thread.start()

    def send(self, message: Any) -> None:
        """Sends a message; waits while the pipe is full. OSError: the other process has ended."""
        self._writer.write(pickle.dumps(message))
        self._writer.flush()

    def receive(self, timeout_s: float | None = None) -> Any:
        """Returns the next message.

        Raises:
          queue.Empty: none arrived within `timeout_s`.
          EOFError: the other process has ended or closed its pipe.
        """
        message = self._messages.get(timeout=timeout_s)
        if message is _END:
            self._messages.put(_END)
            raise EOFError
        return message

    def join(self) -> None:
        """Waits for the reading thread, which ends with the other process."""
        self._thread.join()

    def _read(self, reader: IO[bytes], close_callback: Callable[[], None]) -> None:
        try:
            while True:
                self._messages.put(pickle.load(reader))
        except (EOFError, OSError, pickle.UnpicklingError):  # also in the middle of a message
            pass
        finally:
            self._messages.put(_END)
            close_callback()


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

    def touch(self) -> None:
        """Announces that the current task goes on."""
        self._numbers[2] += 1

    def read(self) -> tuple[int, str, int]:
        """Returns the candidate, the stage and the counter."""
        candidate, stage, count = (int(number) for number in self._numbers)
        return candidate, STAGES[stage], count
