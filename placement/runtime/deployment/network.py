"""A deployed model that is ready to run, also from many threads.

After an exception, a compiled model of OpenVINO may answer wrongly from then on, also the requests
that run at that moment. So an answer counts only when all inferences that overlapped with it have
ended without an exception. Otherwise they are all repeated, one after another, on a model that is
compiled anew, and the result of that is the answer. `ov.AsyncInferQueue` does not say which of its
requests failed, so a pool of threads runs OpenVINO's requests.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import numpy as np
import openvino as ov

from placement.errors import UserError
from placement.runtime.errors import summarise_error
from placement.runtime.execution.executor import InferRequest
from placement.runtime.execution.workers import Workers, join
from placement.runtime.models import colocation, outputs
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.frontend import input_names
from placement.runtime.models.inputs import convert

_WAITING_PER_REQUEST = 2  # limit on the requests that wait, for each that runs
_MAX_SHAPES = 9  # compiled at the same time

Inputs: TypeAlias = Sequence[np.ndarray] | Mapping[str, np.ndarray]
Outputs: TypeAlias = list[np.ndarray]
Request: TypeAlias = ov.InferRequest | InferRequest  # for one thread at a time
Shapes: TypeAlias = tuple[tuple[int, ...], ...]  # of each input, in order


def infer(request: Request, tensors: Sequence[ov.Tensor]) -> Outputs:
    """Runs one inference on inputs in order; returns copies of the outputs."""
    for index, tensor in enumerate(tensors):
        request.set_input_tensor(index, tensor)
    try:
        request.infer()
    except RuntimeError as error:
        raise RuntimeError(f"the inference failed: {summarise_error(error)}") from error
    return [outputs.read(tensor) for tensor in request.output_tensors]


class Compiled(NamedTuple):
    """A compiled model and its requests."""

    request: Request  # of `infer`
    num_requests: int  # of `submit`
    idle_requests: Callable[[], list[Request]]  # those of `submit` that run nothing; a cached list
    model: ov.CompiledModel | None = None  # None if there are several


class _Job:
    """An inference from its start until its answer is known to be right."""

    def __init__(self, function: Callable[[], Outputs]):
        self.future: Future[Outputs] = Future()
        self.failure: BaseException | None = None
        self._function = function

    def run(self) -> None:
        """Runs the inference and keeps its outputs or its failure."""
        try:
            self._outputs, self.failure = self._function(), None
        except BaseException as error:  # raised where the caller waits
            self.failure = error

    def deliver(self) -> None:
        """Passes the answer to those who wait for it, whose callbacks may take long."""
        if self.failure is None:
            self.future.set_result(self._outputs)
        else:
            self.future.set_exception(self.failure)


class Network(contextlib.AbstractContextManager["Network"]):
    """Runs a compiled model; a context manager.

    Several threads may share a network. `infer` runs one inference at a time while other calls
    wait, which gives the lowest latency. `submit` runs several at once, which keeps all devices
    busy.
    """

    def __init__(
        self,
        model: ov.Model,
        compile_model: Callable[[Shapes], Compiled],
        *,
        form: str,
        shapes: Sequence[ov.PartialShape],
        workers: Workers | None = None,
    ):
        """Compiles the model; users call `placement.load` instead.

        Args:
          model: defines the inputs and outputs.
          compile_model: compiles it for the shapes of its inputs, at their first use and after
            every inference that fails.
          form: see `placement.runtime.deployment.artifact`.
          shapes: the shapes that each input accepts.
          workers: the executor's threads. They end when this network is closed or collected.
        """
        self.form = form
        self._names = [input_names(port.get_node()) for port in model.inputs]
        self._inputs = [*zip(model.inputs, shapes, self._names, strict=True)]
        self._placed_shapes: Shapes = tuple(tuple(port.get_shape()) for port in model.inputs)
        self._is_stateful = colocation.is_stateful(model)
        self._compile_model = functools.lru_cache(_MAX_SHAPES)(compile_model)
        self._compile_lock, self._infer_lock = threading.RLock(), threading.Lock()
        self._workers = workers
        if workers is not None:  # no join here: a finalizer may run on one of these threads
            weakref.finalize(self, workers.stop)
        placed = self._compile(self._placed_shapes)
        # The request that holds the state of a stateful model; None after an inference that failed.
        self._last_request: Request | None = placed.request
        self._condition = threading.Condition()  # guards the next three
        self._running: set[_Job] = set()
        # Ended jobs -> the running ones that overlapped with them and could still fail.
        self._ended: dict[_Job, set[_Job]] = {}
        self._has_failed = False  # a job has failed while others run
        self._pool_threads = pool_threads = list[threading.Thread]()
        self._pool = ThreadPoolExecutor(
            placed.num_requests,
            "placement",
            initializer=lambda: pool_threads.append(threading.current_thread()),
        )
        self._slots = threading.BoundedSemaphore((1 + _WAITING_PER_REQUEST) * placed.num_requests)
        self._is_closed = False

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def compiled(self) -> ov.CompiledModel | None:
        """The compiled model; None in the concurrent form, which has several."""
        return self._compile(self._placed_shapes).model

    def infer(self, inputs: Inputs) -> Outputs:
        """Returns the model's outputs, in order, and keeps its state, also if shapes change.

        The inputs are an array for each input of the model, in order or by any of its names.

        Raises:
          UserError: the inputs do not fit the model or its placement, the network is closed, or
            the model has a state and the inference before failed.
          RuntimeError: the inference failed. The next one runs on a newly compiled model.
        """
        tensors = self._make_tensors(inputs)
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)

        def run() -> Outputs:
            request, last_request = self._compile(shapes).request, self._last_request
            if self._is_stateful and request is not last_request:
                assert last_request is not None
                states = {variable.name: variable.state for variable in last_request.query_state()}
                for variable in request.query_state():
                    variable.state = states[variable.name]
            self._last_request = request
            return infer(request, tensors)

        job = _Job(run)
        with self._infer_lock:
            self._check_open()
            if self._is_stateful and self._last_request is None:
                raise UserError(
                    "the last inference failed and lost the state of the model; call reset_state"
                )
            self._compile(shapes)  # raises errors that are not those of an inference
            known_jobs = self._run(job)
            if job.failure is not None:
                self._last_request = None
        for known_job in known_jobs:
            known_job.deliver()
        return job.future.result()

    def submit(self, inputs: Inputs) -> Future[Outputs]:
        """Queues an inference, several of which run at once; the future has what `infer` returns.

        The call blocks while the queue is full, so memory stays bounded. The inputs must not change
        until the future is done.

        Raises:
          UserError: as `infer`; or the model keeps a state, which simultaneous requests would mix.
        """
        if self._is_stateful:
            raise UserError(
                "the model keeps a state from one inference to the next, which simultaneous "
                "requests would mix; call infer instead, one request after another"
            )
        tensors = self._make_tensors(inputs)
        if tuple(tuple(tensor.shape) for tensor in tensors) != self._placed_shapes:
            shapes = ", ".join(str(list(shape)) for shape in self._placed_shapes)
            raise UserError(
                f"submit serves only the shapes that were placed, {shapes}; call infer instead"
            )

        def infer_on_idle_request() -> Outputs:
            with self._compile_lock:  # one thread makes the requests
                idle_requests = self._compile(self._placed_shapes).idle_requests()
            request = idle_requests.pop()
            try:
                return infer(request, tensors)
            finally:
                idle_requests.append(request)

        def run() -> None:
            if job.future.set_running_or_notify_cancel():
                for known_job in self._run(job):
                    known_job.deliver()

        job = _Job(infer_on_idle_request)
        self._check_open()
        self._slots.acquire()
        job.future.add_done_callback(lambda _: self._slots.release())
        try:
            self._pool.submit(run)
        except RuntimeError:
            job.future.cancel()  # so that the next caller gets the slot
            self._check_open()
            raise
        return job.future

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value."""
        with self._infer_lock:
            self._check_open()
            self._last_request = self._compile(self._placed_shapes).request
            self._last_request.reset_state()

    def close(self) -> None:
        """Ends all threads after the running inference and all submitted ones.

        Calls of `infer` that wait for their turn raise a UserError. Callbacks must not call this.
        """
        self._is_closed = True
        self._pool.shutdown()
        for thread in self._pool_threads:
            join(thread)
        with self._infer_lock:
            if self._workers is not None:
                self._workers.close()
                self._workers = None

    def _compile(self, shapes: Shapes) -> Compiled:
        with self._compile_lock:  # compiles once, however many threads ask
            return self._compile_model(shapes)

    def _run(self, job: _Job) -> list[_Job]:
        """Runs a job, and returns all jobs whose answers are known now, to be delivered."""
        with self._condition:
            self._condition.wait_for(lambda: not self._has_failed)
            self._running.add(job)
        job.run()
        with self._condition:
            self._running.remove(job)
            for overlapping in self._ended.values():
                overlapping.discard(job)
            self._ended[job] = set(self._running)
            self._has_failed |= job.failure is not None
            if self._has_failed and self._running:
                return []
            if self._has_failed:
                self._compile_model.cache_clear()
                # A single job is the one that failed, and nothing else can be the reason.
                for spoilt_job in self._ended if len(self._ended) > 1 else ():
                    spoilt_job.run()
                    if spoilt_job.failure is not None:
                        self._compile_model.cache_clear()
                self._has_failed = False
                self._condition.notify_all()
            known_jobs = [ended for ended, overlapping in self._ended.items() if not overlapping]
            for known_job in known_jobs:
                del self._ended[known_job]
            return known_jobs

    def _make_tensors(self, inputs: Inputs) -> list[ov.Tensor]:
        """Returns the inputs in order, checked and converted to the model's types."""
        listed = ", ".join(repr(names[0]) for names in self._names)
        expected = f"pass a list or a dict with an array for each of {listed}"
        if isinstance(inputs, Mapping):
            found = [[inputs[name] for name in {*names} & inputs.keys()] for names in self._names]
            if len(inputs) != len(found) or any(len(values) != 1 for values in found):
                raise UserError(f"the inputs are {quote_names(inputs) or 'empty'}; {expected}")
            arrays = [value for (value,) in found]
        else:
            try:
                arrays = list(inputs)
            except TypeError as error:
                raise UserError(f"the inputs are a {type(inputs).__name__}; {expected}") from error
            if len(arrays) != len(self._names):
                raise UserError(f"{len(arrays)} inputs are passed; {expected}")
        tensors = []
        for value, (port, allowed, names) in zip(arrays, self._inputs, strict=True):
            array = convert(value, port.get_element_type(), f"input {names[0]!r}")
            if not allowed.compatible(ov.PartialShape(list(array.shape))):
                valid = list(allowed.to_shape()) if allowed.is_static else allowed
                raise UserError(f"input {names[0]!r} has shape {list(array.shape)}; pass {valid}")
            tensors.append(ov.Tensor(array))
        return tensors

    def _check_open(self) -> None:
        if self._is_closed:
            raise UserError("the network is closed; load it again")
