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

from placement.runtime.errors import summarise_error
from placement.runtime.execution.executor import Executor, InferRequest
from placement.runtime.models import outputs

REQUESTS_PER_DEVICE = 2  # so that one is ready when the other has ended
_WAITING_PER_RUNNER = 2  # limit on the requests that wait, for each that runs
_MAX_LATENCIES = 10_000
_POLL_S = 0.1  # a caller that waits for a full service checks this often whether it was closed

Outputs: TypeAlias = list[np.ndarray]
Future: TypeAlias = concurrent.futures.Future[Outputs]
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


class Compiled:
    """A compiled model, the request that `infer` runs, and those that `submit` runs."""

    def __init__(
        self,
        runner: Runner,
        num_requests: int,
        create_requests: Callable[[], Sequence[Runner]],
        model: ov.CompiledModel | None = None,
    ):
        """Stores its arguments; the requests of `submit` are created at first use.

        Args:
          runner: runs one inference at a time.
          num_requests: the number of requests that `submit` runs at once.
          create_requests: creates them.
          model: the compiled model; None if there are several.
        """
        self.runner, self.num_requests, self.model = runner, num_requests, model
        self._create_requests = create_requests
        self._idle_runners: queue.SimpleQueue[Runner] | None = None
        self._lock = threading.Lock()

    def run_idle(self, tensors: Sequence[ov.Tensor]) -> Outputs:
        """Runs one inference on an idle request of `submit`."""
        with self._lock:
            if self._idle_runners is None:
                self._idle_runners = queue.SimpleQueue()
                for runner in self._create_requests():
                    self._idle_runners.put(runner)
        runner = self._idle_runners.get()
        try:
            return run(runner, tensors)
        finally:
            self._idle_runners.put(runner)


def wrap(compiled: ov.CompiledModel) -> Compiled:
    """Returns a model that OpenVINO alone runs, with as many requests as it asks for."""
    optimal_count = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
    count = max(REQUESTS_PER_DEVICE, optimal_count)
    return Compiled(
        compiled.create_infer_request(),
        count,
        lambda: [compiled.create_infer_request() for _ in range(count)],
        compiled,
    )


class Job:
    """An inference from its start until its answer is known to be right."""

    def __init__(self, infer: Callable[[Compiled], Outputs], future: Future | None):
        self.infer, self.future = infer, future
        self.outputs: Outputs | None = None
        self.failure: BaseException | None = None
        self.overlapping: set[Job] = set()  # inferences that were under way when this one ended

    def run(self, compile_model: Callable[[], Compiled]) -> None:
        """Runs the inference and keeps its outputs or its failure."""
        self.outputs = self.failure = None
        try:
            self.outputs = self.infer(compile_model())
        except RuntimeError as error:
            self.failure = RuntimeError(f"the inference failed: {summarise_error(error)}")
            self.failure.__cause__ = error
        except BaseException as error:
            self.failure = error

    def deliver(self) -> None:
        """Gives a known answer to those who wait for it."""
        if self.future is None:
            return
        if self.failure is not None:
            self.future.set_exception(self.failure)
        else:
            assert self.outputs is not None
            self.future.set_result(self.outputs)

    def result(self) -> Outputs:
        """Waits for the answer, and returns the outputs or raises the failure."""
        if self.future is not None:
            return self.future.result()
        if self.failure is not None:
            raise self.failure
        assert self.outputs is not None
        return self.outputs


class Engine:
    """Runs a compiled model, and compiles it again after an inference that failed.

    After an exception, a compiled model of OpenVINO may answer wrongly from then on, also the
    requests that run at that moment. So an answer counts only when all inferences that overlapped
    with it have ended without an exception. Otherwise they are all repeated, one after another, on
    a model that is compiled anew, and what happens then is the answer.
    """

    def __init__(self, compile_model: Callable[[], Compiled]):
        """Compiles the model for the first time."""
        self._compile_model = compile_model
        self._compiled: Compiled | None = compile_model()  # None after an inference that failed
        self._condition = threading.Condition()
        self._is_failed = False  # an inference has failed while others are under way
        self._running: set[Job] = set()
        self._ended: list[Job] = []  # wait for overlapping inferences to end

    def compiled(self) -> Compiled:
        """Returns the compiled model; compiles it if an inference failed before."""
        with self._condition:
            if self._compiled is None:
                self._compiled = self._compile_model()
            return self._compiled

    def run(
        self, infer: Callable[[Compiled], Outputs], future: Future | None = None
    ) -> tuple[Job, list[Job]]:
        """Runs an inference.

        Args:
          infer: runs the inference, possibly more than once.
          future: receives the outputs, or a RuntimeError with the reason of OpenVINO in one line.
            None makes one if the answer has to wait for other inferences.

        Returns:
          The job of this inference, and all jobs whose answers are known now, for the caller to
          deliver outside its locks. A job that is not known yet is delivered by another caller.
        """
        job = Job(infer, future)
        with self._condition:
            while self._is_failed:
                self._condition.wait()
            self._running.add(job)
        job.run(self.compiled)
        with self._condition:
            self._running.remove(job)
            job.overlapping = set(self._running)
            for other in self._ended:
                other.overlapping.discard(job)
            self._ended.append(job)
            self._is_failed |= job.failure is not None
            if self._is_failed and not self._running:
                self._compiled = None
                # A single job is the one that failed, and nothing else can be the reason.
                for spoilt_job in self._ended if len(self._ended) > 1 else ():
                    spoilt_job.run(self.compiled)
                    if spoilt_job.failure is not None:
                        self._compiled = None
                self._is_failed = False
                self._condition.notify_all()
            known = [] if self._is_failed else [j for j in self._ended if not j.overlapping]
            self._ended = [j for j in self._ended if j not in known]
            if job.future is None and job in self._ended:
                job.future = concurrent.futures.Future()
        return job, known


class Service:
    """Runs requests in threads of its own."""

    def __init__(self, num_threads: int, log: LatencyLog):
        """Prepares the service; its threads start with the first requests.

        Args:
          num_threads: the number of requests that run at once.
          log: receives the latency of every successful request.
        """
        self._log = log
        self._thread = threading.local()  # in the service's own threads, `is_own` is True
        self._pool = concurrent.futures.ThreadPoolExecutor(
            num_threads, "placement", initializer=setattr, initargs=(self._thread, "is_own", True)
        )
        self._slots = threading.BoundedSemaphore((1 + _WAITING_PER_RUNNER) * num_threads)
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, run: Callable[[Future], object], check_open: Callable[[], None]) -> Future:
        """Queues a request; blocks while too many requests wait.

        Args:
          run: runs the request and completes the future that it is given.
          check_open: raises an error once the service is closed.

        Returns:
          That future.
        """
        begin_s = time.perf_counter()
        while not self._slots.acquire(timeout=_POLL_S):
            check_open()
        future: Future = concurrent.futures.Future()

        def run_or_report() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    run(future)
                except BaseException as error:  # raised where the caller waits
                    future.set_exception(error)

        def end(_: object) -> None:
            self._slots.release()
            if not future.cancelled() and future.exception() is None:
                self._log.add(time.perf_counter() - begin_s)

        with self._lock:
            if self._is_closed:
                self._slots.release()
                check_open()
            self._pool.submit(run_or_report)
        future.add_done_callback(end)
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
    return [outputs.read(tensor) for tensor in runner.output_tensors]


def copy_state(source: Runner, target: Runner) -> None:
    """Gives every variable of a model the content that it has in another request."""
    states = {state.name: state.state for state in source.query_state()}
    for state in target.query_state():
        state.state = states[state.name]
