"""The model that a worker measures, its inputs, and what the reference device makes of them."""

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, open_core, reference_device
from placement.runtime.errors import UnusableError, essence, raise_if_exhausted
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.split import Segment
from placement.runtime.execution.stream import Stream
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.measurement.worker import chains, inference
from placement.runtime.measurement.worker.heartbeat import Heartbeat
from placement.runtime.measurement.worker.inference import AnyRequest
from placement.runtime.models import colocation, outputs

_STATEFUL_INFERENCES = 4  # compared from the initial state on, of a model with variables
_KEPT_BYTES = 2 << 30  # of weights in the compiled models that are kept


class OverError(Exception):
    """Compiling was given up: the time for it is over."""


class LoadedModel:
    """What lasts from request to request: the core, the model and the reference outputs."""

    def __init__(self, directory: Path, heartbeat: Heartbeat):
        """Reads the model and its inputs, and runs them on the reference device.

        Raises:
          UnusableError: that device cannot.
          RuntimeError: OpenVINO's own.
        """
        self.core = open_core([])
        self.model = self.core.read_model(directory / "model.xml")
        with np.load(directory / "inputs.npz") as arrays:
            stored = [arrays[name] for name in arrays.files]
        size = max(1, len(self.model.inputs))
        self._samples = [stored[i : i + size] for i in range(0, len(stored), size)] or [[]]
        self.inputs = self._samples[0]  # what is timed
        self.stateful = colocation.is_stateful(self.model)
        self.workers = Workers()
        self.compile_until_s = math.inf  # on the monotonic clock: submodels are given up then
        self._heartbeat = heartbeat
        self._submodels = Submodels(self.core, self.model, alive=self._compiling)
        self._quantised = outputs.is_quantised(self.model)
        self._compiled: dict[tuple[object, ...], ov.CompiledModel] = {}
        weights = (directory / "model.bin").stat().st_size
        self._most_compiled = max(1, _KEPT_BYTES // max(1, 2 * weights))
        begin_s = time.monotonic()
        compiled = self.compiled(None, [reference_device()])
        self.compile_s = time.monotonic() - begin_s  # what compiling the model takes, roughly
        try:
            self._references = list(self._all_outputs(self.request(compiled)))
        except RuntimeError as error:
            raise_if_exhausted(error)
            raise UnusableError(essence(error)) from error

    def compiled(self, affinity: Affinity | None, devices: Sequence[Device]) -> ov.CompiledModel:
        """Returns the model compiled for a placement (`compile_placement`).

        A model compiled for one device is kept: most steps of a run need it, and compiling
        thousands of operations takes seconds.
        """
        used = {device.name for device in devices} if affinity is None else {*affinity.values()}
        if len(used) != 1:
            return compile_placement(self.core, self.model, affinity, devices)
        labels = None if affinity is None else frozenset(affinity.items())
        key = (labels, *((device.name, repr(dict(device.properties))) for device in devices))
        compiled = self._compiled.pop(key, None)
        if compiled is None:
            compiled = compile_placement(self.core, self.model, affinity, devices)
        while len(self._compiled) >= self._most_compiled:
            del self._compiled[next(iter(self._compiled))]  # that which was used the longest ago
        self._compiled[key] = compiled
        return compiled

    def request(self, compiled: ov.CompiledModel) -> ov.InferRequest:
        """Returns a request with the inputs that are timed."""
        return inference.request(compiled, self.inputs)

    def stream(self, compiled: ov.CompiledModel) -> Stream:
        """Returns a stream of requests with the inputs that are timed."""
        return inference.stream(compiled, self.inputs)

    def executor(
        self,
        segments: Sequence[Segment],
        devices: Sequence[Device],
        num_requests: int = 1,
        shape: tuple[int, ...] | None = None,
    ) -> Executor:
        """Returns an executor with its inputs in place, of the model or of a chain of a shape.

        Raises:
          OverError: `compile_until_s` is over.
          UserError: the segments do not fit the model.
          RuntimeError: OpenVINO's own.
        """
        self._compiling(0.0)
        submodels, inputs = self._submodels, self.inputs
        if shape is not None:
            submodels = Submodels(
                self.core, chains.chain(shape), alive=lambda _: self._compiling(0.0)
            )
            inputs = [np.zeros(shape, np.float32)]
        executor = Executor(submodels, segments, devices, self.workers, num_requests=num_requests)
        inference.set_inputs(executor, inputs)
        return executor

    def compare(
        self, request: AnyRequest, devices: Sequence[Device]
    ) -> tuple[outputs.Comparison, outputs.Checked]:
        """Returns the worst of what differs from the reference over all inputs, and its judgement.

        Args:
          request: of the model.
          devices: that compute in it.
        """
        pairs = zip(self._references, self._all_outputs(request), strict=True)
        compared = [outputs.compare(reference, arrays) for reference, arrays in pairs]
        worst = outputs.Comparison(*map(max, zip(*compared, strict=True)))
        allowed = outputs.tolerance(devices, quantised=self._quantised)
        return worst, outputs.Checked(worst.error, allowed)

    def _compiling(self, share: float) -> None:
        """Raises an `OverError` if there is no time to compile this share of the model."""
        self._heartbeat.touch()
        if time.monotonic() + share * self.compile_s > self.compile_until_s:
            raise OverError

    def _all_outputs(self, request: AnyRequest) -> Iterator[list[np.ndarray]]:
        """Its outputs on all inputs, in turn; then it has those that are timed again."""
        for arrays in self._samples:
            inference.set_inputs(request, arrays)
            yield self._outputs(request)
        inference.set_inputs(request, self.inputs)

    def _outputs(self, request: AnyRequest) -> list[np.ndarray]:
        """All outputs; of a model with variables those of several inferences, as a state that is
        not carried over shows in the second only.
        """
        if not self.stateful:
            return inference.outputs(request)
        request.reset_state()
        several = [a for _ in range(_STATEFUL_INFERENCES) for a in inference.outputs(request)]
        request.reset_state()
        return several
