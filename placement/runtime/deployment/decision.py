"""Measures a placement against every single device on the target.

Rounds are interleaved and ratios are paired, as `placement.runtime.measurement.request` explains.
`placement.reporting.verdict` chooses the row to deploy.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment.manifest import CONCURRENT, HETERO, SINGLE
from placement.runtime.deployment.preflight import PlacementFile
from placement.runtime.devices import Device
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Measurement

REFERENCE = "reference"  # the form of a row about a device that was not offered to the placement
MIN_ROUNDS = 10


class Row(NamedTuple):
    """One way to run the model."""

    method: str  # 'single:CPU', 'placement', 'placement, concurrent' or 'reference:' and a label
    form: str  # 'single', 'hetero', 'concurrent' or 'reference'
    device: Device | None  # that runs the whole model; None for the placement
    candidate: Candidate
    outcome: Measurement | Failure | None = None  # None before it is measured

    @property
    def is_right(self) -> bool:
        """Whether it was measured, which only ways with right outputs are."""
        return isinstance(self.outcome, Measurement)

    def to_json(self) -> dict[str, Any]:
        """Returns the row as `summary.json` has it, with its form."""
        measured, ratio, status = None, None, "ok"
        if isinstance(self.outcome, Failure):
            status = f"{self.outcome.stage}: {self.outcome.cause}"
        elif self.outcome is not None:
            measured = self.outcome
            ratio = None if math.isnan(measured.ratio.median) else measured.ratio
        return {
            "method": self.method,
            "form": self.form,
            "reference": self.form == REFERENCE,
            "measured_s": measured and measured.latency._asdict(),
            "versus_best_single_device": ratio and ratio.median,
            "versus_interval": ratio and (ratio.low, ratio.high),
            "output_error": measured and measured.output_error,
            "tolerance": measured and measured.tolerance,
            "status": status,
        }


def measure(placed: PlacementFile, measurer: Measurer, *, seconds: float) -> list[Row]:
    """Measures every single device, the forms of the placement, and the reference devices.

    A device with too little memory for the whole model is not measured alone.

    Args:
      placed: the placement.
      measurer: measures the placed model on all devices that could be used.
      seconds: time for timing; compiling is not included.

    Returns:
      Rows: single devices, the best first, then the placement's forms, then references.

    Raises:
      UserError: the placement fails or computes wrong outputs.
    """
    singles, others, too_large = [], [], []
    for device in measurer.devices:
        row = Row(f"single:{device.name}", SINGLE, device, Candidate(None, (device,)))
        needed_bytes, capacity_bytes = placed.model_bytes.get(device.name), device.capacity_bytes
        if needed_bytes and capacity_bytes and needed_bytes > capacity_bytes:
            needs = f"needs {needed_bytes / 1e6:.1f} MB of {capacity_bytes / 1e6:.1f} MB"
            too_large.append(row._replace(outcome=Failure("out of memory", needs)))
        else:
            singles.append(row)
    used = tuple(device for device in measurer.devices if device.name in placed.used_devices)
    if len(used) > 1:
        others.append(Row("placement", HETERO, None, Candidate(placed.affinity, used)))
        if placed.segments:  # the form that the placement was made for comes last
            candidate = Candidate(placed.affinity, used, placed.segments)
            others.append(Row("placement, concurrent", CONCURRENT, None, candidate))
    num_forms = len(others)
    for device in devices.list_references(measurer.devices):
        candidate = Candidate(None, (device,))
        others.append(Row(f"reference:{device.label}", REFERENCE, device, candidate))
    measured = baseline.measure(
        measurer,
        [row.candidate for row in singles],
        [row.candidate for row in others],
        min_rounds=MIN_ROUNDS,
        seconds=seconds,
    )
    pairs = sorted(
        zip(singles, measured.singles, strict=True),
        key=lambda pair: baseline.ratio_or_latency(pair[1]),
    )
    singles, others = (
        [row._replace(outcome=outcome) for row, outcome in rows]
        for rows in (pairs, zip(others, measured.candidates, strict=True))
    )
    for form in others[:num_forms][-1:]:
        if not form.is_right:
            raise _refuse(placed, form)
    return [*singles, *too_large, *others]


def list_deployable(placed: PlacementFile, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with right outputs.

    The concurrent form is deployed together with HETERO, which therefore has to be right, too.

    Raises:
      UserError: the row does not exist.
    """
    is_hetero_right = any(row.form == HETERO and row.is_right for row in rows)
    right = [row for row in rows if row.is_right and (row.form != CONCURRENT or is_hetero_right)]
    if not right:
        raise _refuse(placed, rows[0])
    return right


def _refuse(placed: PlacementFile, row: Row) -> UserError:
    return UserError(
        f"the placement (found by {placed.method}) cannot be deployed here: {row.method}: "
        f"{row.to_json()['status']}; place the model on this machine with the same settings"
    )
