"""Devices whose outputs are wrong, and the operations that make them wrong.

A device may compute right outputs for most of a model: the CPU in bf16 loses too much accuracy in a
few operations, or one kernel of an accelerator is faulty. `divide` finds these operations:

1. Bisection measures the output error with a part of the model on the device and the rest on the
   reference device. The part with the largest error is halved first.
2. The operations with the largest errors leave the device, as few as make the outputs right.
   Binary search finds their number.

Afterwards the device supports only the other operations, so that every method searches among
placements that are accurate enough. A device without any right operation computes in f32 instead.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import coarsen
from placement.pipeline import loading
from placement.runtime.devices import Device, is_reference, reference_device, replace_with_f32
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, OutputErrors, PlacementError
from placement.runtime.models.outputs import OutputCheck
from placement.types import CostModel

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
    seconds: float

    def describe(self) -> str:
        """Returns one line: the error, the operations that cause it, and the remaining error."""
        limit = f"outputs differ by {self.whole_error:.3g} of their spread, over {self.max_error:g}"
        if not self.allowed:
            return f"{self.label}: {limit}, and no part of the model is accurate enough on it"
        ops, error = self.culprits[0]
        count = sum(len(culprit.ops) for culprit in self.culprits)
        return (
            f"{self.label}: {limit}. The error comes from {count} operations, above all from "
            f"{ops[0]} ({error:.2g}), which other devices run. With the rest there it is "
            f"{self.error:.3g} (found in {self.seconds:.0f} s)."
        )

    def to_json(self, affinity: Mapping[str, str]) -> dict[str, Any]:
        """Returns the record for reports; `affinity` is the placement to report."""
        values = self._asdict()
        del values["allowed"]
        values["culprits"] = [
            culprit._asdict() | {"run_on": sorted({affinity[op] for op in culprit.ops})}
            for culprit in self.culprits
        ]
        return values


class Part(NamedTuple):
    """Successive units and the error that they cause together."""

    first: int
    last: int  # exclusive
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
    num_units: int,
    measure: Callable[[int, int], float],
    negligible: float,
    is_over: Callable[[], bool],
) -> list[Part]:
    """Divides units into parts, finely where errors arise, and returns the parts in order.

    A part is final if it is one unit, if its error is at most `negligible`, or if neither half has
    half of its error: the error then arises from operations of both halves together. `measure`
    returns the output error with the units first to last - 1 on the device; nan if that failed,
    which makes the part around them final. `is_over` ends the divisions.
    """
    final: list[Part] = []
    pending = [Part(0, num_units, measure(0, num_units))]
    while pending:
        part = max(pending, key=lambda pending_part: pending_part.error)
        pending.remove(part)
        if part.last - part.first == 1 or not part.error > negligible or is_over():
            final.append(part)
            continue
        middle = (part.first + part.last) // 2
        bounds = (part.first, middle), (middle, part.last)
        halves = [Part(first, last, measure(first, last)) for first, last in bounds]
        if np.max([half.error for half in halves]) >= part.error / 2:  # False for nan
            pending += halves
        else:
            final.append(part)
    return sorted(final)


def divide(
    problem: loading.SearchProblem,
    device: Device,
    whole_check: OutputCheck,
    measurer: Measurer,
    time_limit_s: float,
    note: Callable[[str], None],
) -> Division:
    """Divides a model between a device that computes some of it wrong and the other devices.

    Args:
      problem: with the costs of all devices.
      device: whose outputs are wrong if it runs the whole model.
      whole_check: the check of these outputs.
      measurer: of the model.
      time_limit_s: limit on the bisection; a few more errors are measured after it.
      note: receives a few words about the current step.
    """
    start_s, num_measurements = time.monotonic(), 0
    op_names, max_error = problem.full.graph.op_names, whole_check.tolerance
    # A unit is a co-location class that computes something and that the device supports.
    coarse, column = problem.coarse, problem.full.devices.index(device.name)
    members = coarsen.list_member_names(problem.full.graph, problem.assignment)
    class_ops: list[list[str]] = [[] for _ in coarse.classes.first_ops]
    for op in coarse.topological_order.tolist():
        class_ops[coarse.classes.ids[op]] += members[op]
    units = [
        class_ops[number]
        for number in coarse.class_order.tolist()
        if coarse.classes.allowed[number, column]
        and not measurer.computed_ops.isdisjoint(class_ops[number])
    ]
    reference = reference_device()

    def measure(device_units: Iterable[int]) -> float:
        nonlocal num_measurements
        num_measurements += 1
        note(f"{num_measurements} errors measured")
        device_ops = {name for unit in device_units for name in units[unit]}
        affinity = {n: (device if n in device_ops else reference).name for n in op_names}
        try:
            return measurer.ask(PlacementError(Candidate(affinity, (device, reference)))).error
        except ChildProcessError:  # OpenVINO cannot run every placement
            return math.nan

    parts = bisect(
        len(units),
        lambda first, last: measure(range(first, last)),
        _NEGLIGIBLE * max_error,
        lambda: time.monotonic() - start_s > time_limit_s,
    )
    # The units of a part share its error. Those with the largest errors leave the device first.
    sizes = np.array([part.last - part.first for part in parts])
    unit_errors = np.repeat([part.error for part in parts] / sizes, sizes)
    ranking = np.argsort(-np.nan_to_num(unit_errors, nan=np.inf), kind="stable").tolist()
    num_wrong, num_right, error = 0, len(units), 0.0  # units off the device; 0 is known to be wrong
    while num_right - num_wrong > 1:
        middle = (num_wrong + num_right) // 2
        measured = measure(ranking[middle:])
        if measured <= max_error:
            num_right, error = middle, measured
        else:
            num_wrong = middle
    kept_off = set(ranking[:num_right])
    culprits = []
    for part in sorted(parts, key=lambda part: -part.error):
        part_units = kept_off.intersection(range(part.first, part.last))
        ops = [name for unit in sorted(part_units) for name in units[unit]]
        if ops:
            culprits.append(
                Culprit(tuple(filter(measurer.computed_ops.__contains__, ops)), part.error)
            )
    kept_off_ops = {name for unit in kept_off for name in units[unit]}
    return Division(
        device=device.name,
        label=device.label,
        max_error=max_error,
        whole_error=whole_check.error,
        error=error,
        allowed=frozenset(op_names) - kept_off_ops if num_right < len(units) else frozenset(),
        culprits=tuple(culprits),
        seconds=time.monotonic() - start_s,
    )


def restrict(
    costs: CostModel,
    op_names: Sequence[str],
    device_names: Sequence[str],
    divisions: Collection[Division],
) -> CostModel:
    """Returns costs [N, D] under which devices support only the operations that divisions allow."""
    compute_s = np.array(costs.compute_s)
    for division in divisions:
        is_kept_off = [name not in division.allowed for name in op_names]
        compute_s[is_kept_off, device_names.index(division.device)] = np.inf
    return costs._replace(compute_s=compute_s)
