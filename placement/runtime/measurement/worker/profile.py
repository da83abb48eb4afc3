"""What a model costs on a device, kernel by kernel.

What takes too long is cut short: an inference is not begun that would end too late, as far as the
one before tells. Only what costs cannot do without, an inference on each device, is always run.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, is_cpu, reference_device
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement.worker import inference, kernels
from placement.runtime.measurement.worker.kernels import Kernels, Node
from placement.runtime.models import colocation
from placement.runtime.models.operations import constant_names

ROUNDS = (5, 500)  # inferences on each device: at least, where time allows, and at most

_WARM_UP = 2


class RawProfile(NamedTuple):
    """The fields of `costs.tables.DeviceProfile` but its name."""

    latency_s: float
    kernels: Kernels
    unsupported: frozenset[str]


class Profiled(NamedTuple):
    """What the devices cost, and how well that is known."""

    devices: list[RawProfile]
    rounds: int  # inferences on each device; 0: only those that warm up
    latencies_s: list[np.ndarray]  # float64 [rounds] of each device; without a warm-up


class _ProfiledDevice:
    """A device under profile: the model compiled without and with counters."""

    def __init__(
        self, core: ov.Core, model: ov.Model, inputs: Sequence[np.ndarray], device: Device
    ):
        """Compiles it with counters; what the device does not support is for the plain CPU."""
        self.unsupported = unsupported(core, model, device)
        self.samples: list[float] = []  # seconds of inferences, without counters if there are such
        self._inferences = 0  # with counters
        self._early: list[Node] = []  # as counted while it warmed up
        self._core, self._model, self._inputs = core, model, inputs
        self._stateful = colocation.is_stateful(model)
        self._devices, self._affinity = alone(core, model, device)
        self._compiled = self._compile(inference.with_counters(self._devices))
        self._counted = inference.request(self._compiled, inputs)
        self._plain: ov.InferRequest | None = None

    def prepare(self) -> None:
        """Compiles it without counters too."""
        self._plain = inference.request(self._compile(self._devices), self._inputs)

    def count(self) -> float:
        """Infers with counters; returns the seconds."""
        self._inferences += 1
        return self._infer(self._counted)

    def infer(self) -> float:
        """Infers both ways, without counters twice, as the first finds the caches of the other way.

        Returns:
          The seconds that all took.
        """
        counted_s = self.count()
        if self._plain is None:
            self.samples.append(counted_s)
            return counted_s
        first_s = self._infer(self._plain)
        self.samples.append(self._infer(self._plain))
        return counted_s + first_s + self.samples[-1]

    def end_warm_up(self) -> None:
        """Notes what has been counted so far, which is not to count."""
        self._early = kernels.nodes(self._model, self._compiled)

    def summary(self, first_s: float) -> RawProfile:
        """Returns what was measured; the first inference has to do where there are no others."""
        nodes, rounds = kernels.nodes(self._model, self._compiled), self._inferences - _WARM_UP
        if self._early and rounds:
            nodes = [
                late._replace(
                    seconds=inference.without_warm_up(late.seconds, early.seconds, rounds, _WARM_UP)
                )
                for early, late in zip(self._early, nodes, strict=True)
            ]
        attributed = kernels.attribute(self._model, nodes, self.unsupported)
        warm_s = self.samples[_WARM_UP - 1 :] or self.samples[-1:] or [first_s]
        latency_s = sum(s for _, s in attributed) if self.unsupported else float(np.median(warm_s))
        return RawProfile(latency_s, kernels.timed(attributed, latency_s), self.unsupported)

    def _compile(self, devices: Sequence[Device]) -> ov.CompiledModel:
        return compile_placement(self._core, self._model, self._affinity, devices)

    def _infer(self, request: ov.InferRequest) -> float:
        if self._stateful:  # or what grows would make every inference slower than the one before
            request.reset_state()
        return inference.infer_s(request)


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
    profiled = []
    for device in devices:
        alive()
        profiled.append(_ProfiledDevice(core, model, inputs, device))
    first_s = []
    for each in profiled:
        alive()
        first_s.append(each.count())
    if time.monotonic() + 2 * sum(first_s) < until_s:
        for each in profiled:
            alive()
            each.prepare()
        _repeat(profiled, seconds, until_s, alive)
    found = [each.summary(once_s) for each, once_s in zip(profiled, first_s, strict=True)]
    latencies_s = [np.array(each.samples[_WARM_UP - 1 :]) for each in profiled]
    return Profiled(found, min(map(len, latencies_s)), latencies_s)


def _repeat(
    profiled: Sequence[_ProfiledDevice], seconds: float, until_s: float, alive: Callable[[], None]
) -> None:
    """Infers on one device after the other until there are enough inferences, or time is over."""
    start, rounds, last_s = time.perf_counter(), 1 - _WARM_UP, 0.0
    while rounds < ROUNDS[0] or (rounds < ROUNDS[1] and time.perf_counter() - start < seconds):
        if time.monotonic() + last_s > until_s:
            return
        last_s = 0.0
        for each in profiled:
            alive()
            last_s += each.infer()
        rounds += 1
        if rounds == 0:
            start = time.perf_counter()
            for each in profiled:
                each.end_warm_up()


def unsupported(core: ov.Core, model: ov.Model, device: Device) -> frozenset[str]:
    """Returns the names of the operations, constants aside, that a device cannot run."""
    if is_cpu(device):  # it has run the whole model, and asking takes as long as compiling
        return frozenset()
    names = {op.get_friendly_name() for op in model.get_ordered_ops()}
    return frozenset(names - set(core.query_model(model, device.name)) - constant_names(model))


def alone(
    core: ov.Core, model: ov.Model, device: Device
) -> tuple[list[Device], dict[str, str] | None]:
    """Finds what runs a model on a device: it alone, or where it lacks operations the CPU too.

    Returns:
      The devices, and an affinity if there are two.
    """
    missing = unsupported(core, model, device)
    if not missing:
        return [device], None
    devices = [device, reference_device()]
    return devices, {
        op.get_friendly_name(): devices[op.get_friendly_name() in missing].name
        for op in model.get_ordered_ops()
        if op.get_type_name() != "Result"
    }
