"""A deployed model that is ready to run."""

import concurrent.futures
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov

from placement.errors import UserError
from placement.runtime.deployment import service
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.workers import Workers
from placement.runtime.models import colocation
from placement.runtime.models.fingerprint import few

AT_ONCE = 2  # requests under way, for each device


class Network:
    """Runs a compiled model; a context manager.

    Several threads may share one. `infer` does one inference at a time, and the others wait: that
    is the least latency. `submit` has several under way, which keep all devices busy.
    """

    def __init__(
        self,
        model: ov.Model,
        compiled: ov.CompiledModel | Executor,
        *,
        form: str,
        more: Callable[[], Sequence[service.Runner]] | None = None,
        workers: Workers | None = None,
    ):
        """Makes a request of what was compiled; `placement.load` makes these.

        Args:
          model: whose inputs and outputs these are.
          compiled: the model.
          form: 'single', 'hetero' or 'concurrent', see `placement.runtime.deployment.artifact`.
          more: makes other requests, for what is submitted; None: of the compiled model.
          workers: of the executor, closed with this; they end too when nobody has this any more.
        """
        self.form = form
        self.compiled = None if isinstance(compiled, Executor) else compiled
        self.names = [_names(port) for port in model.inputs]  # that each input goes by
        self._model = model
        self._runner: Any = (
            compiled if isinstance(compiled, Executor) else compiled.create_infer_request()
        )
        self._workers = workers
        if workers is not None:  # to join its threads is not for a finaliser: it may run on one
            weakref.finalize(self, workers.stop)
        self._more = more
        self._service: service.Service | None = None
        self._log = service.Log()
        self._stateful = colocation.is_stateful(model)
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._closed = False

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def infer(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The model's outputs, in order.

        Args:
          inputs: an array for each input of the model, in order or by any of its names.

        Raises:
          UserError: inputs are missing, unknown, or of a wrong shape or type; or it is closed.
          RuntimeError: OpenVINO's own, or a device's thread has failed.
        """
        began_s = time.perf_counter()
        tensors = self._tensors(inputs)
        with self._lock:
            self._check_open()
            outputs = service.run(self._runner, tensors)
        self._log.add(time.perf_counter() - began_s)
        return outputs

    def submit(
        self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]
    ) -> concurrent.futures.Future[list[np.ndarray]]:
        """Infers when its turn comes, several at once; the future has what `infer` returns.

        Where too many wait already it waits itself until one has ended: whoever submits faster than
        the devices are is held back, and memory stays what it is.

        Args:
          inputs: as of `infer`; not to be changed until the future is done.

        Raises:
          UserError: as of `infer`; or the model has a state, which requests at once would mix.
        """
        if self._stateful:
            raise UserError(
                "the model keeps a state from one inference to the next, which requests at the "
                "same time would mix; use infer, one after another"
            )
        tensors = self._tensors(inputs)
        self._check_open()
        return self._serving().submit(tensors, self._check_open)

    def latencies(self) -> service.Latencies:
        """Returns how long the last requests took, from the call to their outputs."""
        return self._log.read()

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value.

        Raises:
          UserError: it is closed.
        """
        with self._lock:
            self._check_open()
            self._runner.reset_state()

    def close(self) -> None:
        """Ends all threads, after the inference that is under way and all that was submitted.

        It infers no more: calls that wait for their turn raise.

        Raises:
          UserError: it is called in a callback of a request, whose own thread it would wait for.
        """
        if self._service is not None and self._service.is_own_thread():
            raise UserError(
                "a network cannot be closed in the callback of one of its requests; close it in "
                "another thread"
            )
        self._closed = True
        with self._starting:
            if self._service is not None:
                self._service.close()
        with self._lock:
            if self._workers is not None:
                self._workers.close()
                self._workers = None

    def _tensors(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[ov.Tensor]:
        arrays = _ordered(inputs, self.names)
        return [
            _tensor(array, port, names[0])
            for array, port, names in zip(arrays, self._model.inputs, self.names, strict=True)
        ]

    def _serving(self) -> service.Service:
        """The service, from the first time that it is wanted."""
        with self._starting:
            self._check_open()
            if self._service is None:
                more = self._more() if self._more else _requests(self.compiled)
                self._service = service.Service(more, self._log)
            return self._service

    def _check_open(self) -> None:
        if self._closed:
            raise UserError("the network is closed; load it again")


def _requests(compiled: ov.CompiledModel) -> list[ov.InferRequest]:
    """As many as the device asks for; two at least, so that one is ready when another has ended."""
    count = max(AT_ONCE, compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
    return [compiled.create_infer_request() for _ in range(count)]


def _names(port: ov.Output) -> list[str]:
    """Names an input goes by, the one to show first."""
    return list(dict.fromkeys([*sorted(port.get_names()), port.get_node().get_friendly_name()]))


def _ordered(
    inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray], names: list[list[str]]
) -> list[np.ndarray]:
    """The arrays in the order of the inputs that have these names."""
    shown = ", ".join(aliases[0] for aliases in names)
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise UserError(f"{len(inputs)} inputs given; the model has {len(names)}: {shown}")
        return list(inputs)
    unknown = [name for name in inputs if not any(name in aliases for aliases in names)]
    given = [[inputs[name] for name in a if name in inputs] for a in names]
    if unknown or any(len(arrays) != 1 for arrays in given):
        raise UserError(
            f"inputs are given for {few(inputs)}; give one for each of the model's: {shown}"
        )
    return [arrays[0] for arrays in given]


def _tensor(array: np.ndarray, port: ov.Output, name: str) -> ov.Tensor:
    array, shape = np.asarray(array), tuple(port.get_shape())
    if array.shape != shape:
        raise UserError(f"input {name!r} has shape {list(array.shape)}; give {list(shape)}")
    if port.get_element_type() == ov.Type.string:
        return ov.Tensor(array)
    dtype = port.get_element_type().to_dtype()
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise UserError(f"input {name!r} is {array.dtype}; give {np.dtype(dtype).name}")
    return ov.Tensor(np.asarray(array, dtype=dtype, order="C"))  # of a scalar too
