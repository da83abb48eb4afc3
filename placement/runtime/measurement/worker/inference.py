"""Inference requests with their inputs set, their latencies and their counters."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.stream import Stream
from placement.runtime.models import outputs

AnyRequest: TypeAlias = ov.InferRequest | Executor | Stream

WARM_UP_INFERENCES = 2  # left out of timelines and counters
_MIN_REPETITIONS, _MAX_REPETITIONS = 3, 20


def create_request(
    compiled: ov.CompiledModel, inputs: Sequence[np.ndarray], *, streams: bool = False
) -> Any:
    """Creates a request with its inputs set, so that `infer()` needs no arguments.

    `streams` creates a `Stream` of as many requests as the device asks for.
    """
    request = Stream(compiled) if streams else compiled.create_infer_request()
    set_inputs(request, inputs)
    return request


def set_inputs(infer_request: AnyRequest, inputs: Sequence[np.ndarray]) -> None:
    """Sets one array for each input of the model; its memory is shared, not copied."""
    for i, array in enumerate(inputs):
        infer_request.set_input_tensor(i, ov.Tensor(array))


def infer_s(infer_request: AnyRequest) -> float:
    """Runs one inference and returns its seconds."""
    begin_s = time.perf_counter()
    infer_request.infer()
    return time.perf_counter() - begin_s


def num_repetitions(inference_s: float) -> int:
    """Returns how often to repeat an inference: for a second, but 3 to 20 times."""
    return max(_MIN_REPETITIONS, min(_MAX_REPETITIONS, int(1.0 / inference_s)))


def infer_outputs(infer_request: AnyRequest) -> list[np.ndarray]:
    """Runs one inference and returns copies of the outputs."""
    infer_request.infer()
    return [outputs.read(tensor) for tensor in infer_request.output_tensors]


def with_counters(devices: Iterable[Device]) -> list[Device]:
    """Returns the devices with the property that makes OpenVINO count every kernel's time."""
    return [
        dataclasses.replace(device, properties={**device.properties, "PERF_COUNT": True})
        for device in devices
    ]


def mean_after_warm_up(mean_s: float, warm_up_mean_s: float, num_inferences: int) -> float:
    """Returns the mean of a counter over the `num_inferences` after the warm-up.

    OpenVINO's counters give the mean over all inferences since compilation: `mean_s` at the end,
    `warm_up_mean_s` after `WARM_UP_INFERENCES`.
    """
    total_s = mean_s * (num_inferences + WARM_UP_INFERENCES)
    # The counters are rounded to microseconds, so that the difference may be negative.
    return max(0.0, (total_s - warm_up_mean_s * WARM_UP_INFERENCES) / num_inferences)
