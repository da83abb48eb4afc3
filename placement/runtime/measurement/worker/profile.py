"""The cost of a model on a device, kernel by kernel.

A time limit shortens a profile: an inference does not start if it would end too late, judged by the
duration of the inference before. The cost model needs one inference on each device; these always
run.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, is_cpu, reference_device
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.submodels import CONSTANTS_SHARE
from placement.runtime.measurement.worker import inference, kernels
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.kernels import Kernels, Node
from placement.runtime.models import colocation, operations, support

# Inferences on each device: the least number, if time allows, and the largest.
MIN_ROUNDS, MAX_ROUNDS = 5, 500


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


class _ProfiledPart:
    """A part under profile: the model compiled with counters and, time allowing, without."""

    def __init__(self, core: ov.Core, model: ov.Model, inputs: Sequence[np.ndarray], part: Part):
        """Compiles the model with counters."""
        self._part = part
        self.samples_s: list[float] = []  # of inferences without counters, if it is compiled so
        self._num_counted = 0  # inferences with counters
        self._warm_up_nodes: list[Node] = []  # the counters after the warm-up
        self._core, self._model, self._inputs = core, model, inputs
        self._is_stateful = colocation.is_stateful(model)
        self._compiled = compile_placement(
            core, model, part.affinity, inference.with_counters(part.devices)
        )
        self._counted_request = inference.create_request(self._compiled, inputs)

    def compile_without_counters(self) -> None:
        """Compiles the model without counters, which slow inferences down."""
        part = self._part
        compiled = compile_placement(self._core, self._model, part.affinity, part.devices)
        self._plain_request = inference.create_request(compiled, self._inputs)

    def infer_counted(self) -> float:
        """Runs an inference with counters and returns its seconds."""
        self._num_counted += 1
        return self._infer(self._counted_request)

    def infer_both(self) -> float:
        """Runs an inference with counters and two without; returns the seconds of all three.

        Only the second one without counters is a sample: the first finds the caches filled by the
        inference with counters.
        """
        seconds = self.infer_counted() + self._infer(self._plain_request)
        self.samples_s.append(self._infer(self._plain_request))
        return seconds + self.samples_s[-1]

    def end_warm_up(self) -> None:
        """Reads the counters, so that the profile can leave the warm-up out."""
        self._warm_up_nodes = kernels.read_nodes(self._model, self._compiled)

    def profile(self, first_s: float) -> RawProfile:
        """Returns the profile; without samples its latency is `first_s`, of the first inference."""
        nodes = kernels.read_nodes(self._model, self._compiled)
        rounds = self._num_counted - WARM_UP_INFERENCES
        if self._warm_up_nodes and rounds:
            nodes = [
                node._replace(
                    seconds=inference.mean_after_warm_up(node.seconds, warm_up_node.seconds, rounds)
                )
                for warm_up_node, node in zip(self._warm_up_nodes, nodes, strict=True)
            ]
        elsewhere = self._part.elsewhere
        attributed = kernels.attribute(self._model, nodes, elsewhere)
        if elsewhere:  # the latency includes operations on the CPU
            latency_s = sum(seconds for _, seconds in attributed)
        else:
            samples_s = self.samples_s[WARM_UP_INFERENCES - 1 :] or self.samples_s[-1:] or [first_s]
            latency_s = float(np.median(samples_s))
        # The counters have whole microseconds, and may all be zero for a tiny model.
        if not any(kernel_s for _, kernel_s in attributed):
            attributed = tuple((names, latency_s / len(attributed)) for names, _ in attributed)
        return RawProfile(latency_s, attributed, elsewhere)

    def _infer(self, request: ov.InferRequest) -> float:
        if self._is_stateful:  # a growing state would make every inference slower than the last
            request.reset_state()
        return inference.infer_s(request)


def profile_devices(
    core: ov.Core,
    model: ov.Model,
    inputs: Sequence[np.ndarray],
    devices: Sequence[Device],
    seconds: float,
    deadline_s: float,
    keep_alive: Callable[[], None],
) -> tuple[list[RawProfile], list[np.ndarray]]:
    """Profiles a model on each device, with the inferences of all devices interleaved.

    The latency of a device is the median of its inferences without counters. Operations that a
    device does not support run on the plain CPU and are left out of its kernels; its latency is
    then the sum of its kernels. If the deadline comes before the devices are warm, the last
    inference is the only sample. A device that cannot hold the model is profiled after the others,
    part by part (`divide`).

    Args:
      core: knows the devices.
      model, inputs: the model, and one array for each of its inputs.
      devices: the devices to profile.
      seconds: approximate inference time, summed over all devices.
      deadline_s: on the monotonic clock. Nothing starts that would end later, except one inference
        on each device.
      keep_alive: called before every step that may take long.

    Returns:
      For each device its costs, and the latencies float64 [rounds] behind them, without those of a
      warm-up; if there is nothing but a warm-up, there are no rounds.
    """
    parts = {device.name: divide(core, model, device) for device in devices}
    profiled = []
    whole_devices = [device for device in devices if len(parts[device.name]) == 1]
    firsts_s = []
    for device in whole_devices:
        keep_alive()
        profiled.append(_ProfiledPart(core, model, inputs, *parts[device.name]))
        keep_alive()
        firsts_s.append(profiled[-1].infer_counted())
    if time.monotonic() + 2 * sum(firsts_s) < deadline_s:
        for device_profile in profiled:
            keep_alive()
            device_profile.compile_without_counters()
        # The first inferences above are warm-ups too, so rounds start at -1 and count from 0.
        start_s, rounds, last_round_s = time.perf_counter(), 1 - WARM_UP_INFERENCES, 0.0
        while rounds < MIN_ROUNDS or (
            rounds < MAX_ROUNDS and time.perf_counter() - start_s < seconds
        ):
            if time.monotonic() + last_round_s > deadline_s:
                break
            last_round_s = 0.0
            for device_profile in profiled:
                keep_alive()
                last_round_s += device_profile.infer_both()
            rounds += 1
            if rounds == 0:
                start_s = time.perf_counter()
                for device_profile in profiled:
                    device_profile.end_warm_up()
    results = {
        device.name: (p.profile(first_s), np.array(p.samples_s[WARM_UP_INFERENCES - 1 :]))
        for device, p, first_s in zip(whole_devices, profiled, firsts_s, strict=True)
    }
    del profiled
    for device in devices:
        if device.name not in results:
            missing = unsupported(core, model, device)
            profile, samples_s = _profile_parts(
                core, model, inputs, parts[device.name], deadline_s, keep_alive
            )
            results[device.name] = profile._replace(unsupported=missing), samples_s
    profiles, samples = zip(*(results[device.name] for device in devices), strict=True)
    return list(profiles), list(samples)


def _profile_parts(
    core: ov.Core,
    model: ov.Model,
    inputs: Sequence[np.ndarray],
    parts: Sequence[Part],
    deadline_s: float,
    keep_alive: Callable[[], None],
) -> tuple[RawProfile, np.ndarray]:
    """Profiles parts one after another, so that the device holds only one of them at a time.

    Returns:
      The costs; and for each of at most `MIN_ROUNDS` rounds the seconds of one inference with each
      part, which include the rest of the model on the CPU.
    """
    all_kernels: list[tuple[tuple[str, ...], float]] = []
    samples_s: list[list[float]] = []

    def profile_part(part: Part) -> None:  # the compiled model is released at its end
        keep_alive()
        profiled = _ProfiledPart(core, model, inputs, part)
        last_s = max(profiled.infer_counted() for _ in range(WARM_UP_INFERENCES))
        profiled.end_warm_up()
        part_samples_s: list[float] = []
        while len(part_samples_s) < MIN_ROUNDS and time.monotonic() + last_s < deadline_s:
            keep_alive()
            last_s = profiled.infer_counted()
            part_samples_s.append(last_s)
        # HETERO's submodels also have inputs and outputs with names of the model.
        kernels_of_part = [
            (tuple(name for name in names if name in part.ops), seconds)
            for names, seconds in profiled.profile(last_s).kernels
        ]
        all_kernels.extend(kernel for kernel in kernels_of_part if kernel[0])
        samples_s.append(part_samples_s)

    for part in parts:
        profile_part(part)
    latency_s = sum(seconds for _, seconds in all_kernels)
    rounds = np.array([sum(round_s) for round_s in zip(*samples_s, strict=False)])
    return RawProfile(latency_s, tuple(all_kernels), frozenset()), rounds


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
