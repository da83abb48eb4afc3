"""The cost of a model on a device, kernel by kernel."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, is_cpu, reference_device
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.submodels import CONSTANTS_SHARE
from placement.runtime.measurement.worker import inference, kernels
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.kernels import Kernels
from placement.runtime.measurement.worker.loaded import LoadedModel
from placement.runtime.models import colocation, operations, support


class RawProfile(NamedTuple):
    """The fields of `costs.tables.DeviceProfile` except its device."""

    latency_s: float
    kernels: Kernels
    unsupported: frozenset[str]


class Part(NamedTuple):
    """A placement of a part of the model on a device, and of the rest on the plain CPU."""

    devices: list[Device]  # that compute
    affinity: Affinity | None  # None for one device
    ops: frozenset[str]  # that run on the device
    elsewhere: frozenset[str]  # operations, without constants, that do not


def profile_devices(
    loaded: LoadedModel, devices: Sequence[Device], keep_alive: Callable[[], None]
) -> list[RawProfile]:
    """Profiles a model on each device, with the inferences of all devices interleaved.

    The latency of a device is the median of its inferences without counters, which slow inferences
    down. Operations that a device does not support run on the plain CPU and are left out of its
    kernels; its latency is then the sum of its kernels. A device that cannot hold the model is
    profiled after the others, part by part (`divide`), so that it holds one part at a time.

    `keep_alive` is called before every step that may take long.
    """
    parts = {device.name: divide(loaded.core, loaded.model, device) for device in devices}
    whole = {name: parts[name][0] for name in parts if len(parts[name]) == 1}
    profiles = dict(zip(whole, _profile(loaded, [*whole.values()], keep_alive), strict=True))
    for device in devices:
        if device.name in whole:
            continue
        all_kernels: list[tuple[tuple[str, ...], float]] = []
        for part in parts[device.name]:
            (profile,) = _profile(loaded, [part], keep_alive)
            # HETERO's submodels also have inputs and outputs with names of the model.
            named = [
                (tuple(name for name in names if name in part.ops), seconds)
                for names, seconds in profile.kernels
            ]
            all_kernels += [(names, seconds) for names, seconds in named if names]
        latency_s = sum(seconds for _, seconds in all_kernels)
        missing = unsupported(loaded.core, loaded.model, device)
        profiles[device.name] = RawProfile(latency_s, tuple(all_kernels), missing)
    return [profiles[device.name] for device in devices]


def _profile(
    loaded: LoadedModel, parts: Sequence[Part], keep_alive: Callable[[], None]
) -> list[RawProfile]:
    """Profiles parts, which are all compiled at once; see `profile_devices`."""
    model = loaded.model
    counted, plain = [], []  # compiled models with counters, and requests without
    for part in parts:
        keep_alive()
        devices = inference.with_counters(part.devices)
        counted.append(compile_placement(loaded.core, model, part.affinity, devices))
        keep_alive()
        plain.append(
            None
            if part.elsewhere
            else inference.create_request(loaded.compiled(None, part.devices), loaded.inputs)
        )
    counted_requests = [inference.create_request(c, loaded.inputs) for c in counted]

    def infer(request: ov.InferRequest) -> float:
        keep_alive()
        if loaded.stateful:  # a growing state would make every inference slower than the last
            request.reset_state()
        return inference.infer_s(request)

    for _ in range(WARM_UP_INFERENCES):
        last_s = max((infer(request) for request in counted_requests), default=1.0)
    warm_up_nodes = [kernels.read_nodes(model, compiled) for compiled in counted]
    samples_s: list[list[float]] = [[] for _ in parts]
    num_rounds = inference.num_repetitions(last_s)
    for _ in range(num_rounds):
        for counted_request, plain_request, part_samples_s in zip(
            counted_requests, plain, samples_s, strict=True
        ):
            infer(counted_request)
            if plain_request is not None:
                infer(plain_request)  # finds the caches filled by the inference with counters
                part_samples_s.append(infer(plain_request))
    profiles = []
    for i, part in enumerate(parts):
        nodes = [
            node._replace(
                seconds=inference.mean_after_warm_up(node.seconds, warm_up.seconds, num_rounds)
            )
            for warm_up, node in zip(
                warm_up_nodes[i], kernels.read_nodes(model, counted[i]), strict=True
            )
        ]
        attributed = kernels.attribute(model, nodes, part.elsewhere)
        latency_s = float(
            np.median(samples_s[i]) if samples_s[i] else sum(seconds for _, seconds in attributed)
        )
        # The counters have whole microseconds, and may all be zero for a tiny model.
        if not any(kernel_s for _, kernel_s in attributed):
            attributed = tuple((names, latency_s / len(attributed)) for names, _ in attributed)
        profiles.append(RawProfile(latency_s, attributed, part.elsewhere))
    return profiles


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
    constant_bytes = {
        name: op.get_byte_size() for name, op in ops.items() if op.get_type_name() == "Constant"
    }
    if (
        limit_bytes is not None
        and sum(constant_bytes.values()) > limit_bytes
        and device.name != reference_device().name
    ):
        groups = _split(model, constant_bytes, CONSTANTS_SHARE * limit_bytes)
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


def _split(model: ov.Model, constant_bytes: dict[str, int], max_bytes: float) -> list[list[str]]:
    """Splits the computed operations in topological order; co-located ones stay together."""
    names = list(operations.ops_by_name(model))
    leader = {name: name for name in names}
    for group in colocation.colocated_groups(model):
        leader.update((names[i], names[min(group)]) for i in group)
    read = operations.find_constants_read(model)
    members: dict[str, list[str]] = {}
    for name in operations.computed_names(model):
        members.setdefault(leader[name], []).append(name)
    inputs = [op.get_friendly_name() for op in model.get_parameters()]  # they have no constants
    parts = [inputs]
    part_constants: set[str] = set()
    for together in members.values():
        group_constants = part_constants.union(*(read[name] for name in together))
        if part_constants and sum(constant_bytes[name] for name in group_constants) > max_bytes:
            parts.append([])
            group_constants = set[str]().union(*(read[name] for name in together))
        parts[-1] += together
        part_constants = group_constants
    return parts
