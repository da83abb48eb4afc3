"""Ctrl-C: the first lets a search finish its step, the second stops at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from placement.pipeline.console import progress


@contextlib.contextmanager
def stop_on_interrupt(display: progress.Display, stop: threading.Event) -> Iterator[None]:
    """Makes the first Ctrl-C during the block set `stop`; a second one raises as usual.

    KeyboardInterrupt cannot be raised in the middle of a step: C extensions lose it or turn it into
    an error of their own (NumPy's structured comparison answers with a TypeError). Python delivers
    signals only to its main thread; in another thread nothing sets `stop`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, previous_handler)
        display.warn("stopping after this step; press Ctrl-C again to stop at once")

    previous_handler = signal.signal(signal.SIGINT, request_stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
