"""A deployed model that is ready to run."""

import concurrent.futures
import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import openvino as ov

from placement.errors import UserError
from placement.runtime.deployment import service
from placement.runtime.deployment.shapes import ShapeCheck, Shapes, Variants, check
from placement.runtime.execution.workers import Workers
from placement.runtime.models import colocation
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.inputs import convert


class Network(contextlib.AbstractContextManager["Network"]):
    """Runs a compiled model; a context manager.

    Several threads may share a network. `infer` runs one inference at a time while other calls
    wait, which gives the lowest latency. `submit` runs several at once, which keeps all devices
    busy.
    """

    def __init__(
        self,
        model: ov.Model,
        compile_model: Callable[[], service.Compiled],
        *,
        form: str,
        workers: Workers | None = None,
        variants: Variants | None = None,
    ):
        """Compiles the model; users call `placement.load` instead.

        Args:
          model: defines the inputs and outputs.
          compile_model: compiles it, now and after every inference that fails.
          form: see `placement.runtime.deployment.artifact`.
          workers: the executor's threads. They end when this network is closed or collected.
          variants: runs the model with other shapes; None accepts only those of `model`.
        """
        self.form = form
        # The names of each input, the one to show first.
        self.names = [
            list(dict.fromkeys([*sorted(port.get_names()), port.get_node().get_friendly_name()]))
            for port in model.inputs
        ]
        self._model = model
        self._variants = variants

        def compile_all() -> service.Compiled:
            if variants is not None:
                variants.clear()
            return compile_model()

        self._engine = service.Engine(compile_all)
        # The request that holds the state of a stateful model; None after an inference that failed.
        self._last_runner: service.Runner | None = self._engine.compiled().runner
        self._placed_shapes: Shapes = tuple(tuple(port.get_shape()) for port in model.inputs)
        self._workers = workers
        if workers is not None:  # no join here: a finalizer may run on one of these threads
            weakref.finalize(self, workers.stop)
        self._service: service.Service | None = None
        self._log = service.LatencyLog()
        self._is_stateful = colocation.is_stateful(model)
        self._infer_lock, self._service_lock = threading.Lock(), threading.Lock()
        self._is_closed = False

    @property
    def compiled(self) -> ov.CompiledModel | None:
        """The compiled model; None in the concurrent form, which has several."""
        return self._engine.compiled().model

    def __exit__(self, *_: object) -> None:
        self.close()

    def infer(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the model's outputs, in order.

        If the model has a state and the shapes change, the state moves to the model that is
        compiled for the new shapes.

        Args:
          inputs: an array for each input of the model, in order or by any of its names.

        Raises:
          UserError: inputs are missing, unknown, or of a wrong shape or type; the model or its
            placement does not work with their shapes; the network is closed; or the model has a
            state and the inference before failed.
          RuntimeError: the inference failed. The next one runs on a newly compiled model.
        """
        begin_s = time.perf_counter()
        tensors = self._tensors(inputs)
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)

        def run(compiled: service.Compiled) -> service.Outputs:
            runner = compiled.runner
            if self._variants is not None and shapes != self._placed_shapes:
                runner = self._variants.runner(shapes)
            if self._is_stateful and runner is not self._last_runner:
                assert self._last_runner is not None
                service.copy_state(self._last_runner, runner)
                self._last_runner = runner
            return service.run(runner, tensors)

        with self._infer_lock:
            self._check_open()
            if self._is_stateful and self._last_runner is None:
                raise UserError(
                    "the last inference failed and lost the state of the model; call reset_state"
                )
            if self._variants is not None and shapes != self._placed_shapes:
                self._variants.runner(shapes)  # raises errors that are not those of an inference
            job, known_jobs = self._engine.run(run)
            if job.failure is not None:
                self._last_runner = None
        for known_job in known_jobs:
            known_job.deliver()
        outputs = job.result()
        self._log.add(time.perf_counter() - begin_s)
        return outputs

    def submit(
        self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]
    ) -> concurrent.futures.Future[list[np.ndarray]]:
        """Queues an inference, several of which run at once; the future has what `infer` returns.

        The call blocks while the queue is full. A caller that is faster than the devices is thus
        held back, and memory stays bounded.

        Args:
          inputs: see `infer`; must not change until the future is done.

        Raises:
          UserError: see `infer`; or the model keeps a state, which simultaneous requests would mix.
        """
        if self._is_stateful:
            raise UserError(
                "the model keeps a state from one inference to the next, which simultaneous "
                "requests would mix; call infer instead, one request after another"
            )
        tensors = self._tensors(inputs)
        if tuple(tuple(tensor.shape) for tensor in tensors) != self._placed_shapes:
            shapes = ", ".join(str(list(shape)) for shape in self._placed_shapes)
            raise UserError(
                f"submit serves only the shapes that were placed, {shapes}; call infer instead"
            )
        self._check_open()

        def run(future: service.Future) -> None:
            _, known_jobs = self._engine.run(lambda model: model.run_idle(tensors), future)
            for known_job in known_jobs:
                known_job.deliver()

        return self._open_service().submit(run, self._check_open)

    def latencies(self) -> service.Latencies:
        """Returns the latencies of the last requests, from the call to their outputs."""
        return self._log.read()

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value.

        Raises:
          UserError: the network is closed.
        """
        with self._infer_lock:
            self._check_open()
            self._last_runner = self._engine.compiled().runner
            self._last_runner.reset_state()

    def check_other_shapes(self) -> list[ShapeCheck]:
        """Compares outputs for two shapes near the placed ones with those of the plain f32 CPU."""
        if self._variants is None:
            return []
        reset_state = self.reset_state if self._is_stateful else None
        return check(self._variants, self._placed_shapes, self.infer, reset_state=reset_state)

    def close(self) -> None:
        """Ends all threads after the running inference and all submitted ones.

        Calls of `infer` that wait for their turn raise a UserError.

        Raises:
          UserError: a callback of a request calls this; closing would wait for its own thread.
        """
        if self._service is not None and self._service.is_own_thread():
            raise UserError(
                "a network cannot be closed in the callback of one of its requests; close it in "
                "another thread"
            )
        self._is_closed = True
        with self._service_lock:
            if self._service is not None:
                self._service.close()
        with self._infer_lock:
            if self._workers is not None:
                self._workers.close()
                self._workers = None

    def _tensors(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[ov.Tensor]:
        """Returns the inputs in order, checked and converted to the model's types."""
        shown = ", ".join(repr(aliases[0]) for aliases in self.names)
        if isinstance(inputs, Mapping):
            given_names = [[name for name in names if name in inputs] for names in self.names]
            known_names = {name for names in self.names for name in names}
            if unknown_names := [name for name in inputs if name not in known_names]:
                raise UserError(
                    f"the model has no input {quote_names(unknown_names)}; its inputs are {shown}"
                )
            for names, given in zip(self.names, given_names, strict=True):
                if len(given) > 1:
                    raise UserError(f"{quote_names(given)} are the same input; pass one of them")
                if not given:
                    raise UserError(
                        f"input {names[0]!r} is missing; pass an array for each of {shown}"
                    )
            arrays = [inputs[name] for (name,) in given_names]
        else:
            is_single = isinstance(inputs, str | bytes) or getattr(inputs, "ndim", 1) == 0
            if is_single or not isinstance(inputs, Iterable):
                raise UserError(
                    f"the inputs are an object of type {type(inputs).__name__}; pass a list or a "
                    f"dict with an array for each of {shown}"
                )
            arrays = list(inputs)
            if len(arrays) != len(self.names):
                raise UserError(
                    f"{len(arrays)} inputs are passed; the model has {len(self.names)}: {shown}"
                )
        tensors = []
        if self._variants is None:
            allowed_shapes = [port.get_partial_shape() for port in self._model.inputs]
        else:
            allowed_shapes = self._variants.partial_shapes
        for value, port, allowed, names in zip(
            arrays, self._model.inputs, allowed_shapes, self.names, strict=True
        ):
            array = convert(value, port.get_element_type(), f"input {names[0]!r}")
            if not allowed.compatible(ov.PartialShape(list(array.shape))):
                valid = list(allowed.to_shape()) if allowed.is_static else allowed
                raise UserError(f"input {names[0]!r} has shape {list(array.shape)}; pass {valid}")
            tensors.append(ov.Tensor(array))
        return tensors

    def _open_service(self) -> service.Service:
        """Returns the service; the first call creates it."""
        with self._service_lock:
            self._check_open()
            if self._service is None:
                self._service = service.Service(self._engine.compiled().num_requests, self._log)
            return self._service

    def _check_open(self) -> None:
        if self._is_closed:
            raise UserError("the network is closed; load it again")
