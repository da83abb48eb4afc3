"""What a model costs on a device, kernel by kernel, and what handing a tensor over costs.

The plug-in runs several operations as one kernel and tells which (`originalLayersNames` of its
execution graph), but not for all: a MatMul with a bias goes by the name of the addition, and a
rewritten operation by a name of the rewriting. So, in this order,

- a kernel has the operations that it names;
- an executed node that names none of the model's (a Reorder, a Convert, a rewritten operation)
  belongs to the kernel that reads it, or at the model's end to the one that it reads;
- an operation that no kernel names belongs to the kernel that all its readers belong to.

This module runs in the worker process and loads no JAX: `measure.LocalMeasurer` makes the project's
types of what it returns.

What takes too long is cut short: an inference or a chain is not begun that would end too late, as
far as the one before tells. Only what costs cannot do without, an inference on each device and one
small chain for each pair of them, is always run.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime.devices import Device, reference_device
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.models import colocation
from placement.runtime.models.operations import constant_names

Kernels = tuple[tuple[tuple[str, ...], float], ...]

ROUNDS = (5, 500)  # inferences on each device: at least, where time allows, and at most
CHAIN_OPS = 9

_WARM_UP = 2
_CONVOLUTIONS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData")
_MODEL_SHAPES = 6
# Of tensors that are handed over beside those of the model's own shapes, which may all be tiny:
# what a byte costs shows from 64 KiB on. The first two tell most.
_SIZES = (2**12, 2**20, 2**16)
_FEWEST_ROUNDS, _ROUNDS_OF_CHAINS = 3, 12
_CHANNELS = 16
_LAUNCHED_BYTES = 2**20
_COPIED_BYTES, _COPIES = 2**24, 5


class RawProfile(NamedTuple):
    """The fields of `costs.tables.DeviceProfile` but its name."""

    latency_s: float
    kernels: Kernels
    unsupported: frozenset[str]


class _Node(NamedTuple):
    """A node of an execution graph."""

    names: tuple[str, ...]  # operations of the model that it runs
    seconds: float
    reads: tuple[int, ...]  # nodes


class Profiled(NamedTuple):
    """What the devices cost, and how well that is known."""

    devices: list[RawProfile]
    rounds: int  # inferences on each device; 0: only those that warm up
    latencies_s: list[np.ndarray]  # float64 [rounds] of each device; without a warm-up


class RawTransfers(NamedTuple):
    """What handing tensors over took between each two devices."""

    samples: dict[tuple[int, int], list[tuple[int, float]]]  # bytes and seconds
    copy_s_per_byte: float  # of copies within this machine's memory
    left_out: int  # sizes, for want of time


class _Subject:
    """A device under profile: the model compiled without and with counters."""

    def __init__(
        self, core: ov.Core, model: ov.Model, inputs: Sequence[np.ndarray], device: Device
    ):
        """Compiles it with counters; what the device does not support is for the plain CPU."""
        self.unsupported = unsupported(core, model, device.name)
        self.samples: list[float] = []  # seconds of inferences, without counters if there are such
        self.inferences = 0  # with counters
        self.early: list[_Node] = []  # as counted while it warmed up
        self._given = core, model, inputs
        self._stateful = colocation.is_stateful(model)
        self._devices, self._affinity = alone(core, model, device)
        self.compiled = self._compile(PERF_COUNT=True)
        self._counted = _request(self.compiled, inputs)
        self._plain: ov.InferRequest | None = None

    def prepare(self) -> None:
        """Compiles it without counters too."""
        self._plain = _request(self._compile(), self._given[2])

    def count(self) -> float:
        """Infers with counters; seconds."""
        self.inferences += 1
        return self._infer(self._counted)

    def infer(self) -> float:
        """Infers both ways; seconds that both took."""
        counted_s = self.count()
        self.samples.append(self._infer(self._plain) if self._plain else counted_s)
        return counted_s + self.samples[-1]

    def _compile(self, **properties: bool) -> ov.CompiledModel:
        core, model, _ = self._given
        devices = [
            dataclasses.replace(each, properties={**each.properties, **properties})
            for each in self._devices
        ]
        return compile_placement(core, model, self._affinity, devices)

    def _infer(self, request: ov.InferRequest) -> float:
        if self._stateful:  # or what grows would make every inference slower than the one before
            request.reset_state()
        begin = time.perf_counter()
        request.infer()
        return time.perf_counter() - begin


def profile_devices(
    core: ov.Core,
    model: ov.Model,
    inputs: Sequence[np.ndarray],
    devices: Sequence[Device],
    seconds: float,
    until_s: float,
    alive: Callable[[], None],
) -> Profiled:
    """Profiles a model on each device, the inferences of all interleaved.

    The latency is the median of inferences without counters. What a device does not support runs
    on the plain CPU meanwhile, and is left out of its kernels; its latency is then their sum. Where
    time is over before they are warm, what the last inference took has to do.

    Args:
      core: knows the devices.
      model: static, with unique friendly names.
      inputs: one array for each of the model's.
      devices: where to run it.
      seconds: of inference, roughly, over all devices.
      until_s: on the monotonic clock; nothing is begun that would end later, but one inference on
        each device.
      alive: called before every step that may take long.
    """
    subjects = []
    for device in devices:
        alive()
        subjects.append(_Subject(core, model, inputs, device))
    first_s = []
    for subject in subjects:
        alive()
        first_s.append(subject.count())
    if time.monotonic() + 2 * sum(first_s) < until_s:
        for subject in subjects:
            alive()
            subject.prepare()
        _repeat(model, subjects, seconds, until_s, alive)
    found = []
    for subject, once_s in zip(subjects, first_s, strict=True):
        nodes, rounds = _nodes(model, subject.compiled), subject.inferences - _WARM_UP
        if subject.early and rounds:
            nodes = _without_warm_up(subject.early, nodes, rounds)
        kernels = _kernels(model, nodes, subject.unsupported)
        warm_s = subject.samples[_WARM_UP - 1 :] or subject.samples[-1:] or [once_s]
        latency = sum(s for _, s in kernels) if subject.unsupported else float(np.median(warm_s))
        found.append(RawProfile(latency, _counted(kernels, latency), subject.unsupported))
    latencies_s = [np.array(subject.samples[_WARM_UP - 1 :]) for subject in subjects]
    return Profiled(found, min(map(len, latencies_s)), latencies_s)


def _repeat(
    model: ov.Model,
    subjects: Sequence[_Subject],
    seconds: float,
    until_s: float,
    alive: Callable[[], None],
) -> None:
    """Infers on one device after the other until there are enough inferences, or time is over."""
    start, rounds, last_s = time.perf_counter(), 1 - _WARM_UP, 0.0
    while rounds < ROUNDS[0] or (rounds < ROUNDS[1] and time.perf_counter() - start < seconds):
        if time.monotonic() + last_s > until_s:
            return
        last_s = 0.0
        for subject in subjects:
            alive()
            last_s += subject.infer()
        rounds += 1
        if rounds == 0:
            start = time.perf_counter()
            for subject in subjects:
                subject.early = _nodes(model, subject.compiled)


def unsupported(core: ov.Core, model: ov.Model, device: str) -> frozenset[str]:
    """Names of the operations, constants aside, that a device cannot run."""
    names = {op.get_friendly_name() for op in model.get_ordered_ops()}
    return frozenset(names - set(core.query_model(model, device)) - constant_names(model))


def alone(
    core: ov.Core, model: ov.Model, device: Device
) -> tuple[list[Device], dict[str, str] | None]:
    """What runs a model on a device: it alone, or where it lacks operations the plain CPU, too.

    Returns:
      The devices, and an affinity if there are two.
    """
    missing = () if device.host else unsupported(core, model, device.name)
    if not missing:  # asking takes as long as compiling, and a host device is the plain CPU
        return [device], None
    devices = [device, reference_device()]
    return devices, {
        op.get_friendly_name(): devices[op.get_friendly_name() in missing].name
        for op in model.get_ordered_ops()
        if op.get_type_name() != "Result"
    }


def measure_transfers(
    core: ov.Core,
    model: ov.Model,
    devices: Sequence[Device],
    until_s: float,
    alive: Callable[[], None],
) -> RawTransfers:
    """What handing a tensor between two devices costs, at several sizes.

    A chain of small operations alternates between the devices, and its time is compared with that
    of the chain on each of them alone. Both directions occur equally often in it and cannot be told
    apart: the result is symmetric. It includes the start of one more submodel, the conversion
    between precisions where the devices compute in different ones, and between layouts where the
    model convolves: images cross planar and are computed channels last, which costs more than the
    transfer itself. So the tensors are of the model's own shapes, from its small ones to its large,
    and of sizes between which a byte's cost shows.
    """
    pairs = [(i, j) for j in range(len(devices)) for i in range(j)]
    samples: dict[tuple[int, int], list[tuple[int, float]]] = {pair: [] for pair in pairs}
    shapes = transfer_shapes(model) if pairs else []
    last_s, last_bytes = 0.0, 1
    for number, shape in enumerate(shapes):
        begin_s, size = time.monotonic(), 4 * math.prod(shape)
        if number and begin_s + last_s * slower(size, last_bytes) > until_s:
            return RawTransfers(samples, copy_s_per_byte(), len(shapes) - number)
        for pair, found in samples.items():
            both = devices[pair[0]], devices[pair[1]]
            until = until_s if number else math.inf
            found.append((size, _transfer_s(core, chain(shape), both, until, alive)))
        last_s, last_bytes = time.monotonic() - begin_s, size
    return RawTransfers(samples, copy_s_per_byte(), 0)


def slower(num_bytes: int, than: int) -> float:
    """How many times longer a chain takes on larger tensors; on small ones it is launching."""
    return max(1.0, num_bytes / max(than, _LAUNCHED_BYTES))


def copy_s_per_byte() -> float:
    """What copying a byte within this machine's memory takes, at the best of a few tries."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)
    times = []
    for _ in range(_COPIES):
        begin = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - begin)
    return min(times) / _COPIED_BYTES


def _request(compiled: ov.CompiledModel, inputs: Sequence[np.ndarray]) -> ov.InferRequest:
    request = compiled.create_infer_request()
    for i, array in enumerate(inputs):
        request.set_input_tensor(i, ov.Tensor(array))
    return request


def _nodes(model: ov.Model, compiled: ov.CompiledModel) -> list[_Node]:
    """The nodes executed, in order, with the mean time of all inferences so far."""
    known = {op.get_friendly_name() for op in model.get_ordered_ops()} - constant_names(model)
    graph = compiled.get_runtime_model().get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(graph)}
    nodes = []
    for node in graph:
        info = node.get_rt_info()
        microseconds = str(info["execTimeMcs"].astype(str))  # or 'not_executed'
        nodes.append(
            _Node(
                names=_split(str(info["originalLayersNames"].astype(str)), known),
                seconds=int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0,
                reads=tuple(index[v.get_node().get_instance_id()] for v in node.input_values()),
            )
        )
    return nodes


def _split(listed: str, known: set[str]) -> tuple[str, ...]:
    """The known names in a comma list of names that may contain commas themselves."""
    names, pieces = [], listed.split(",")
    start = 0
    while start < len(pieces):
        for end in range(len(pieces), start, -1):
            name = ",".join(pieces[start:end])
            if name in known:
                names.append(name)
                start = end
                break
        else:
            start += 1
    return tuple(names)


def _without_warm_up(early: list[_Node], late: list[_Node], rounds: int) -> list[_Node]:
    """Counters are means since compilation: takes the first inferences out of them."""
    return [
        b._replace(
            seconds=max(0.0, (b.seconds * (rounds + _WARM_UP) - a.seconds * _WARM_UP) / rounds)
        )
        for a, b in zip(early, late, strict=True)
    ]


def _kernels(model: ov.Model, nodes: list[_Node], unsupported: frozenset[str]) -> Kernels:
    """Operations and seconds of every kernel, as the module's docstring says."""
    kernel_of: dict[str, int] = {}
    members: list[list[str]] = []
    owner: list[int | None] = []  # of every node: its kernel
    for node in nodes:
        taken = [kernel_of[name] for name in node.names if name in kernel_of]
        new = [name for name in node.names if name not in kernel_of]
        if new and not taken:
            members.append([])
        kernel = (taken[0] if taken else len(members) - 1) if node.names else None
        for name in new:
            kernel_of[name] = len(members) - 1 if not taken else taken[0]
        if kernel is not None:
            members[kernel] += new
        owner.append(kernel)
    seconds = [0.0] * len(members)
    for node, kernel in zip(nodes, _adopted(nodes, owner), strict=True):
        if kernel is not None:
            seconds[kernel] += node.seconds
    _absorb(model, kernel_of, members)
    return tuple(
        (tuple(names), s)
        for names, s in zip(members, seconds, strict=True)
        if not unsupported.intersection(names)
    )


def _counted(kernels: Kernels, latency_s: float) -> Kernels:
    """Kernels with their times; equal ones where the counters, of whole microseconds, saw none."""
    if any(seconds > 0 for _, seconds in kernels):
        return kernels
    return tuple((names, latency_s / len(kernels)) for names, _ in kernels)


def _adopted(nodes: list[_Node], owner: list[int | None]) -> list[int | None]:
    """Gives nodes without a kernel that of a reader, else that of what they read."""
    adopted = list(owner)
    for i in reversed(range(len(nodes))):
        for source in nodes[i].reads:
            if adopted[source] is None:
                adopted[source] = adopted[i]
    for i, node in enumerate(nodes):
        for source in node.reads:
            if adopted[i] is None:
                adopted[i] = adopted[source]
    return adopted


def _absorb(model: ov.Model, kernel_of: dict[str, int], members: list[list[str]]) -> None:
    """Adds operations that no kernel names to the one kernel that reads them, if it is one."""
    constant = constant_names(model)
    for op in reversed(model.get_ordered_ops()):
        name = op.get_friendly_name()
        if name in kernel_of or name in constant or op.get_type_name() == "Parameter":
            continue
        readers = {
            kernel_of.get(port.get_node().get_friendly_name())
            for output in op.outputs()
            for port in output.get_target_inputs()
        }
        if len(readers) == 1 and (kernel := readers.pop()) is not None:
            kernel_of[name] = kernel
            members[kernel].append(name)


def transfer_shapes(model: ov.Model) -> list[tuple[int, ...]]:
    """Shapes of the chains: of images [1, C, H, W] if the model convolves, else [rows, 16].

    Those of `_SIZES` come first, then the model's own, from the smallest.
    """
    constant, shapes, convolves = constant_names(model), set(), False
    for op in model.get_ordered_ops():
        convolves = convolves or op.get_type_name() in _CONVOLUTIONS
        if op.get_friendly_name() in constant or not op.outputs():
            continue
        if op.output(0).get_partial_shape().is_static:
            shapes.add(tuple(op.get_output_shape(0)))
    images = {shape for shape in shapes if len(shape) == 4 and min(shape) > 0}
    sides = [math.isqrt(size // 4 // _CHANNELS) for size in _SIZES]
    synthetic: list[tuple[int, ...]] = [(1, _CHANNELS, side, side) for side in sides]
    if convolves and images:
        shapes = images
    else:
        synthetic = [(size // 4 // _CHANNELS, _CHANNELS) for size in _SIZES]
        rows = {max(1, math.prod(shape) // _CHANNELS) for shape in shapes}
        shapes = {(count, _CHANNELS) for count in rows}
    ordered = sorted(shapes, key=math.prod)
    chosen = np.linspace(0, len(ordered) - 1, min(len(ordered), _MODEL_SHAPES)).round().astype(int)
    return list(dict.fromkeys([*synthetic, *(ordered[i] for i in chosen)]))


def chain(shape: tuple[int, ...]) -> ov.Model:
    """Operations that keep a shape: of images depthwise convolutions, else small products."""
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
        requests.append(_request(compile_placement(core, chain, affinity, pair), [array]))
    share = (CHAIN_OPS + 1) // 2 / CHAIN_OPS  # of the chain on the first device
    costs = []
    for number in _rounds_of_chains(until_s):
        times = []
        for request in requests:
            alive()
            begin = time.perf_counter()
            request.infer()
            times.append(time.perf_counter() - begin)
        if number:  # the first warms up
            alone = share * times[0] + (1 - share) * times[1]
            costs.append((times[2] - alone) / (CHAIN_OPS - 1))
    return float(np.median(costs))


def _rounds_of_chains(until_s: float) -> Iterator[int]:
    for number in range(_ROUNDS_OF_CHAINS + 1):
        if number > _FEWEST_ROUNDS and time.monotonic() > until_s:
            return
        yield number
