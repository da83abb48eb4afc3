"""Ctrl-C: the first lets a search end by itself, the second ends it at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from placement.pipeline.console import progress


@contextlib.contextmanager
def asked(display: progress.Display, stop: threading.Event) -> Iterator[None]:
    """Within it, the first Ctrl-C sets `stop`; the second raises as usual.

    KeyboardInterrupt cannot be raised in the middle of a step: C extensions lose it or turn it into
    an error of their own (NumPy's structured comparison answers with a TypeError).

    Python tells signals to its main thread alone: in another one nothing sets `stop`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, previous)
        display.warn("stopping after this step; Ctrl-C again stops at once")

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
