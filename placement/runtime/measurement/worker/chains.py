"""The cost of a tensor transfer under HETERO, measured on chains of small operations.

A time limit shortens the measurement: a chain does not start if it would end too late, judged by
the duration of the chain before. The cost model needs at least one small chain for each pair of
devices; these always run.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime.devices import Device
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement.worker import inference
from placement.runtime.models.operations import constant_names

CHAIN_OPS = 9

_CONVOLUTIONS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData")
_MAX_MODEL_SHAPES = 6
# Bytes of further tensors that are transferred, because the model's may all be tiny. The cost of a
# byte shows from 64 KiB on. The first two sizes are the most informative ones.
_SIZES_BYTES = (2**12, 2**20, 2**16)
_MIN_ROUNDS, _MAX_ROUNDS = 3, 12
_CHANNELS = 16
_LAUNCH_BOUND_BYTES = 2**20  # below this size a chain's time is mostly that of its launches
_COPY_BYTES, _NUM_COPIES = 2**24, 5


class RawTransfers(NamedTuple):
    """Measured transfers between all pairs of devices."""

    samples: dict[tuple[int, int], list[tuple[int, float]]]  # bytes and seconds
    copy_s_per_byte: float  # of copies within this machine's memory
    left_out: int  # number of sizes that the time limit left out


def measure_transfers(
    core: ov.Core,
    model: ov.Model,
    devices: Sequence[Device],
    deadline_s: float,
    keep_alive: Callable[[], None],
) -> RawTransfers:
    """Measures the cost of a tensor transfer between two devices, for several sizes.

    A chain of small operations alternates between the devices. Its time is compared with the time
    of the same chain on each device alone. Both directions occur equally often, so they cannot be
    told apart and the result is symmetric.

    The result includes the launch of one more submodel and the conversion of precision where the
    devices differ in it. If the model convolves, it also includes the conversion of layout: images
    cross between devices in planar layout and are computed channels-last, and converting them takes
    longer than the transfer itself. That is why the chains have shapes of the model.

    Args:
      core: knows the devices.
      model: provides the shapes.
      devices: the devices to transfer between.
      deadline_s: on the monotonic clock. Nothing starts that would end later, except a few
        inferences of one small chain for each pair of devices.
      keep_alive: called before every step that may take long.
    """
    pairs = [(i, j) for j in range(len(devices)) for i in range(j)]
    samples: dict[tuple[int, int], list[tuple[int, float]]] = {pair: [] for pair in pairs}
    shapes = chain_shapes(model) if pairs else []
    for number, (shape, num_bytes, predicted_s) in enumerate(predict_durations(shapes)):
        if number and time.monotonic() + predicted_s > deadline_s:
            return RawTransfers(samples, copy_s_per_byte(), len(shapes) - number)
        for (i, j), pair_samples in samples.items():
            transfer_s = _measure_transfer(
                core, build_chain(shape), (devices[i], devices[j]), deadline_s, keep_alive
            )
            pair_samples.append((num_bytes, transfer_s))
    return RawTransfers(samples, copy_s_per_byte(), 0)


def predict_durations(
    shapes: Iterable[tuple[int, ...]],
) -> Iterator[tuple[tuple[int, ...], int, float]]:
    """Yields shapes of chains, the bytes of their tensors, and predicted seconds.

    The prediction is judged by the time that the caller takes for the shape before; at first 0.
    """
    last_duration_s, last_bytes = 0.0, 1
    for shape in shapes:
        begin_s, num_bytes = time.monotonic(), 4 * math.prod(shape)
        ratio = max(1.0, num_bytes / max(last_bytes, _LAUNCH_BOUND_BYTES))
        yield shape, num_bytes, last_duration_s * ratio
        last_duration_s, last_bytes = time.monotonic() - begin_s, num_bytes


def copy_s_per_byte() -> float:
    """Returns the least seconds per byte of a few copies within this machine's memory."""
    source = np.ones(_COPY_BYTES, np.uint8)
    target = np.zeros_like(source)
    durations_s = []
    for _ in range(_NUM_COPIES):
        begin_s = time.perf_counter()
        np.copyto(target, source)
        durations_s.append(time.perf_counter() - begin_s)
    return min(durations_s) / _COPY_BYTES


def chain_shapes(model: ov.Model) -> list[tuple[int, ...]]:
    """Returns shapes of chains: images [1, C, H, W] if the model convolves, else [rows, 16].

    Those of `_SIZES_BYTES` come first, such as [1, 16, 8, 8] for 2**12, then some of the model's
    own from the smallest to the largest.
    """
    constant, model_shapes, convolves = constant_names(model), set(), False
    for op in model.get_ordered_ops():
        convolves = convolves or op.get_type_name() in _CONVOLUTIONS
        if op.get_friendly_name() in constant or not op.outputs():
            continue
        if op.output(0).get_partial_shape().is_static:
            model_shapes.add(tuple(op.get_output_shape(0)))
    images = {shape for shape in model_shapes if len(shape) == 4 and min(shape) > 0}
    fixed_shapes: list[tuple[int, ...]]
    ordered: list[tuple[int, ...]]
    elements_per_channel = [size // 4 // _CHANNELS for size in _SIZES_BYTES]  # 4 bytes for an f32
    if convolves and images:
        sides = [math.isqrt(count) for count in elements_per_channel]
        fixed_shapes = [(1, _CHANNELS, side, side) for side in sides]
        ordered = sorted(images, key=math.prod)
    else:
        fixed_shapes = [(count, _CHANNELS) for count in elements_per_channel]
        rows = {max(1, math.prod(shape) // _CHANNELS) for shape in model_shapes}
        ordered = [(count, _CHANNELS) for count in sorted(rows)]
    num_selected = min(len(ordered), _MAX_MODEL_SHAPES)
    selected = np.linspace(0, len(ordered) - 1, num_selected).round().astype(int)
    return list(dict.fromkeys([*fixed_shapes, *(ordered[i] for i in selected)]))


def build_chain(shape: tuple[int, ...]) -> ov.Model:
    """Builds a chain of operations 'step_0', 'step_1', ... that keep a shape.

    These are depthwise convolutions for images [1, C, H, W], else products with a small matrix.
    """
    generator = np.random.default_rng(0)
    is_image = len(shape) == 4
    weights_shape = (shape[1], 1, 1, 1, 1) if is_image else (shape[-1], shape[-1])
    weights = generator.standard_normal(weights_shape).astype(np.float32)
    source = ops.parameter(shape, np.float32, name="x")
    value = source
    for i in range(CHAIN_OPS):
        constant = ops.constant(weights)
        value = (
            ops.group_convolution(value, constant, [1, 1], [0, 0], [0, 0], [1, 1])
            if is_image
            else ops.matmul(value, constant, False, False)
        )
        value.set_friendly_name(f"step_{i}")
    return ov.Model([value], [source], "chain")


def _measure_transfer(
    core: ov.Core,
    chain: ov.Model,
    pair: tuple[Device, Device],
    deadline_s: float,
    keep_alive: Callable[[], None],
) -> float:
    """Returns the seconds of one transfer of a chain's tensor between two devices (median)."""
    array = np.zeros(tuple(chain.inputs[0].get_shape()), np.float32)
    requests = []
    for pattern in ([0] * CHAIN_OPS, [1] * CHAIN_OPS, [i % 2 for i in range(CHAIN_OPS)]):
        keep_alive()
        affinity = {f"step_{i}": pair[pattern[i]].name for i in range(CHAIN_OPS)}
        affinity["x"] = pair[pattern[0]].name
        compiled = compile_placement(core, chain, affinity, pair)
        requests.append(inference.create_request(compiled, [array]))
    # The alternating chain runs 5 of 9 operations on the first device and has 8 transfers.
    first_share = (CHAIN_OPS + 1) // 2 / CHAIN_OPS
    transfers_s: list[float] = []
    for number in range(_MAX_ROUNDS + 1):  # round 0 warms up
        if number > _MIN_ROUNDS and time.monotonic() > deadline_s:
            break
        chains_s = []
        for request in requests:
            keep_alive()
            chains_s.append(inference.infer_s(request))
        if number:
            expected_s = first_share * chains_s[0] + (1 - first_share) * chains_s[1]
            transfers_s.append((chains_s[2] - expected_s) / (CHAIN_OPS - 1))
    return float(np.median(transfers_s))
