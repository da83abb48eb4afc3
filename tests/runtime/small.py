"""Small models that run on the real CPU plug-in in milliseconds."""

from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime import devices
from placement.runtime.devices import Device
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.local import LocalMeasurer


def convolutions(*, channels: int = 16, size: int = 14, length: int = 4) -> ov.Model:
    """A chain of 3x3 convolutions, each with a ReLU: conv_0, relu_0, conv_1, ..."""
    generator = np.random.default_rng(0)
    source = ops.parameter([1, channels, size, size], np.float32, name="x")
    value = source
    for i in range(length):
        weights = generator.standard_normal((channels, channels, 3, 3)) / (3 * channels**0.5)
        constant = ops.constant(weights.astype(np.float32), name=f"weights_{i}")
        value = ops.convolution(value, constant, [1, 1], [1, 1], [1, 1], [1, 1], name=f"conv_{i}")
        value = ops.relu(value, name=f"relu_{i}")
    result = ops.result(value, name="y")
    return ov.Model([result], [source], "convolutions")


def shared_constant() -> ov.Model:
    """Two products, first and second, with one matrix stored in f16 (matrix, unpack)."""
    matrix = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float16)
    constant = ops.constant(matrix, name="matrix")
    unpack = ops.convert(constant, np.float32, name="unpack")
    source = ops.parameter([4, 8], np.float32, name="x")
    first = ops.matmul(source, unpack, False, False, name="first")
    second = ops.matmul(first, unpack, False, False, name="second")
    return ov.Model([ops.result(second, name="y")], [source], "shared")


def diamond() -> ov.Model:
    """Products top, left and right, and the sum bottom of left and right."""
    generator = np.random.default_rng(0)

    def product(value: ov.Output, name: str) -> ov.Node:
        matrix = generator.standard_normal((8, 8)).astype(np.float32)
        return ops.matmul(value, ops.constant(matrix, name=f"m_{name}"), False, False, name=name)

    source = ops.parameter([4, 8], np.float32, name="x")
    top = product(source, "top")
    bottom = ops.add(product(top, "left"), product(top, "right"), name="bottom")
    return ov.Model([ops.result(bottom, name="y")], [source], "diamond")


def residual(*, size: int = 256, length: int = 6) -> ov.Model:
    """Blocks x + product(x) with matrices of size x size: almost all of its memory is weights."""
    generator = np.random.default_rng(0)
    source = ops.parameter([1, size], np.float32, name="x")
    value = source
    for i in range(length):
        matrix = (generator.standard_normal((size, size)) / size**0.5).astype(np.float32)
        constant = ops.constant(matrix, name=f"matrix_{i}")
        product = ops.matmul(value, constant, False, False, name=f"product_{i}")
        value = ops.add(value, product, name=f"sum_{i}")
    return ov.Model([ops.result(value, name="y")], [source], "residual")


def scaled() -> ov.Model:
    """Four numbers times a scalar input (times), and the scalar's square (square)."""
    source = ops.parameter([4], np.float32, name="x")
    scale = ops.parameter([], np.float32, name="scale")
    times = ops.result(ops.multiply(source, scale, name="times"), name="y")
    square = ops.result(ops.multiply(scale, scale, name="square"), name="z")
    return ov.Model([times, square], [source, scale], "scaled")


def rounded() -> ov.Model:
    """The input plus 64 minus 64: bf16 rounds it to steps of 0.5."""
    source = ops.parameter([64, 64], np.float32, name="x")
    eye = ops.constant(np.eye(64, dtype=np.float32), name="eye")
    raised = ops.add(source, np.float32(64), name="raised")
    near = ops.matmul(raised, eye, False, False, name="near")
    back = ops.subtract(near, np.float32(64), name="back")
    return ov.Model([ops.result(back, name="y")], [source], "rounded")


def offset(*, channels: int = 16, size: int = 16, length: int = 3) -> ov.Model:
    """A chain of convolutions; bf16 rounds the one called `mix`, around 512, to steps of 4.

    Before and after it are `length` others.
    """
    rng = np.random.default_rng(0)
    source = ops.parameter([1, channels, size, size], np.float32, name="x")

    def convolve(node: ov.Output, weights: np.ndarray, name: str) -> ov.Node:
        return ops.convolution(node, weights, [1, 1], [0, 0], [0, 0], [1, 1], name=name)

    node = source
    for i in range(2 * length):
        if i == length:
            raised = ops.add(node, np.float32(512), name="raised")
            eye = np.eye(channels, dtype=np.float32)[:, :, None, None]
            node = ops.subtract(convolve(raised, eye, "mix"), np.float32(512), name="back")
        shape = channels, channels, 1, 1
        weights = (rng.standard_normal(shape) / np.sqrt(channels)).astype(np.float32)
        node = convolve(node, weights, f"conv_{i}")
    return ov.Model([ops.result(node, name="y")], [source], "offset")


def counter() -> ov.Model:
    """A variable that grows by the input in every inference (read, sum, write)."""
    shape = ov.PartialShape([4])
    info = ov.op.util.VariableInfo()
    info.data_shape, info.data_type, info.variable_id = shape, ov.Type.f32, "state"
    variable = ov.op.util.Variable(info)
    source = ops.parameter([4], np.float32, name="x")
    zero = ops.constant(np.zeros(4, np.float32), name="zero")
    read = ov.opset6.read_value(zero, variable, name="read")
    total = ops.add(read, source, name="sum")
    write = ov.opset6.assign(total, variable)
    write.set_friendly_name("write")
    return ov.Model([ops.result(total, name="y")], [write], [source], "counter")


def tiny(*, length: int = 12) -> ov.Model:
    """A chain of sines and sums of four numbers: sine_0, sum_0, sine_1, ..."""
    source = ops.parameter([1, 4], np.float32, name="x")
    value = source
    for i in range(length):
        value = ops.add(ops.sin(value, name=f"sine_{i}"), source, name=f"sum_{i}")
    return ov.Model([ops.result(value, name="y")], [source], "tiny")


def everywhere(model: ov.Model, device: str, **others: str) -> dict[str, str]:
    """Returns an affinity with every operation on one device, except `others`.

    Constants and Results are left out.
    """
    listed = {
        op.get_friendly_name(): device
        for op in model.get_ordered_ops()
        if op.get_type_name() not in ("Constant", "Result")
    }
    return listed | others


def branches(*, size: int = 8, length: int = 3) -> ov.Model:
    """Two chains of products of the input, left_0, left_1, ... and right_0, ..., and their sum."""
    generator = np.random.default_rng(0)
    source = ops.parameter([size, size], np.float32, name="x")
    ends = []
    for side in ("left", "right"):
        value = source
        for i in range(length):
            matrix = generator.standard_normal((size, size)) / size**0.5
            constant = ops.constant(matrix.astype(np.float32), name=f"m_{side}_{i}")
            value = ops.matmul(value, constant, False, False, name=f"{side}_{i}")
        ends.append(value)
    total = ops.add(*ends, name="sum")
    return ov.Model([ops.result(total, name="y")], [source], "branches")


def in_two(length: int, left: str, right: str) -> tuple[Segment, ...]:
    """Returns segments of `branches`: a branch on each device, the sum on the first."""
    return (
        Segment(left, tuple(f"left_{i}" for i in range(length))),
        Segment(right, tuple(f"right_{i}" for i in range(length))),
        Segment(left, ("sum",)),
    )


def current_task(opened: LocalMeasurer) -> tuple[int, int] | None:
    """Returns the worker's process and the candidate that it is at (-1: none); None without one."""
    worker = opened.worker
    return None if worker is None else (worker.process.pid, worker.heartbeat.read()[0])


def outputs(
    request: ov.InferRequest | Executor, inputs: Sequence[np.ndarray], *, inferences: int = 1
) -> list[np.ndarray]:
    """Returns copies of all outputs of several successive inferences."""
    for i, array in enumerate(inputs):
        request.set_input_tensor(i, ov.Tensor(array))
    arrays = []
    for _ in range(inferences):
        request.infer()
        arrays += [np.array(tensor.data) for tensor in request.output_tensors]
    return arrays


def open_core(opened: Sequence[Device]) -> ov.Core:
    """Returns an `ov.Core` that knows the devices."""
    core = ov.Core()
    devices.register_devices(core, opened)
    return core


def reference(model: ov.Model) -> ov.CompiledModel:
    """Compiles a model for the reference device, whose outputs count as correct."""
    device = devices.reference_device()
    return ov.Core().compile_model(model, device.name, dict(device.properties))


def expected(
    model: ov.Model | ov.CompiledModel, inputs: Sequence[np.ndarray], **how: int
) -> list[np.ndarray]:
    """Returns the outputs of the reference device, from the initial state on.

    Args:
      model: a model, or the result of `reference`.
      inputs: one array for each of the model's inputs.
      **how: keyword arguments of `outputs`.
    """
    compiled = model if isinstance(model, ov.CompiledModel) else reference(model)
    return outputs(compiled.create_infer_request(), inputs, **how)
