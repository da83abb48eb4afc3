"""Inference requests with their inputs in place, their times, and their counters."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.stream import Stream

AnyRequest: TypeAlias = ov.InferRequest | Executor | Stream


def request(compiled: ov.CompiledModel, inputs: Sequence[np.ndarray]) -> ov.InferRequest:
    """Returns a request with its inputs in place, so that `infer()` needs no arguments."""
    made = compiled.create_infer_request()
    set_inputs(made, inputs)
    return made


def stream(compiled: ov.CompiledModel, inputs: Sequence[np.ndarray]) -> Stream:
    """Returns as many requests as the device asks for, with their inputs in place."""
    made = Stream(compiled)
    set_inputs(made, inputs)
    return made


def set_inputs(request: AnyRequest, inputs: Sequence[np.ndarray]) -> None:
    """Sets the inputs, one array for each of the model's; their memory is shared, not copied."""
    for i, array in enumerate(inputs):
        request.set_input_tensor(i, ov.Tensor(array))


def infer_s(request: AnyRequest) -> float:
    """Infers once; returns the seconds that it took."""
    begin = time.perf_counter()
    request.infer()
    return time.perf_counter() - begin


def outputs(request: AnyRequest) -> list[np.ndarray]:
    """Infers once; returns copies of the outputs."""
    request.infer()
    return [np.array(tensor.data) for tensor in request.output_tensors]


def with_counters(devices: Iterable[Device]) -> list[Device]:
    """Returns the devices, to be compiled for so that every kernel's time is counted."""
    return [
        dataclasses.replace(device, properties={**device.properties, "PERF_COUNT": True})
        for device in devices
    ]


def without_warm_up(mean_s: float, warm_up_mean_s: float, rounds: int, warm_up: int) -> float:
    """Returns the mean of a counter over `rounds` inferences after the `warm_up` ones.

    Args:
      mean_s: over all inferences since compilation, as counters tell.
      warm_up_mean_s: over those that warm up.
      rounds: inferences since then.
      warm_up: inferences that warm up.
    """
    return max(0.0, (mean_s * (rounds + warm_up) - warm_up_mean_s * warm_up) / rounds)
