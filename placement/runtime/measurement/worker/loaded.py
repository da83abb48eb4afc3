"""The model that a worker measures, its inputs, and the outputs of the reference device."""

import contextlib
import functools
import math
import pickle
import time
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np
import openvino as ov

from placement.runtime import processors
from placement.runtime.devices import Device, reference_device
from placement.runtime.errors import (
    FailedError,
    UnusableError,
    raise_if_exhausted,
    summarise_error,
)
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.measurement.request import TIME_LIMIT
from placement.runtime.measurement.worker import inference
from placement.runtime.measurement.worker.channel import Heartbeat
from placement.runtime.measurement.worker.inference import AnyRequest
from placement.runtime.models import colocation, operations, outputs
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.inputs import Inputs

_STATEFUL_INFERENCES = 4  # compared for a model with variables, from the initial state on
_CACHE_BYTES = 2 << 30  # limit on the weights of the cached compiled models

# Operations whose outputs can differ from inference to inference: the first types draw numbers, and
# a loop without iterations does not write some of its outputs.
_DRAWING_TYPES, _LOOP_TYPES = ("RandomUniform", "Multinomial"), ("Loop", "TensorIterator")
_DRAWING_INFERENCES = 8  # per sample; equal outputs of so many inferences are not by chance

_LONG_S = 0.02  # an inference that takes longer hardly depends on what the caches hold before it
_NO_TIME = "no time was left to compile its submodels; set a longer time limit"


class LoadedModel:
    """The state that lasts from request to request: core, model and reference outputs."""

    def __init__(self, directory: Path):
        """Reads the model and its inputs, and runs them on the reference device.

        Raises:
          UnusableError: that device cannot compile or run them, or does not repeat its outputs.
          RuntimeError: OpenVINO's own.
        """
        self.heartbeat = Heartbeat(directory)
        self.heartbeat.set(-1, "open")
        self.core = ov.Core()
        self.model = self.core.read_model(directory / "model.xml")
        inputs: Inputs = pickle.loads((directory / "inputs.pickle").read_bytes())
        self._samples, self._max_error = inputs.samples, inputs.max_error
        self.inputs = self._samples[0]  # the sample that is timed; outputs are checked on all
        self.stateful = colocation.is_stateful(self.model)
        self._workers = Workers()
        self.compile_deadline_s = math.inf  # on the monotonic clock
        self._submodels = Submodels(self.core, self.model, alive=self.check_compile_time)
        self._is_quantised = outputs.is_quantised(self.model)
        weights_bytes = (directory / "model.bin").stat().st_size
        cache_size = max(1, _CACHE_BYTES // max(1, 2 * weights_bytes))
        self._compile_cached = functools.lru_cache(cache_size)(
            lambda labels, devices: compile_placement(
                self.core, self.model, None if labels is None else dict(labels), devices
            )
        )
        types = {op.get_type_name() for op in operations.all_ops(self.model)}
        varying_types = types.intersection(_DRAWING_TYPES + _LOOP_TYPES)
        # Memory that a loop does not write is made to differ between the two compiled models.
        fill_memory = processors.filled_memory if varying_types else contextlib.nullcontext
        device = reference_device()
        stage, remedy = "compile the model", "change that part of it and export it again"
        try:
            with fill_memory(0x40):  # 3.0 in f32, 2.1 in f16
                begin_s = time.monotonic()
                compiled = self.compiled(None, [device])
                self.compile_s = time.monotonic() - begin_s  # rough compile time of the whole model
                stage = f"run the model on its inputs ({inputs.description})"
                remedy = "set others, such as input_values='length:12'"
                request = inference.create_request(compiled, self.inputs)
                self._reference_outputs = [self._infer_sample(request, s) for s in self._samples]
            with fill_memory(0xC0):  # -3.0 in f32, -2.4 in f16
                if varying_types:
                    compiled = compile_placement(self.core, self.model, None, [device])
                    request = inference.create_request(compiled, self.inputs)
                self._check_repetition(request, varying_types)
        except RuntimeError as error:
            raise_if_exhausted(error)
            if device.name not in self.core.available_devices:
                raise
            raise UnusableError(
                f"the plain CPU cannot {stage}: {summarise_error(error)}; {remedy}"
            ) from error

    def _check_repetition(self, request: AnyRequest, varying_types: Set[str]) -> None:
        """Compares the reference outputs with those of another request of the reference device.

        The request has had no inferences if the model has operations of `varying_types`, whose
        outputs can vary. A difference is an UnusableError that names these operations.
        """
        is_drawing = not varying_types.isdisjoint(_DRAWING_TYPES)
        tolerance = self._tolerance([reference_device()])
        samples = list(zip(self._samples, self._reference_outputs, strict=True))
        differing: set[int] = set()
        for _ in range(_DRAWING_INFERENCES if is_drawing else 1):
            # In reverse, so that the inferences before are others than before the reference.
            for arrays, reference in reversed(samples if varying_types else samples[:1]):
                repeated = self._infer_sample(request, arrays)
                differing |= {
                    i % len(self.model.outputs)
                    for i, (a, b) in enumerate(zip(reference, repeated, strict=True))
                    if outputs.compare([a], [b]).error > tolerance
                }
            if differing:
                break
        else:
            return
        ports = [self.model.outputs[i] for i in sorted(differing)]
        names = quote_names(sorted(port.get_names())[0] for port in ports)
        ordered_ops = self.model.get_ordered_ops()
        ancestors = {port.get_node().get_friendly_name() for port in ports}
        for op in reversed(ordered_ops):
            if op.get_friendly_name() in ancestors:
                ancestors.update(map(operations.source_name, op.inputs()))
        loops_and_drawing = [
            inner
            for op in ordered_ops
            if op.get_friendly_name() in ancestors or self.stateful
            for inner in operations.with_bodies(op)
            if inner.get_type_name() in _DRAWING_TYPES + _LOOP_TYPES
        ]
        drawing = [op for op in loops_and_drawing if op.get_type_name() in _DRAWING_TYPES]
        causes = ", ".join(
            f"{op.get_type_name()} {op.get_friendly_name()!r}"
            for op in (drawing or loops_and_drawing)[:3]
        )
        remedy = "set inputs with which they repeat: inputs='FILE.npz'"
        if drawing:
            remedy = "export the model without random numbers"
        raise UnusableError(
            f"two inferences of the plain CPU with equal inputs differ in the outputs {names}"
            f"{causes and f', because of {causes}'}: no placement can be checked; {remedy}"
        )

    def compiled(self, affinity: Affinity | None, devices: Sequence[Device]) -> ov.CompiledModel:
        """Returns the model compiled for a placement (`compile_placement`).

        Models compiled for one device are cached: most steps of a run need them, and compiling
        thousands of operations takes seconds.
        """
        used = {device.name for device in devices} if affinity is None else {*affinity.values()}
        if len(used) != 1:
            return compile_placement(self.core, self.model, affinity, devices)
        labels = None if affinity is None else frozenset(affinity.items())
        return self._compile_cached(labels, tuple(devices))

    def request(self, affinity: Affinity | None, devices: Sequence[Device]) -> ov.InferRequest:
        """Returns a request of `compiled` with its inputs set."""
        return inference.create_request(self.compiled(affinity, devices), self.inputs)

    def executor(
        self, segments: Sequence[Segment], devices: Sequence[Device], *, num_requests: int = 1
    ) -> Executor:
        """Returns an executor with its inputs set.

        Raises:
          FailedError: `compile_deadline_s` would pass.
          UserError: the segments do not fit the model.
        """
        executor = Executor(
            self._submodels, segments, devices, self._workers, num_requests=num_requests
        )
        inference.set_inputs(executor, self.inputs)
        return executor

    def infer_s(self, request: AnyRequest) -> float:
        """Runs one inference from the initial state, and returns its seconds."""
        self.heartbeat.touch()
        if self.stateful:  # a growing state would make every inference slower than the last
            request.reset_state()
        return inference.infer_s(request)

    def warm_s(self, request: AnyRequest) -> float:
        """Returns the seconds of an inference that finds the caches as one before it left them.

        So does a service that repeats one model. After other models an inference takes up to a
        tenth longer, but not if it takes long; such an inference is not repeated.
        """
        seconds = self.infer_s(request)
        return seconds if seconds > _LONG_S else self.infer_s(request)

    def compare(
        self, request: AnyRequest, devices: Sequence[Device], num_samples: int | None = None
    ) -> outputs.OutputCheck:
        """Returns the worst comparison with the reference outputs over the inputs.

        The precisions of the devices that compute set the tolerance.
        """
        samples = list(zip(self._samples, self._reference_outputs, strict=True))[:num_samples]
        errors = [
            outputs.compare(reference, self._infer_sample(request, arrays)).error
            for arrays, reference in samples
        ]
        inference.set_inputs(request, self.inputs)
        return outputs.OutputCheck(max(errors), self._tolerance(devices))

    def _tolerance(self, devices: Sequence[Device]) -> float:
        return outputs.tolerance(devices, quantised=self._is_quantised, max_error=self._max_error)

    def drop_compiled(self) -> None:
        """Empties the caches after an inference that failed, which may leave models broken."""
        self._compile_cached.cache_clear()
        self._submodels = Submodels(self.core, self.model, alive=self.check_compile_time)

    def check_compile_time(self, share: float) -> None:
        """Raises a FailedError if no time is left to compile this share of the model."""
        self.heartbeat.touch()
        if time.monotonic() + share * self.compile_s > self.compile_deadline_s:
            raise FailedError(TIME_LIMIT, _NO_TIME)

    def _infer_sample(self, request: AnyRequest, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs for a sample, which stays set as the inputs.

        A model with variables runs several inferences, because a state that is not carried over
        shows only from the second one on.
        """
        self.heartbeat.touch()
        inference.set_inputs(request, arrays)
        if not self.stateful:
            return inference.infer_outputs(request)
        request.reset_state()
        arrays = [a for _ in range(_STATEFUL_INFERENCES) for a in inference.infer_outputs(request)]
        request.reset_state()
        return arrays
