"""What handing a tensor over costs under HETERO, from chains of operations on tensors of a shape.

What takes too long is cut short: a chain is not begun that would end too late, as far as the one
before tells. Only what costs cannot do without, one small chain for each pair of devices, is always
run.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
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
_MODEL_SHAPES = 6
# Of tensors that are handed over beside those of the model's own shapes, which may all be tiny:
# what a byte costs shows from 64 KiB on. The first two tell most.
_SIZES = (2**12, 2**20, 2**16)
_FEWEST_ROUNDS, _ROUNDS_OF_CHAINS = 3, 12
_CHANNELS = 16
_LAUNCHED_BYTES = 2**20
_COPIED_BYTES, _COPIES = 2**24, 5


class RawTransfers(NamedTuple):
    """What handing tensors over took between each two devices."""

    samples: dict[tuple[int, int], list[tuple[int, float]]]  # bytes and seconds
    copy_s_per_byte: float  # of copies within this machine's memory
    left_out: int  # sizes, for want of time


def measure(
    core: ov.Core,
    model: ov.Model,
    devices: Sequence[Device],
    until_s: float,
    alive: Callable[[], None],
) -> RawTransfers:
    """Measures what handing a tensor between two devices costs, at several sizes.

    A chain of small operations alternates between the devices, and its time is compared with that
    of the chain on each of them alone. Both directions occur equally often in it and cannot be told
    apart: the result is symmetric. It includes the start of one more submodel, the conversion
    between precisions where the devices compute in different ones, and between layouts where the
    model convolves: images cross planar and are computed channels last, which costs more than the
    transfer itself. So the tensors are of the model's own shapes, from its small ones to its large,
    and of sizes between which a byte's cost shows.

    Args:
      core: knows the devices.
      model: whose shapes to take.
      devices: to hand over between.
      until_s: on the monotonic clock; nothing is begun that would end later, but a small chain for
        each two devices.
      alive: called before every step that may take long.
    """
    pairs = [(i, j) for j in range(len(devices)) for i in range(j)]
    samples: dict[tuple[int, int], list[tuple[int, float]]] = {pair: [] for pair in pairs}
    handed_over = shapes(model) if pairs else []
    last_s, last_bytes = 0.0, 1
    for number, shape in enumerate(handed_over):
        begin_s, size = time.monotonic(), 4 * math.prod(shape)
        if number and begin_s + last_s * slower(size, last_bytes) > until_s:
            return RawTransfers(samples, copy_s_per_byte(), len(handed_over) - number)
        for pair, found in samples.items():
            both = devices[pair[0]], devices[pair[1]]
            until = until_s if number else math.inf
            found.append((size, _transfer_s(core, chain(shape), both, until, alive)))
        last_s, last_bytes = time.monotonic() - begin_s, size
    return RawTransfers(samples, copy_s_per_byte(), 0)


def slower(num_bytes: int, than: int) -> float:
    """Returns how many times longer a chain takes on larger tensors; on small ones it launches."""
    return max(1.0, num_bytes / max(than, _LAUNCHED_BYTES))


def copy_s_per_byte() -> float:
    """Returns the seconds of copying a byte within this machine's memory, at best."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)
    times = []
    for _ in range(_COPIES):
        begin = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - begin)
    return min(times) / _COPIED_BYTES


def shapes(model: ov.Model) -> list[tuple[int, ...]]:
    """Returns shapes of chains: of images [1, C, H, W] if the model convolves, else [rows, 16].

    Those of `_SIZES` come first, then the model's own, from the smallest.
    """
    constant, own, convolves = constant_names(model), set(), False
    for op in model.get_ordered_ops():
        convolves = convolves or op.get_type_name() in _CONVOLUTIONS
        if op.get_friendly_name() in constant or not op.outputs():
            continue
        if op.output(0).get_partial_shape().is_static:
            own.add(tuple(op.get_output_shape(0)))
    images = {shape for shape in own if len(shape) == 4 and min(shape) > 0}
    sides = [math.isqrt(size // 4 // _CHANNELS) for size in _SIZES]
    synthetic: list[tuple[int, ...]] = [(1, _CHANNELS, side, side) for side in sides]
    if convolves and images:
        own = images
    else:
        synthetic = [(size // 4 // _CHANNELS, _CHANNELS) for size in _SIZES]
        rows = {max(1, math.prod(shape) // _CHANNELS) for shape in own}
        own = {(count, _CHANNELS) for count in rows}
    ordered = sorted(own, key=math.prod)
    chosen = np.linspace(0, len(ordered) - 1, min(len(ordered), _MODEL_SHAPES)).round().astype(int)
    return list(dict.fromkeys([*synthetic, *(ordered[i] for i in chosen)]))


def chain(shape: tuple[int, ...]) -> ov.Model:
    """Makes operations that keep a shape: depthwise convolutions of images, else small products."""
    generator = np.random.default_rng(0)
    image = len(shape) == 4
    size = (shape[1], 1, 1, 1, 1) if image else (shape[-1], shape[-1])
    weights = generator.standard_normal(size).astype(np.float32)
    source = ops.parameter(shape, np.float32, name="x")
    value = source
    for i in range(CHAIN_OPS):
        constant = ops.constant(weights)
        value = (
            ops.group_convolution(value, constant, [1, 1], [0, 0], [0, 0], [1, 1])
            if image
            else ops.matmul(value, constant, False, False)
        )
        value.set_friendly_name(f"step_{i}")
    return ov.Model([value], [source], "chain")


def _transfer_s(
    core: ov.Core,
    chain: ov.Model,
    pair: tuple[Device, Device],
    until_s: float,
    alive: Callable[[], None],
) -> float:
    """Seconds that handing over a chain's tensor between two devices takes: a median of rounds."""
    array = np.zeros(tuple(chain.inputs[0].get_shape()), np.float32)
    numbers = range(CHAIN_OPS)
    requests = []
    for pattern in ([0] * CHAIN_OPS, [1] * CHAIN_OPS, [i % 2 for i in numbers]):
        alive()
        affinity = {f"step_{i}": pair[pattern[i]].name for i in numbers}
        affinity["x"] = pair[pattern[0]].name
        compiled = compile_placement(core, chain, affinity, pair)
        requests.append(inference.request(compiled, [array]))
    share = (CHAIN_OPS + 1) // 2 / CHAIN_OPS  # of the chain on the first device
    costs = []
    for number in _rounds_of_chains(until_s):
        times = []
        for request in requests:
            alive()
            times.append(inference.infer_s(request))
        if number:  # the first warms up
            alone = share * times[0] + (1 - share) * times[1]
            costs.append((times[2] - alone) / (CHAIN_OPS - 1))
    return float(np.median(costs))


def _rounds_of_chains(until_s: float) -> Iterator[int]:
    for number in range(_ROUNDS_OF_CHAINS + 1):
        if number > _FEWEST_ROUNDS and time.monotonic() > until_s:
            return
        yield number
