"""The cost of a model on a device, kernel by kernel, and of a placement, submodel by submodel.

A time limit shortens a profile: an inference does not start if it would end too late, judged by the
duration of the inference before. The cost model needs one inference on each device; these always
run.
"""

import collections
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, is_cpu, reference_device
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.measurement.worker import inference, kernels
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.kernels import Kernels, Node
from placement.runtime.models import colocation, support

# Inferences on each device: the least number, if time allows, and the largest.
MIN_ROUNDS, MAX_ROUNDS = 5, 500


class RawProfile(NamedTuple):
    """The fields of `costs.tables.DeviceProfile` except its device."""

    latency_s: float
    kernels: Kernels
    unsupported: frozenset[str]


class _ProfiledDevice:
    """A device under profile: the model compiled with counters and, time allowing, without."""

    def __init__(
        self, core: ov.Core, model: ov.Model, inputs: Sequence[np.ndarray], device: Device
    ):
        """Compiles the model with counters; the plain CPU gets the unsupported operations."""
        self.unsupported = unsupported(core, model, device)
        self.samples_s: list[float] = []  # of inferences without counters, if it is compiled so
        self._num_counted = 0  # inferences with counters
        self._warm_up_nodes: list[Node] = []  # the counters after the warm-up
        self._core, self._model, self._inputs = core, model, inputs
        self._is_stateful = colocation.is_stateful(model)
        self._devices, self._affinity = fallback_placement(core, model, device)
        self._compiled = compile_placement(
            core, model, self._affinity, inference.with_counters(self._devices)
        )
        self._counted_request = inference.create_request(self._compiled, inputs)
        self._plain_request: ov.InferRequest | None = None

    def compile_without_counters(self) -> None:
        """Compiles the model without counters, which slow inferences down."""
        compiled = compile_placement(self._core, self._model, self._affinity, self._devices)
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
        counted_s = self.infer_counted()
        if self._plain_request is None:
            self.samples_s.append(counted_s)
            return counted_s
        first_s = self._infer(self._plain_request)
        self.samples_s.append(self._infer(self._plain_request))
        return counted_s + first_s + self.samples_s[-1]

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
        attributed = kernels.attribute(self._model, nodes, self.unsupported)
        if self.unsupported:  # the latency includes operations on the CPU
            latency_s = sum(seconds for _, seconds in attributed)
        else:
            samples_s = self.samples_s[WARM_UP_INFERENCES - 1 :] or self.samples_s[-1:] or [first_s]
            latency_s = float(np.median(samples_s))
        attributed = kernels.replace_zero_times(attributed, latency_s)
        return RawProfile(latency_s, attributed, self.unsupported)

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
    inference is the only sample.

    Args:
      core: knows the devices.
      model: static, with unique friendly names.
      inputs: one array for each input of the model.
      devices: the devices to profile.
      seconds: approximate inference time, summed over all devices.
      deadline_s: on the monotonic clock. Nothing starts that would end later, except one inference
        on each device.
      keep_alive: called before every step that may take long.

    Returns:
      For each device its costs, and the latencies float64 [rounds] behind them, without those of a
      warm-up; if there is nothing but a warm-up, there are no rounds.
    """
    profiled = []
    for device in devices:
        keep_alive()
        profiled.append(_ProfiledDevice(core, model, inputs, device))
    firsts_s = []
    for device_profile in profiled:
        keep_alive()
        firsts_s.append(device_profile.infer_counted())
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
    raw_profiles = [p.profile(first_s) for p, first_s in zip(profiled, firsts_s, strict=True)]
    return raw_profiles, [np.array(p.samples_s[WARM_UP_INFERENCES - 1 :]) for p in profiled]


def unsupported(core: ov.Core, model: ov.Model, device: Device) -> frozenset[str]:
    """Returns the names of the operations, without constants, that a device cannot run."""
    # The CPU has run the whole model before, and the query takes as long as compiling.
    if is_cpu(device):
        return frozenset()
    return frozenset(support.list_unsupported(core, model, device.name))


def fallback_placement(
    core: ov.Core, model: ov.Model, device: Device
) -> tuple[list[Device], dict[str, str] | None]:
    """Returns a placement with everything on a device except what only the CPU supports.

    Returns:
      The devices: this one, and the plain CPU if the device does not support every operation; and
      the affinity, None for one device.
    """
    unsupported_ops = unsupported(core, model, device)
    if not unsupported_ops:
        return [device], None
    cpu = reference_device()
    return [device, cpu], {
        op.get_friendly_name(): (
            cpu.name if op.get_friendly_name() in unsupported_ops else device.name
        )
        for op in model.get_ordered_ops()
        if op.get_type_name() != "Result"
    }


def measure_submodels(
    core: ov.Core,
    model: ov.Model,
    inputs: Sequence[np.ndarray],
    affinity: Affinity | None,
    devices: Sequence[Device],
    num_inferences: int,
    keep_alive: Callable[[], None],
) -> list[tuple[tuple[str, ...], float]]:
    """Measures the compute time of each submodel under HETERO, which runs them one after another.

    The time between two submodels is not counted.

    Args:
      core: knows the devices.
      model: static, with unique friendly names.
      inputs: one array for each input of the model.
      affinity: see `hetero.compile_placement`.
      devices: see `hetero.compile_placement`.
      num_inferences: number of inferences to average over.
      keep_alive: called before every step that may take long.

    Returns:
      (names of the submodel's nodes, seconds) in execution order. The nodes need not be operations
      of the model.

    Raises:
      RuntimeError: OpenVINO's own.
    """
    keep_alive()
    compiled = compile_placement(core, model, affinity, inference.with_counters(devices))
    request = inference.create_request(compiled, inputs)

    def infer_and_count(count: int) -> dict[int, dict[str, float]]:
        """Runs inferences; returns each submodel's nodes with their mean seconds so far."""
        for _ in range(count):
            keep_alive()
            request.infer()
        nodes: dict[int, dict[str, float]] = collections.defaultdict(dict)
        for info in request.get_profiling_info():
            # HETERO puts the submodel first, as in 'subgraph2: conv_1', but not before the nodes of
            # an only submodel.
            prefix, colon, name = info.node_name.partition(": ")
            if not (colon and prefix.startswith("subgraph")):
                prefix, name = "subgraph0", info.node_name
            submodel = int(prefix.removeprefix("subgraph"))
            nodes[submodel][name] = info.real_time.total_seconds()
        return nodes

    warm_up_nodes = infer_and_count(WARM_UP_INFERENCES)
    nodes = infer_and_count(num_inferences)
    return [
        (
            tuple(nodes[submodel]),
            inference.mean_after_warm_up(
                sum(nodes[submodel].values()),
                sum(warm_up_nodes[submodel].values()),
                num_inferences,
            ),
        )
        for submodel in sorted(nodes)
    ]
