"""Runs requests from many threads, several of them at once."""

import collections
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import openvino as ov

from placement.runtime.execution.executor import Executor, InferRequest

_WAITING_PER_RUNNER = 2  # limit on the requests that wait, for each that runs
_MAX_LATENCIES = 10_000
_POLL_S = 0.1  # a caller that waits for a full service checks this often whether it was closed

Outputs = list[np.ndarray]
Runner: TypeAlias = ov.InferRequest | Executor | InferRequest  # for one thread at a time


class Latencies(NamedTuple):
    """Seconds that the last requests took, from the call to their outputs; nan without requests."""

    requests: int  # number of all requests that ended, more than the last ones
    median_s: float
    p90_s: float
    p99_s: float
    longest_s: float


class LatencyLog:
    """Stores the latencies of the last requests; threads may share one."""

    def __init__(self) -> None:
        self._count = 0
        self._latencies_s: collections.deque[float] = collections.deque(maxlen=_MAX_LATENCIES)
        self._lock = threading.Lock()

    def add(self, latency_s: float) -> None:
        """Adds a request that has ended."""
        with self._lock:
            self._count += 1
            self._latencies_s.append(latency_s)

    def read(self) -> Latencies:
        """Returns the statistics so far."""
        with self._lock:
            count, latencies_s = self._count, np.array(self._latencies_s)
        if not count:
            return Latencies(0, *[float("nan")] * 4)
        return Latencies(count, *map(float, np.percentile(latencies_s, (50, 90, 99, 100))))


class Service:
    """Runs requests in threads of its own, as many at once as it has runners."""

    def __init__(self, runners: Sequence[Runner], log: LatencyLog):
        """Prepares the service; its threads start with the first requests.

        Args:
          runners: requests of one model, not used elsewhere.
          log: receives the latency of every successful request.
        """
        self._log = log
        self._idle_runners: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        for runner in runners:
            self._idle_runners.put(runner)
        self._thread = threading.local()  # in the service's own threads, `is_own` is True
        self._pool = concurrent.futures.ThreadPoolExecutor(
            len(runners), "placement", initializer=setattr, initargs=(self._thread, "is_own", True)
        )
        self._slots = threading.BoundedSemaphore((1 + _WAITING_PER_RUNNER) * len(runners))
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(
        self, tensors: Sequence[ov.Tensor], check_open: Callable[[], None]
    ) -> concurrent.futures.Future[Outputs]:
        """Queues a request; blocks while too many requests wait.

        Args:
          tensors: the inputs, in order.
          check_open: raises an error once the service is closed.
        """
        begin_s = time.perf_counter()
        while not self._slots.acquire(timeout=_POLL_S):
            check_open()

        def run_and_log() -> Outputs:
            runner = self._idle_runners.get()
            try:
                outputs = run(runner, tensors)
            finally:
                self._idle_runners.put(runner)
            self._log.add(time.perf_counter() - begin_s)
            return outputs

        with self._lock:
            if self._is_closed:
                self._slots.release()
                check_open()
            future = self._pool.submit(run_and_log)
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def is_own_thread(self) -> bool:
        """Returns whether the caller runs in a thread of the service, as a callback does."""
        return getattr(self._thread, "is_own", False)

    def close(self) -> None:
        """Ends the threads after all submitted requests have ended."""
        with self._lock:
            self._is_closed = True
        self._pool.shutdown()


def run(runner: Runner, tensors: Sequence[ov.Tensor]) -> Outputs:
    """Runs one inference on inputs in order; returns copies of the outputs."""
    for index, tensor in enumerate(tensors):
        runner.set_input_tensor(index, tensor)
    runner.infer()
    return [np.array(tensor.data) for tensor in runner.output_tensors]


def copy_state(source: Runner, target: Runner) -> None:
    """Gives every variable of a model the content that it has in another request."""
    states = {state.name: state.state for state in source.query_state()}
    for state in target.query_state():
        state.state = states[state.name]
