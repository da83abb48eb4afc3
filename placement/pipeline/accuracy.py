"""Keeps operations off a device that computes them wrong, so that the rest can use it.

A device may compute right outputs for most of a model: the CPU in bf16 loses too much accuracy in a
few operations, or one kernel of an accelerator is faulty. `divide` finds these operations:

1. Bisection measures the output error that parts of the model cause on the device, while the rest
   runs on the reference device (`placement.search.sensitivity`).
2. Errors are assumed to add up. Under `serial` the candidates are the front of latency against
   error (`placement.solvers.error_front`). Under other objectives the candidates keep the most
   sensitive units off the device, as many as needed.
3. The fastest candidate that is accurate enough is found by measuring errors. Each measured error
   rescales the predicted ones. If it has nothing on the device, the candidates of other objectives
   are tried.
4. Its outputs are checked on all inputs, also those that steps 1 to 3 did not use. Until they are
   right, more of the most sensitive units are kept off the device.

Afterwards the device supports only the operations that it has in this division, so that every
method searches among placements that are accurate enough.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.graphs import coarsen
from placement.pipeline import loading
from placement.runtime.devices import Device, reference_device
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    Candidate,
    PlacementError,
)
from placement.runtime.models.outputs import OutputCheck
from placement.search import sensitivity
from placement.solvers import error_front
from placement.solvers.limits import SearchLimits
from placement.types import CostModel

_NEGLIGIBLE = 0.1  # share of the accepted error: parts with less are not divided
_MAX_TRIES = 10  # candidates whose errors are measured
_NUM_NAMED = 5  # culprits in a message


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
    error: float  # with the allowed operations on the device and the others in f32, on all inputs
    num_inputs: int
    num_new_inputs: int  # inputs that were used only for `error`
    allowed: frozenset[str]  # operations
    culprits: tuple[Culprit, ...]  # the most sensitive first
    num_beside: int  # operations that are kept off too, because that saves transfers
    num_measurements: int  # of errors
    num_failed: int  # of these, placements that did not run; they count as wrong
    sensitivity_s: float  # seconds for step 1
    seconds: float  # for all steps

    def describe(self) -> str:
        """Returns one line: the error, the operations that cause it, and the remaining error."""
        limit = f"outputs differ by {self.whole_error:.3g} of their spread, over {self.max_error:g}"
        if not self.allowed:
            return f"{self.label}: {limit}, and no part of the model is accurate enough on it"
        return (
            f"{self.label}: {limit}. The error comes from {_name_culprits(self.culprits)}, which "
            f"other devices run. With the rest there it is {self.error:.3g} on {self.num_inputs} "
            f"inputs ({self.num_measurements} errors measured in {self.seconds:.0f} s, "
            f"{self.num_failed} failed)."
        )

    def to_json(self, affinity: Mapping[str, str]) -> dict[str, Any]:
        """Returns the record for reports, without the names of operations that cause no error.

        Args:
          affinity: the device of every operation in the placement to report.
        """
        values = self._asdict()
        del values["allowed"]
        return values | {
            "num_allowed": len(self.allowed),
            "culprits": [
                culprit._asdict() | {"run_on": sorted({affinity[op] for op in culprit.ops})}
                for culprit in self.culprits
            ],
        }


def _name_culprits(culprits: Sequence[Culprit]) -> str:
    """Returns names and errors of the first few culprits."""
    named = []
    for ops, error in culprits[:_NUM_NAMED]:
        rest = f" and {len(ops) - 1} more" if len(ops) > 1 else ""
        named.append(f"{ops[0]}{rest} ({error:.2g})")
    if len(culprits) > _NUM_NAMED:
        named.append(f"{len(culprits) - _NUM_NAMED} more with smaller errors")
    return ", ".join(named)


def restrict(
    costs: CostModel,
    op_names: Sequence[str],
    device_names: Sequence[str],
    divisions: Collection[Division],
) -> CostModel:
    """Returns costs under which devices support only the operations that divisions allow.

    Args:
      costs: of N operations on D devices.
      op_names: N names.
      device_names: D names.
      divisions: of some of the devices.
    """
    compute_s = np.array(costs.compute_s)
    for division in divisions:
        is_kept_off = [name not in division.allowed for name in op_names]
        compute_s[is_kept_off, device_names.index(division.device)] = np.inf
    return costs._replace(compute_s=compute_s)


class _Units(NamedTuple):
    """U sets of operations that are placed together, in topological order."""

    ops: tuple[tuple[str, ...], ...]  # the names of each unit's operations
    coarse_op: np.ndarray  # int [U]: a coarse operation of each unit


class _Candidates(NamedTuple):
    """K divisions to try, the one with the largest predicted error first."""

    is_kept: np.ndarray  # bool [K, U]: units on the device
    errors: np.ndarray  # float64 [K]: predicted, up to a common factor


class _ErrorMeter:
    """Measures output errors with some units on a device and all other operations in f32."""

    def __init__(
        self,
        measurer: Measurer,
        device: Device,
        op_names: Sequence[str],
        units: _Units,
        num_samples: int,
    ):
        """`num_samples`: the number of inputs that errors are measured on."""
        self._measurer, self._device, self._units = measurer, device, units
        self._op_names, self._num_samples = op_names, num_samples
        self._reference = reference_device()
        self.num_measurements = self.num_failed = 0

    def check(self, is_kept: np.ndarray, num_samples: int | None = None) -> OutputCheck:
        """Returns the check with the units bool [U] on the device; nan if they do not run there.

        Args:
          is_kept: bool [U], the units on the device.
          num_samples: the number of inputs; None: all.
        """
        device_ops = {name for unit in np.flatnonzero(is_kept) for name in self._units.ops[unit]}
        affinity = {
            name: (self._device if name in device_ops else self._reference).name
            for name in self._op_names
        }
        candidate = Candidate(affinity, (self._device, self._reference))
        self.num_measurements += 1
        try:
            return self._measurer.ask(PlacementError(candidate, num_samples))
        except ChildProcessError:  # OpenVINO cannot run every division
            self.num_failed += 1
            return OutputCheck(math.nan, math.nan, math.nan)

    def measure(self, is_kept: np.ndarray) -> float:
        """Returns the error on the inputs for sensitivities."""
        return self.check(is_kept, self._num_samples).error

    def measure_part(self, first: int, last: int) -> float:
        """Returns the error with units first to last - 1 on the device."""
        numbers = np.arange(len(self._units.ops))
        return self.measure((numbers >= first) & (numbers < last))


def divide(
    problem: loading.SearchProblem,
    device: Device,
    whole_check: OutputCheck,
    excluded_devices: Collection[str],
    measurer: Measurer,
    num_inputs: int,
    time_limit_s: float,
    note: Callable[[str], None],
) -> Division:
    """Divides a model between a device that computes some of it wrong and the other devices.

    Args:
      problem: with the costs of all devices.
      device: whose outputs are wrong if it runs the whole model.
      whole_check: the check of these outputs.
      excluded_devices: names of further devices with wrong outputs, which run nothing.
      measurer: measures the model.
      num_inputs: the number of its inputs. Sensitivities are measured on the first half.
      time_limit_s: limit on the bisection. Later steps measure at most a few tens of placements.
      note: receives a few words about the current step.
    """
    start_s = time.monotonic()
    column = problem.full.devices.index(device.name)
    units = _collect_units(problem, column, measurer.computed_ops)
    num_used = (num_inputs + 1) // 2
    op_names = problem.full.graph.op_names
    meter = _ErrorMeter(measurer, device, op_names, units, num_used)
    num_units, max_error = len(units.ops), whole_check.tolerance

    def is_over() -> bool:
        note(f"{meter.num_measurements} errors measured")
        return time.monotonic() - start_s > time_limit_s

    parts = sensitivity.bisect(num_units, meter.measure_part, _NEGLIGIBLE * max_error, is_over)
    sensitivity_s = time.monotonic() - start_s
    errors = np.nan_to_num(sensitivity.share_errors(parts), nan=np.inf, posinf=np.inf)
    if problem.full.objective == "serial":
        op_errors = np.zeros((problem.coarse.graph.num_ops, len(problem.full.devices)))
        op_errors[units.coarse_op, column] = errors
        op_errors[:, [name in excluded_devices for name in problem.full.devices]] = np.inf
        limits = SearchLimits(time_limit_s, 1)
        front = error_front.error_front(problem.coarse, op_errors, limits)
        placements = np.array([point.placement[units.coarse_op] for point in front], int)
        is_kept_by_point = placements.reshape(len(front), num_units) == column
        candidates = _Candidates(is_kept_by_point, np.array([point.error for point in front]))
    else:
        candidates = _threshold_candidates(errors)
    scale = whole_check.error / errors.sum() if 0 < errors.sum() < np.inf else 1.0
    scale = scale if math.isfinite(scale) else 1.0
    is_kept = _find_fastest(candidates, scale, max_error, meter)
    if not is_kept.any():  # a front of few vertices has none between all and nothing
        candidates = _threshold_candidates(errors)
        is_kept = _find_fastest(candidates, scale, max_error, meter)
    is_kept, check = _repair(is_kept, errors, max_error, meter)
    # Units that the fastest candidate has elsewhere are there for speed, not for accuracy.
    is_fast_there = candidates.is_kept[:1].any(axis=0) | np.isinf(errors)
    culprits, num_beside = [], 0
    for part in sorted(parts, key=lambda part: -part.error):
        kept_off = [
            name
            for unit in range(part.first, part.last)
            if is_fast_there[unit] and not is_kept[unit]
            for name in units.ops[unit]
            if name in measurer.computed_ops
        ]
        if kept_off and part.error > _NEGLIGIBLE * max_error:
            culprits.append(Culprit(tuple(kept_off), part.error))
        else:
            num_beside += len(kept_off)
    kept_off_ops = {name for unit in np.flatnonzero(~is_kept) for name in units.ops[unit]}
    return Division(
        device=device.name,
        label=device.label,
        max_error=max_error,
        whole_error=whole_check.error,
        error=check.error,
        num_inputs=num_inputs,
        num_new_inputs=num_inputs - num_used,
        allowed=frozenset(op_names) - kept_off_ops if is_kept.any() else frozenset(),
        culprits=tuple(culprits),
        num_beside=num_beside,
        num_measurements=meter.num_measurements,
        num_failed=meter.num_failed,
        sensitivity_s=sensitivity_s,
        seconds=time.monotonic() - start_s,
    )


def _collect_units(
    problem: loading.SearchProblem, column: int, computed_ops: frozenset[str]
) -> _Units:
    """Returns the co-location classes that compute something and that the device supports."""
    coarse = problem.coarse
    members = coarsen.list_member_names(problem.full.graph, problem.assignment)
    class_ops: list[list[str]] = [[] for _ in coarse.classes.first_ops]
    for op in coarse.topological_order.tolist():
        class_ops[coarse.classes.ids[op]] += members[op]
    numbers = [
        number
        for number in coarse.class_order.tolist()
        if coarse.classes.allowed[number, column] and not computed_ops.isdisjoint(class_ops[number])
    ]
    return _Units(
        tuple(tuple(class_ops[number]) for number in numbers), coarse.classes.first_ops[numbers]
    )


def _threshold_candidates(errors: np.ndarray) -> _Candidates:
    """Returns U + 1 divisions: the K most sensitive units are kept off the device, K from 0 on."""
    num_units = len(errors)
    rank = np.empty(num_units, int)
    rank[np.argsort(-errors, kind="stable")] = np.arange(num_units)
    is_kept = rank >= np.arange(num_units + 1)[:, None]
    return _Candidates(is_kept, np.where(is_kept, errors, 0.0).sum(axis=1))


def _find_fastest(
    candidates: _Candidates, scale: float, max_error: float, meter: _ErrorMeter
) -> np.ndarray:
    """Finds the first candidate whose measured error is accepted, assuming that errors decrease.

    Args:
      candidates: K candidates.
      scale: estimate of a candidate's error over its predicted one.
      max_error: the largest accepted error.
      meter: measures errors.

    Returns:
      bool [U], the units on the device; none of them if no candidate is accepted.
    """
    # Candidates up to `wrong` are too inaccurate; `right` is accurate enough, or K.
    wrong, right = -1, len(candidates.errors)
    for attempt in range(_MAX_TRIES):
        if right - wrong <= 1:
            break
        fits = np.flatnonzero(scale * candidates.errors[wrong + 1 : right] <= max_error)
        # Every third attempt halves the range, because predictions may be far off.
        number = (wrong + right) // 2
        if len(fits) and attempt % 3 < 2:
            number = wrong + 1 + int(fits[0])
        error = meter.measure(candidates.is_kept[number])
        if error <= max_error:
            right = number
        else:
            wrong = number
        if 0 < error < math.inf and 0 < candidates.errors[number] < math.inf:
            scale = error / candidates.errors[number]
    if right < len(candidates.errors):
        return candidates.is_kept[right]
    return np.zeros(candidates.is_kept.shape[1:], bool)


def _repair(
    is_kept: np.ndarray, errors: np.ndarray, max_error: float, meter: _ErrorMeter
) -> tuple[np.ndarray, OutputCheck]:
    """Keeps more units off the device until the outputs are right for all inputs.

    Args:
      is_kept: bool [U], units on the device.
      errors: float64 [U], the error of each unit on the device.
      max_error: the largest accepted error.
      meter: measures errors.

    Returns:
      The units on the device, and the check of the outputs.
    """
    count = 1
    while True:
        check = meter.check(is_kept)
        if check.error <= max_error or not is_kept.any():
            return is_kept, check
        device_units = np.flatnonzero(is_kept)
        worst = device_units[np.argsort(-errors[device_units], kind="stable")[:count]]
        is_kept = is_kept.copy()
        is_kept[worst] = False
        count *= 2
