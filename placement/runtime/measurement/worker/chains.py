"""The cost of a tensor transfer under HETERO, measured on chains of small operations."""

import math
import time
from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime.devices import Device
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement.request import TransferSamples
from placement.runtime.measurement.worker import inference
from placement.runtime.measurement.worker.loaded import LoadedModel
from placement.runtime.models.operations import constant_names

CHAIN_OPS = 9

_CONVOLUTIONS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData")
_MAX_MODEL_SHAPES = 3
# Bytes of further tensors that are transferred, because the model's may all be tiny. The cost of a
# byte shows from 64 KiB on.
_SIZES_BYTES = (2**12, 2**16, 2**20)
_CHANNELS = 16
_COPY_BYTES, _NUM_COPIES = 2**24, 5


def measure_transfers(loaded: LoadedModel, devices: Sequence[Device]) -> TransferSamples:
    """Measures the cost of a tensor transfer between two devices (median), for several sizes.

    A chain of small operations alternates between the devices. Its time is compared with the time
    of the same chain on each device alone. Both directions occur equally often, so they cannot be
    told apart and the result is symmetric.

    The result includes the launch of one more submodel and the conversion of precision where the
    devices differ in it. If the model convolves, it also includes the conversion of layout: images
    cross between devices in planar layout and are computed channels-last, and converting them takes
    longer than the transfer itself. That is why the chains have shapes of the model.
    """
    pairs = [(i, j) for j in range(len(devices)) for i in range(j)]
    samples: TransferSamples = {pair: [] for pair in pairs}
    # The alternating chain runs 5 of 9 operations on the first device and has 8 transfers.
    patterns = [0] * CHAIN_OPS, [1] * CHAIN_OPS, [i % 2 for i in range(CHAIN_OPS)]
    first_share = (CHAIN_OPS + 1) // 2 / CHAIN_OPS
    for shape in chain_shapes(loaded.model) if pairs else []:
        chain, array = build_chain(shape), np.zeros(shape, np.float32)
        for (i, j), pair_samples in samples.items():
            pair = devices[i], devices[j]
            requests = []
            for pattern in patterns:
                loaded.heartbeat.touch()
                affinity = {f"step_{op}": pair[side].name for op, side in enumerate(pattern)}
                affinity["x"] = pair[pattern[0]].name
                compiled = compile_placement(loaded.core, chain, affinity, pair)
                requests.append(inference.create_request(compiled, [array]))

            warm_up_s = max(inference.infer_s(request) for request in requests)
            transfers_s: list[float] = []
            for _ in range(inference.num_repetitions(warm_up_s)):
                loaded.heartbeat.touch()
                first_s, second_s, alternating_s = (inference.infer_s(r) for r in requests)
                expected_s = first_share * first_s + (1 - first_share) * second_s
                transfers_s.append((alternating_s - expected_s) / (CHAIN_OPS - 1))
            pair_samples.append((4 * math.prod(shape), float(np.median(transfers_s))))
    return samples


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

    They have the sizes of `_SIZES_BYTES`, such as [1, 16, 8, 8] for 2**12, and the smallest, the
    middle and the largest size of the model's tensors.
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
