"""The cost of a model on a device, kernel by kernel.

The CPU plug-in runs several operations as one kernel and lists them as `originalLayersNames` of its
execution graph, but incompletely. A MatMul with a bias, for example, has the name of the addition,
and a rewritten operation has a name that the rewriting made. So operations are assigned in three
steps:

1. A kernel has the operations that it names.
2. An executed node that names no operation of the model (a Reorder, a Convert, a rewritten
   operation) belongs to the kernel that reads it, or at the model's end to the one that it reads.
3. An operation that no kernel names belongs to the kernel that all its readers belong to.
"""

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, is_cpu, reference_device
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.submodels import CONSTANTS_SHARE
from placement.runtime.measurement.request import RawProfile
from placement.runtime.measurement.worker import inference
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.loaded import LoadedModel
from placement.runtime.models import colocation, operations, support

Kernels = tuple[tuple[tuple[str, ...], float], ...]  # (names of operations, seconds) of each


class Part(NamedTuple):
    """A placement of a part of the model on a device, and of the rest on the plain CPU."""

    devices: list[Device]  # that compute
    affinity: Affinity | None  # None for one device
    ops: frozenset[str]  # that run on the device
    elsewhere: frozenset[str]  # operations, without constants, that do not


def profile_devices(loaded: LoadedModel, devices: Sequence[Device]) -> list[RawProfile]:
    """Profiles a model on each device, with the inferences of all devices interleaved.

    The latency of a device is the median of its inferences without counters, which slow inferences
    down. Operations that a device does not support run on the plain CPU and are left out of its
    kernels; its latency is then the sum of its kernels. A device that cannot hold the model is
    profiled after the others, part by part (`divide`), so that it holds one part at a time.

    Of host devices with equal properties one is profiled: they are one plug-in with one thread, and
    a search would take the noise between two profiles for gains.
    """
    profiled: dict[object, Device] = {}
    equal = [
        profiled.setdefault(
            (str(device.properties), device.capacity_bytes) if device.host else device.name, device
        )
        for device in devices
    ]
    parts = {d.name: divide(loaded.core, loaded.model, d) for d in profiled.values()}
    whole = {name: parts[name][0] for name in parts if len(parts[name]) == 1}
    profiles = dict(zip(whole, _profile(loaded, [*whole.values()]), strict=True))
    for device in profiled.values():
        if device.name in whole:
            continue
        all_kernels: list[tuple[tuple[str, ...], float]] = []
        for part in parts[device.name]:
            (profile,) = _profile(loaded, [part])
            # HETERO's submodels also have inputs and outputs with names of the model.
            named = [
                (tuple(name for name in names if name in part.ops), seconds)
                for names, seconds in profile.kernels
            ]
            all_kernels += [(names, seconds) for names, seconds in named if names]
        latency_s = sum(seconds for _, seconds in all_kernels)
        missing = unsupported(loaded.core, loaded.model, device)
        profiles[device.name] = RawProfile(latency_s, tuple(all_kernels), missing)
    return [profiles[device.name] for device in equal]


def _profile(loaded: LoadedModel, parts: Sequence[Part]) -> list[RawProfile]:
    """Profiles parts, which are all compiled at once; see `profile_devices`."""
    model, touch = loaded.model, loaded.heartbeat.touch
    counted, plain = [], []  # compiled models with counters, and requests without
    for part in parts:
        touch()
        devices = inference.with_counters(part.devices)
        counted.append(compile_placement(loaded.core, model, part.affinity, devices))
        touch()
        plain.append(None if part.elsewhere else loaded.request(None, part.devices))
    counted_requests = [inference.create_request(c, loaded.inputs) for c in counted]

    for _ in range(WARM_UP_INFERENCES):
        last_s = max((loaded.infer_s(request) for request in counted_requests), default=1.0)
    warm_up_nodes = [read_nodes(model, compiled) for compiled in counted]
    samples_s: list[list[float]] = [[] for _ in parts]
    num_rounds = inference.num_repetitions(last_s)
    for _ in range(num_rounds):
        for counted_request, plain_request, part_samples_s in zip(
            counted_requests, plain, samples_s, strict=True
        ):
            loaded.infer_s(counted_request)
            if plain_request is not None:
                part_samples_s.append(loaded.warm_s(plain_request))
    profiles = []
    for i, part in enumerate(parts):
        nodes = [
            node._replace(
                seconds=inference.mean_after_warm_up(node.seconds, warm_up.seconds, num_rounds)
            )
            for warm_up, node in zip(warm_up_nodes[i], read_nodes(model, counted[i]), strict=True)
        ]
        attributed = attribute_nodes(model, nodes, part.elsewhere)
        latency_s = float(
            np.median(samples_s[i]) if samples_s[i] else sum(seconds for _, seconds in attributed)
        )
        # The counters have whole microseconds, and may all be zero for a tiny model.
        if not any(kernel_s for _, kernel_s in attributed):
            attributed = tuple((names, latency_s / len(attributed)) for names, _ in attributed)
        profiles.append(RawProfile(latency_s, attributed, part.elsewhere))
    return profiles


class Node(NamedTuple):
    """A node of an execution graph."""

    names: tuple[str, ...]  # operations of the model that it runs
    seconds: float
    sources: tuple[int, ...]  # indices of the nodes that it reads


def read_nodes(model: ov.Model, compiled: ov.CompiledModel) -> list[Node]:
    """Returns the executed nodes in order, with their mean time over all inferences so far."""
    op_names = {
        op.get_friendly_name() for op in model.get_ordered_ops()
    } - operations.constant_names(model)
    graph = compiled.get_runtime_model().get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(graph)}
    nodes = []
    for node in graph:
        info = node.get_rt_info()
        microseconds = str(info["execTimeMcs"].astype(str))  # or 'not_executed'
        nodes.append(
            Node(
                names=split_names(str(info["originalLayersNames"].astype(str)), op_names),
                seconds=int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0,
                sources=tuple(index[v.get_node().get_instance_id()] for v in node.input_values()),
            )
        )
    return nodes


def split_names(listed: str, op_names: Set[str]) -> tuple[str, ...]:
    """Returns the operations in a comma-separated list whose names may contain commas themselves.

    'a,b,c' with operations 'a' and 'b,c' is ('a', 'b,c'): the longest known name at a position
    wins.
    """
    names, pieces = [], listed.split(",")
    start = 0
    while start < len(pieces):
        for end in range(len(pieces), start, -1):
            name = ",".join(pieces[start:end])
            if name in op_names:
                names.append(name)
                start = end
                break
        else:
            start += 1
    return tuple(names)


def attribute_nodes(model: ov.Model, nodes: list[Node], unsupported: frozenset[str]) -> Kernels:
    """Returns the operations and seconds of every kernel; see the module's docstring.

    Kernels with `unsupported` operations, which ran on another device, are left out.
    """
    kernel_of: dict[str, int] = {}
    members: list[list[str]] = []  # of every kernel: its operations
    owners: list[int | None] = []  # of every node: its kernel
    for node in nodes:
        if not node.names:
            owners.append(None)
            continue
        known_kernels = (kernel_of[name] for name in node.names if name in kernel_of)
        kernel = next(known_kernels, len(members))
        if kernel == len(members):
            members.append([])
        new_names = [name for name in node.names if name not in kernel_of]
        kernel_of.update(dict.fromkeys(new_names, kernel))
        members[kernel] += new_names
        owners.append(kernel)

    # Step 2: nodes without names join a reader, in a second pass what they read.
    for i in reversed(range(len(nodes))):
        for source in nodes[i].sources:
            if owners[source] is None:
                owners[source] = owners[i]
    for i, node in enumerate(nodes):
        for source in node.sources:
            if owners[i] is None:
                owners[i] = owners[source]
    seconds = [0.0] * len(members)
    for node, owner in zip(nodes, owners, strict=True):
        if owner is not None:
            seconds[owner] += node.seconds

    # Step 3: operations without a kernel join the kernel of all their readers.
    constant = operations.constant_names(model)
    for op in reversed(model.get_ordered_ops()):
        name = op.get_friendly_name()
        if name in kernel_of or name in constant or op.get_type_name() == "Parameter":
            continue
        readers = {
            kernel_of.get(port.get_node().get_friendly_name())
            for output in op.outputs()
            for port in output.get_target_inputs()
        }
        if len(readers) == 1 and (reader := readers.pop()) is not None:
            kernel_of[name] = reader
            members[reader].append(name)
    return tuple(
        (tuple(names), kernel_s)
        for names, kernel_s in zip(members, seconds, strict=True)
        if not unsupported.intersection(names)
    )


def unsupported(core: ov.Core, model: ov.Model, device: Device) -> frozenset[str]:
    """Returns the names of the operations, without constants, that a device cannot run."""
    # The CPU has run the whole model before, and the query takes as long as compiling.
    if is_cpu(device):
        return frozenset()
    return frozenset(support.list_unsupported(core, model, device.name))


def divide(core: ov.Core, model: ov.Model, device: Device) -> list[Part]:
    """Returns placements that together run every operation on a device that supports it.

    One placement has all of them, unless the constants need more memory than the device's limit.
    Then each has a part of the model, in topological order, whose constants need at most a quarter
    of the limit (`CONSTANTS_SHARE`), or a single group of co-located operations. The plain CPU,
    which must be another device, runs the rest.
    """
    unsupported_ops = unsupported(core, model, device)
    ops = operations.ops_by_name(model)
    groups = [[*ops]]
    limit_bytes = device.capacity_bytes
    read = operations.find_constants_read(model)
    constant_bytes = {c: size for constants in read.values() for c, size in constants.items()}
    if (
        limit_bytes is not None
        and sum(constant_bytes.values()) > limit_bytes
        and device.name != reference_device().name
    ):
        # The computed operations in topological order; co-located ones stay together.
        names, members = list(ops), dict[str, list[str]]()
        leader = {name: name for name in names}
        for colocated in colocation.colocated_groups(model):
            leader.update((names[i], names[min(colocated)]) for i in colocated)
        for name in operations.computed_names(model):
            members.setdefault(leader[name], []).append(name)
        groups = [[op.get_friendly_name() for op in model.get_parameters()]]  # without constants
        group_constants: set[str] = set()
        for together in members.values():
            new_constants = set[str]().union(*(read[name] for name in together))
            grown_bytes = sum(constant_bytes[name] for name in group_constants | new_constants)
            if group_constants and grown_bytes > CONSTANTS_SHARE * limit_bytes:
                groups.append([])
                group_constants = set()
            groups[-1] += together
            group_constants |= new_constants
    if not unsupported_ops and len(groups) == 1:
        return [Part([device], None, frozenset(ops), frozenset())]
    cpu, parts = reference_device(), []
    constants = operations.constant_names(model)
    for group in groups:
        placed = frozenset(group) - unsupported_ops
        affinity = {
            name: device.name if name in placed else cpu.name
            for name, op in ops.items()
            if op.get_type_name() != "Result"
        }
        elsewhere = frozenset(affinity.keys() - placed - constants)
        parts.append(Part([device, cpu], affinity, placed, elsewhere))
    return parts
