"""What a model costs on a device, kernel by kernel, and what handing a tensor over costs.

The plug-in runs several operations as one kernel and tells which (`originalLayersNames` of its
execution graph), but not for all: a MatMul with a bias goes by the name of the addition, and a
rewritten operation by a name of the rewriting. So, in this order,

- a kernel has the operations that it names;
- an executed node that names none of the model's (a Reorder, a Convert, a rewritten operation)
  belongs to the kernel that reads it, or at the model's end to the one that it reads;
- an operation that no kernel names belongs to the kernel that all its readers belong to.

This module runs in the worker process and loads no JAX: `measure.Measurer` makes the project's
types of what it returns.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from scipy.optimize import nnls

from placement.runtime import inseparable
from placement.runtime.devices import Device, reference_device
from placement.runtime.hetero import compile_placement, constant_names

Kernels = tuple[tuple[tuple[str, ...], float], ...]

_WARM_UP = 2
_ROUNDS = (5, 500)  # at least, at most
_CONVOLUTIONS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData")
_CROSSING_SHAPES = 6
_CROSSING_OPS = 9
_CROSSING_ROUNDS = 12
_CHANNELS = 16


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


class _Subject(NamedTuple):
    """A device under profile: the model compiled without and with counters."""

    plain: ov.InferRequest
    counted: ov.InferRequest
    compiled: ov.CompiledModel  # with counters
    unsupported: frozenset[str]


def profile_devices(
    core: ov.Core,
    model: ov.Model,
    inputs: Sequence[np.ndarray],
    devices: Sequence[Device],
    seconds: float,
    alive: Callable[[], None],
) -> list[RawProfile]:
    """Profiles a model on each device, the inferences of all interleaved.

    The latency is the median of inferences without counters. What a device does not support runs
    on the plain CPU meanwhile, and is left out of its kernels; its latency is then their sum.

    Args:
      core: knows the devices.
      model: static, with unique friendly names.
      inputs: one array for each of the model's.
      devices: where to run it.
      seconds: of inference, roughly, over all devices.
      alive: called before every step that may take long.
    """
    stateful = inseparable.is_stateful(model)
    subjects = []
    for device in devices:
        alive()
        subjects.append(_subject(core, model, inputs, device))
    for subject in subjects:
        for _ in range(_WARM_UP):
            alive()
            subject.plain.infer()
            subject.counted.infer()
    early = [_nodes(model, subject) for subject in subjects]
    latencies: list[list[float]] = [[] for _ in subjects]
    start, rounds = time.perf_counter(), 0
    while rounds < _ROUNDS[0] or (rounds < _ROUNDS[1] and time.perf_counter() - start < seconds):
        for subject, samples in zip(subjects, latencies, strict=True):
            alive()
            if stateful:  # or what grows would make every inference slower than the one before
                subject.plain.reset_state()
                subject.counted.reset_state()
            begin = time.perf_counter()
            subject.plain.infer()
            samples.append(time.perf_counter() - begin)
            subject.counted.infer()
        rounds += 1
    profiles = []
    for subject, first, samples in zip(subjects, early, latencies, strict=True):
        nodes = _without_warm_up(first, _nodes(model, subject), rounds)
        kernels = _kernels(model, nodes, subject.unsupported)
        latency = sum(s for _, s in kernels) if subject.unsupported else float(np.median(samples))
        profiles.append(RawProfile(latency, _counted(kernels, latency), subject.unsupported))
    return profiles


def unsupported(core: ov.Core, model: ov.Model, device: str) -> frozenset[str]:
    """Names of the operations, constants aside, that a device cannot run."""
    names = {op.get_friendly_name() for op in model.get_ordered_ops()}
    return frozenset(names - set(core.query_model(model, device)) - constant_names(model))


def measure_crossings(
    core: ov.Core, model: ov.Model, devices: Sequence[Device], alive: Callable[[], None]
) -> tuple[np.ndarray, np.ndarray]:
    """What handing a tensor between two devices costs: latency_s + bytes * s_per_byte.

    A chain of small operations alternates between the devices, and its time is compared with that
    of the chain on each of them alone. Both directions occur equally often in it and cannot be told
    apart: the result is symmetric. It includes the start of one more submodel, the conversion
    between precisions where the devices compute in different ones, and between layouts where the
    model convolves: images cross planar and are computed channels last, which costs more than the
    crossing itself. So the tensors are of the model's own shapes, from its small ones to its large.

    Returns:
      latency_s, s_per_byte: float64 [D, D], zero diagonal.
    """
    latency = np.zeros((len(devices), len(devices)))
    per_byte = np.zeros_like(latency)
    shapes = _shapes(model)
    sizes = np.array([4.0 * math.prod(shape) for shape in shapes])
    for i, first in enumerate(devices):
        for j in range(i):
            pair = (first, devices[j])
            costs = [_crossing_s(core, _chain(shape), pair, alive) for shape in shapes]
            latency[i, j], per_byte[i, j] = _fit(sizes, np.array(costs))
            latency[j, i], per_byte[j, i] = latency[i, j], per_byte[i, j]
    return latency, per_byte


def _subject(
    core: ov.Core, model: ov.Model, inputs: Sequence[np.ndarray], device: Device
) -> _Subject:
    missing = unsupported(core, model, device.name)
    devices, affinity = [device], None
    if missing:
        devices = [device, reference_device()]
        affinity = {
            op.get_friendly_name(): devices[op.get_friendly_name() in missing].name
            for op in model.get_ordered_ops()
            if op.get_type_name() != "Result"
        }
    counting = [
        dataclasses.replace(each, properties={**each.properties, "PERF_COUNT": True})
        for each in devices
    ]
    plain = compile_placement(core, model, affinity, devices)
    counted = compile_placement(core, model, affinity, counting)
    return _Subject(_request(plain, inputs), _request(counted, inputs), counted, missing)


def _request(compiled: ov.CompiledModel, inputs: Sequence[np.ndarray]) -> ov.InferRequest:
    request = compiled.create_infer_request()
    for i, array in enumerate(inputs):
        request.set_input_tensor(i, ov.Tensor(array))
    return request


def _nodes(model: ov.Model, subject: _Subject) -> list[_Node]:
    """The nodes executed, in order, with the mean time of all inferences so far."""
    known = {op.get_friendly_name() for op in model.get_ordered_ops()} - constant_names(model)
    graph = subject.compiled.get_runtime_model().get_ordered_ops()
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


def _shapes(model: ov.Model) -> list[tuple[int, ...]]:
    """Shapes of the chains: of images [1, C, H, W] if the model convolves, else [rows, 16]."""
    constant, shapes, convolves = constant_names(model), set(), False
    for op in model.get_ordered_ops():
        convolves = convolves or op.get_type_name() in _CONVOLUTIONS
        if op.get_friendly_name() in constant or not op.outputs():
            continue
        if op.output(0).get_partial_shape().is_static:
            shapes.add(tuple(op.get_output_shape(0)))
    images = [shape for shape in shapes if len(shape) == 4 and min(shape) > 0]
    if not (convolves and images):
        images = []
        rows = {max(1, math.prod(shape) // _CHANNELS) for shape in shapes}
        shapes = {(count, _CHANNELS) for count in rows} | {(1, _CHANNELS)}
    ordered = sorted(images or shapes, key=math.prod)
    chosen = np.linspace(0, len(ordered) - 1, _CROSSING_SHAPES).round().astype(int)
    return [ordered[i] for i in sorted(set(chosen.tolist()))]


def _chain(shape: tuple[int, ...]) -> ov.Model:
    """Operations that keep a shape: of images depthwise convolutions, else small products."""
    generator = np.random.default_rng(0)
    image = len(shape) == 4
    size = (shape[1], 1, 1, 1, 1) if image else (shape[-1], shape[-1])
    weights = generator.standard_normal(size).astype(np.float32)
    source = ops.parameter(shape, np.float32, name="x")
    value = source
    for i in range(_CROSSING_OPS):
        constant = ops.constant(weights)
        value = (
            ops.group_convolution(value, constant, [1, 1], [0, 0], [0, 0], [1, 1])
            if image
            else ops.matmul(value, constant, False, False)
        )
        value.set_friendly_name(f"step_{i}")
    return ov.Model([value], [source], "chain")


def _crossing_s(
    core: ov.Core, chain: ov.Model, pair: tuple[Device, Device], alive: Callable[[], None]
) -> float:
    """Seconds a crossing of a chain's tensor between two devices takes: the median over rounds."""
    array = np.zeros(tuple(chain.inputs[0].get_shape()), np.float32)
    numbers = range(_CROSSING_OPS)
    requests = []
    for pattern in ([0] * _CROSSING_OPS, [1] * _CROSSING_OPS, [i % 2 for i in numbers]):
        alive()
        affinity = {f"step_{i}": pair[pattern[i]].name for i in numbers}
        affinity["x"] = pair[pattern[0]].name
        requests.append(_request(compile_placement(core, chain, affinity, pair), [array]))
    share = (_CROSSING_OPS + 1) // 2 / _CROSSING_OPS  # of the chain on the first device
    costs = []
    for number in range(_CROSSING_ROUNDS + 1):
        times = []
        for request in requests:
            alive()
            begin = time.perf_counter()
            request.infer()
            times.append(time.perf_counter() - begin)
        if number:  # the first warms up
            alone = share * times[0] + (1 - share) * times[1]
            costs.append((times[2] - alone) / (_CROSSING_OPS - 1))
    return float(np.median(costs))


def _fit(sizes: np.ndarray, costs: np.ndarray) -> tuple[float, float]:
    """Latency and seconds a byte, not negative, of least squares of the relative error.

    Columns are scaled to comparable sizes, since nnls knows no units.
    """
    weights = 1 / np.maximum(costs, 1e-6)
    unit = np.array([1e-6, 1e-6 / 4096])
    matrix = np.stack([np.ones(len(sizes)), sizes], axis=1) * unit * weights[:, None]
    latency, per_byte = nnls(matrix, costs * weights)[0] * unit
    return float(latency), float(per_byte)
