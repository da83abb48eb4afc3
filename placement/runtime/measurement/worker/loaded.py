"""The model that a worker measures, its inputs, and the outputs of the reference device."""

import functools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, open_core, reference_device
from placement.runtime.errors import UnusableError, raise_if_exhausted, summarise_error
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.measurement.worker import chains, inference
from placement.runtime.measurement.worker.heartbeat import Heartbeat
from placement.runtime.measurement.worker.inference import AnyRequest
from placement.runtime.models import colocation, outputs

_STATEFUL_INFERENCES = 4  # compared for a model with variables, from the initial state on
_CACHE_BYTES = 2 << 30  # limit on the weights of the cached compiled models


class CompileDeadlineError(Exception):
    """Compiling was given up because its time is over."""


class LoadedModel:
    """The state that lasts from request to request: core, model and reference outputs."""

    def __init__(self, directory: Path, heartbeat: Heartbeat):
        """Reads the model and its inputs, and runs them on the reference device.

        Raises:
          UnusableError: that device cannot run them.
          RuntimeError: OpenVINO's own.
        """
        self.core = open_core([])
        self.model = self.core.read_model(directory / "model.xml")
        with np.load(directory / "inputs.npz") as npz:
            self._max_error = float(npz["max_error"])
            arrays = [npz[name] for name in npz.files if name != "max_error"]
        num_inputs = max(1, len(self.model.inputs))
        self._samples = [arrays[i : i + num_inputs] for i in range(0, len(arrays), num_inputs)] or [
            []
        ]
        self.inputs = self._samples[0]  # the sample that is timed; outputs are checked on all
        self.stateful = colocation.is_stateful(self.model)
        self._workers = Workers()
        self._compile_deadline_s = math.inf  # on the monotonic clock
        self._heartbeat = heartbeat
        self._submodels = Submodels(self.core, self.model, alive=self._before_compiling)
        self._is_quantised = outputs.is_quantised(self.model)
        weights_bytes = (directory / "model.bin").stat().st_size
        cache_size = max(1, _CACHE_BYTES // max(1, 2 * weights_bytes))
        self._compile_cached = functools.lru_cache(cache_size)(
            lambda labels, devices: compile_placement(
                self.core, self.model, None if labels is None else dict(labels), devices
            )
        )
        begin_s = time.monotonic()
        compiled = self.compiled(None, [reference_device()])
        self.compile_s = time.monotonic() - begin_s  # rough compile time of the whole model
        try:
            reference_request = inference.create_request(compiled, self.inputs)
            self._reference_outputs = list(self._outputs_of_samples(reference_request))
        except RuntimeError as error:
            raise_if_exhausted(error)
            raise UnusableError(summarise_error(error)) from error

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

    def executor(
        self,
        segments: Sequence[Segment],
        devices: Sequence[Device],
        *,
        num_requests: int = 1,
        shape: tuple[int, ...] | None = None,
        deadline_s: float = math.inf,
    ) -> Executor:
        """Returns an executor with its inputs set.

        Args:
          segments: see `split.split`.
          devices: those that the segments name, at least.
          num_requests: number of requests that may be in flight at once.
          shape: None for the model; else a chain of operations on tensors of this shape.
          deadline_s: limit on compiling, on the monotonic clock.

        Raises:
          CompileDeadlineError: the deadline has passed, or would pass.
          UserError: the segments do not fit the model.
          RuntimeError: OpenVINO's own.
        """
        self._compile_deadline_s = deadline_s
        try:
            self._before_compiling(0.0)
            submodels, inputs = self._submodels, self.inputs
            if shape is not None:
                submodels = Submodels(
                    self.core,
                    chains.build_chain(shape),
                    alive=lambda _: self._before_compiling(0.0),
                )
                inputs = [np.zeros(shape, np.float32)]
            executor = Executor(
                submodels, segments, devices, self._workers, num_requests=num_requests
            )
        finally:
            self._compile_deadline_s = math.inf
        inference.set_inputs(executor, inputs)
        return executor

    def compare(
        self, request: AnyRequest, devices: Sequence[Device], num_samples: int | None = None
    ) -> outputs.OutputCheck:
        """Returns the worst comparison with the reference outputs over the inputs.

        Args:
          request: runs the model.
          devices: the devices that compute in it; their precisions set the tolerance.
          num_samples: how many of the first samples to compare; None: all.
        """
        references = self._reference_outputs[:num_samples]
        pairs = zip(references, self._outputs_of_samples(request, num_samples), strict=True)
        comparisons = [outputs.compare(reference, arrays) for reference, arrays in pairs]
        error, nan_share = map(max, zip(*comparisons, strict=True))
        tolerance = outputs.tolerance(
            devices, quantised=self._is_quantised, max_error=self._max_error
        )
        return outputs.OutputCheck(error, nan_share, tolerance)

    def _before_compiling(self, share: float) -> None:
        """Raises a `CompileDeadlineError` if no time is left to compile this share of the model."""
        self._heartbeat.touch()
        if time.monotonic() + share * self.compile_s > self._compile_deadline_s:
            raise CompileDeadlineError

    def _outputs_of_samples(
        self, request: AnyRequest, num_samples: int | None = None
    ) -> Iterator[list[np.ndarray]]:
        """Yields the outputs for the first samples, by default for all.

        Afterwards the request has the timed inputs again.

        A model with variables runs several inferences per sample, because a state that is not
        carried over shows only from the second one on.
        """
        for arrays in self._samples[:num_samples]:
            inference.set_inputs(request, arrays)
            if not self.stateful:
                yield inference.infer_outputs(request)
                continue
            request.reset_state()
            arrays = [
                a for _ in range(_STATEFUL_INFERENCES) for a in inference.infer_outputs(request)
            ]
            request.reset_state()
            yield arrays
        inference.set_inputs(request, self.inputs)
