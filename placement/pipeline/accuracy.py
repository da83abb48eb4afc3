"""Devices whose outputs are wrong, and the operations that make them wrong.

A device may compute right outputs for most of a model: the CPU in bf16 loses too much accuracy in a
few operations, or one kernel of an accelerator is faulty. `divide` finds these operations:

1. Bisection measures the output error with a part of the model on the device and the rest on the
   reference device.
2. The operations with the largest errors leave the device, as few as make the outputs right.
   Binary search finds their number.

Afterwards the device supports only the other operations. A device without any right operation
computes in f32 instead.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.errors import UserError
from placement.pipeline import loading
from placement.problem import Problem
from placement.runtime.devices import Device, is_reference, reference_device, replace_with_f32
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, OutputErrors, PlacementError
from placement.runtime.models.outputs import OutputCheck

_NEGLIGIBLE = 0.1  # share of the accepted error: parts with less are not divided


class Culprit(NamedTuple):
    """Operations that are kept off a device because of the error that they cause there."""

    ops: tuple[str, ...]  # names, in topological order
    error: float  # of the outputs while only the operations' part of the model is on the device


class Division(NamedTuple):
    """The operations of a model that a device may run, and those that it computes wrong."""

    device: str  # its name
    label: str  # its name in reports
    max_error: float  # the largest accepted output error
    whole_error: float  # the output error with the whole model on the device
    error: float  # with the allowed operations on the device and the others in f32
    allowed: frozenset[str]  # operations
    culprits: tuple[Culprit, ...]  # the most sensitive first

    def describe(self) -> str:
        """Returns one line: the error, the operations that cause it, and the remaining error."""
        limit = f"outputs differ by {self.whole_error:.3g} of their spread, over {self.max_error:g}"
        if not self.allowed:
            return f"{self.label}: {limit}, and no part of the model is accurate enough on it"
        count = sum(len(culprit.ops) for culprit in self.culprits)
        first_op = self.culprits[0].ops[0]
        return f"{self.label}: {limit}; other devices run {count} operations, above all {first_op}"

    def to_json(self, affinity: Mapping[str, str]) -> dict[str, Any]:
        """Returns the record for reports; `affinity` is the placement to report."""
        culprits = [
            culprit._asdict() | {"run_on": sorted({affinity[op] for op in culprit.ops})}
            for culprit in self.culprits
        ]
        fields = ("device", "label", "max_error", "whole_error", "error")
        return {field: getattr(self, field) for field in fields} | {"culprits": culprits}


class Part(NamedTuple):
    """Successive units of the model and the error that they cause together."""

    units: range
    error: float


def find_wrong(measurer: Measurer, devices: Sequence[Device]) -> dict[Device, OutputCheck]:
    """Returns the devices on which the model's outputs are wrong, with their errors."""
    suspects = tuple(device for device in devices if not is_reference(device))
    checks = measurer.ask(OutputErrors(suspects)) if suspects else []
    checked = zip(suspects, checks, strict=True)
    return {device: check for device, check in checked if not check.is_correct}


def replace_wrong(
    measurer: Measurer,
    devices: Sequence[Device],
    wrong: Mapping[Device, OutputCheck],
    say: Callable[[str], None],
) -> tuple[Device, ...]:
    """Returns the devices, with those that are wrong in their own precision in f32 instead.

    A device is left out if it is wrong in f32 too, or if another device is the same in f32. `say`
    receives one line about each device that is changed or left out.

    Raises:
      UserError: every device computes wrong outputs.
    """
    if not wrong:
        return tuple(devices)
    in_f32 = dict(zip(devices, replace_with_f32(devices, [d.name for d in wrong]), strict=True))
    f32_checks = measurer.ask(OutputErrors(tuple(in_f32[device] for device in wrong)))
    remaining = [in_f32[device] for device in devices]
    for (device, check), f32_check in zip(wrong.items(), f32_checks, strict=True):
        replacement, reason = in_f32[device], f"{device.label}: {check.describe()}"
        settings = True, replacement.core, replacement.properties
        same = [d for d in devices if d not in wrong and (d.host, d.core, d.properties) == settings]
        if f32_check.is_correct and not same:
            say(f"{reason}; it computes in f32 instead")
            continue
        remaining.remove(replacement)
        instead = f"{same[0].name} computes in f32" if same else f"{f32_check.error:.3g} in f32 too"
        say(f"{reason}; it is left out ({instead})")
    if not remaining:
        device, check = next(iter(wrong.items()))
        raise UserError(
            f"no device computes right outputs: {check.describe()} on {device.label}; "
            "check them on real inputs: inputs='FILE.npz'"
        )
    return replace_with_f32(remaining, ())


def bisect(
    part: Part, measure: Callable[[Sequence[int]], float], is_final: Callable[[Part], bool]
) -> list[Part]:
    """Divides a part, finely where errors arise, and returns the parts in order.

    A part is not divided if neither half has half of its error: the error then arises from
    operations of both halves together. `measure` returns the output error with some units on the
    device; nan if that failed, which makes the part around them final.
    """
    if len(part.units) == 1 or is_final(part):
        return [part]
    middle = len(part.units) // 2
    halves = [Part(half, measure(half)) for half in (part.units[:middle], part.units[middle:])]
    if not np.max([half.error for half in halves]) >= part.error / 2:  # for nan, too
        return [part]
    return [leaf for half in halves for leaf in bisect(half, measure, is_final)]


def divide(
    net: loading.Network,
    problem: Problem,
    device: Device,
    whole_check: OutputCheck,
    measurer: Measurer,
    time_limit_s: float,
) -> Division:
    """Divides a model between a device that computes some of it wrong and the other devices.

    Args:
      net: the model.
      problem: its problem, with the costs of all devices.
      device: whose outputs are wrong if it runs the whole model.
      whole_check: the check of these outputs.
      measurer: of the model.
      time_limit_s: limit on the bisection; a few more errors are measured after it.
    """
    end_s = time.monotonic() + time_limit_s
    op_names, max_error = net.graph.op_names, whole_check.tolerance
    # A unit is a decision that computes something and that the device supports.
    is_allowed = problem.allowed[:, problem.devices.index(device.name)]
    units = [
        ops
        for ops, allowed in zip(net.members, is_allowed, strict=True)
        if allowed and not measurer.computed_ops.isdisjoint(ops)
    ]
    reference = reference_device()

    def measure(device_units: Sequence[int]) -> float:
        device_ops = {name for unit in device_units for name in units[unit]}
        affinity = {n: (device if n in device_ops else reference).name for n in op_names}
        try:
            return measurer.ask(PlacementError(Candidate(affinity, (device, reference)))).error
        except ChildProcessError:  # OpenVINO cannot run every placement
            return math.nan

    def is_final(part: Part) -> bool:  # for nan, too
        return not part.error > _NEGLIGIBLE * max_error or time.monotonic() > end_s

    def sensitivity(part: Part) -> float:
        return math.inf if math.isnan(part.error) else part.error / len(part.units)

    parts = bisect(Part(range(len(units)), whole_check.error), measure, is_final)
    # The units of a part share its error. Those with the largest errors leave the device first.
    parts.sort(key=sensitivity, reverse=True)
    ranking = [unit for part in parts for unit in part.units]
    num_wrong, num_right, error = 0, len(units), 0.0  # units off the device; 0 is known to be wrong
    while num_right - num_wrong > 1:
        middle = (num_wrong + num_right) // 2
        measured = measure(ranking[middle:])
        if measured <= max_error:
            num_right, error = middle, measured
        else:
            num_wrong = middle
    kept_off = set(ranking[:num_right])
    allowed = frozenset(op_names).difference(*(units[unit] for unit in kept_off))
    culprits = []
    for part in parts:
        ops = [name for unit in part.units if unit in kept_off for name in units[unit]]
        if ops:
            computed = tuple(name for name in ops if name in measurer.computed_ops)
            culprits.append(Culprit(computed, part.error))
    return Division(
        device=device.name,
        label=device.label,
        max_error=max_error,
        whole_error=whole_check.error,
        error=error,
        allowed=allowed if num_right < len(units) else frozenset(),
        culprits=tuple(culprits),
    )
