"""Requests that come from many threads, several of them under way at once."""

import collections
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import openvino as ov

_WAITING = 2  # requests that wait for their turn at most, for each that is under way
_REMEMBERED = 10_000  # latencies
_PATIENCE_S = 0.1  # between two looks whether a service that is full has been closed

Outputs = list[np.ndarray]


class Runner(Protocol):
    """A request of a compiled model, for one thread at a time."""

    def set_input_tensor(self, index: int, tensor: ov.Tensor, /) -> Any:
        """Sets an input of the model."""

    def infer(self) -> Any:
        """Runs the model, and waits for its outputs."""

    @property
    def output_tensors(self) -> Sequence[ov.Tensor]:
        """The outputs, until the next inference."""
        ...


class Latencies(NamedTuple):
    """How long the last requests took, from the call to their outputs, seconds; nan of none."""

    requests: int  # that have ended, those too that are no longer among the last
    median_s: float
    p90_s: float
    p99_s: float
    longest_s: float


class Log:
    """Remembers how long the last requests took; threads may share one."""

    def __init__(self) -> None:
        self._count = 0
        self._last_s: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """Takes a request that has ended."""
        with self._lock:
            self._count += 1
            self._last_s.append(seconds)

    def read(self) -> Latencies:
        """Returns what is known until now."""
        with self._lock:
            count, last_s = self._count, np.array(self._last_s)
        if not count:
            return Latencies(0, *[float("nan")] * 4)
        of_last = np.percentile(last_s, (50, 90, 99, 100))
        return Latencies(count, *map(float, of_last))


class Service:
    """Runs requests in threads of its own, as many at once as it has runners."""

    def __init__(self, runners: Sequence[Runner], log: Log):
        """Starts no thread before there is something to run.

        Args:
          runners: of one model, which nothing else uses.
          log: told of every request that ended well.
        """
        self.num_requests = len(runners)
        self._log = log
        self._free: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        for runner in runners:
            self._free.put(runner)
        self._thread = threading.local()  # of the service's own threads, `is_own` is True
        self._pool = concurrent.futures.ThreadPoolExecutor(
            len(runners), "placement", initializer=setattr, initargs=(self._thread, "is_own", True)
        )
        self._places = threading.BoundedSemaphore((1 + _WAITING) * len(runners))
        self._lock = threading.Lock()
        self._closed = False

    def submit(
        self, tensors: Sequence[ov.Tensor], check_open: Callable[[], None]
    ) -> concurrent.futures.Future[Outputs]:
        """Runs a request when its turn comes; waits where too many wait for theirs already.

        Args:
          tensors: the inputs, in order.
          check_open: raises what is to be raised once the service is closed.
        """
        began_s = time.perf_counter()
        while not self._places.acquire(timeout=_PATIENCE_S):
            check_open()
        with self._lock:
            if self._closed:
                self._places.release()
                check_open()
            future = self._pool.submit(self._run, tensors, began_s)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def is_own_thread(self) -> bool:
        """Returns whether the caller runs in a thread of the service, such as a callback."""
        return getattr(self._thread, "is_own", False)

    def close(self) -> None:
        """Ends the threads once all that was submitted has ended."""
        with self._lock:
            self._closed = True
        self._pool.shutdown()

    def _run(self, tensors: Sequence[ov.Tensor], began_s: float) -> Outputs:
        runner = self._free.get()
        try:
            outputs = run(runner, tensors)
        finally:
            self._free.put(runner)
        self._log.add(time.perf_counter() - began_s)
        return outputs


def run(runner: Runner, tensors: Sequence[ov.Tensor]) -> Outputs:
    """Infers once, from inputs in order; returns copies of the outputs."""
    for index, tensor in enumerate(tensors):
        runner.set_input_tensor(index, tensor)
    runner.infer()
    return [np.array(tensor.data) for tensor in runner.output_tensors]
