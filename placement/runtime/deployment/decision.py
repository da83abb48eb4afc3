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
    outcome: Measurement | Failure

    @property
    def is_right(self) -> bool:
        """Whether it was measured, which only ways with right outputs are."""
        return isinstance(self.outcome, Measurement)

    def to_json(self) -> dict[str, Any]:
        """Returns the row as `summary.json` has it, with its form."""
        measured, interval, status = None, None, "ok"
        if isinstance(self.outcome, Failure):
            status = f"{self.outcome.stage}: {self.outcome.cause}"
        else:
            measured, ratio = self.outcome, self.outcome.ratio
            interval = None if math.isnan(ratio.median) else (ratio.low, ratio.high)
        return {
            "method": self.method,
            "form": self.form,
            "reference": self.form == REFERENCE,
            "measured_s": measured and measured.latency._asdict(),
            "versus_best_single_device": interval and ratio.median,
            "versus_interval": interval,
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
        method = f"single:{device.name}"
        needed_bytes, capacity_bytes = placed.model_bytes.get(device.name), device.capacity_bytes
        if needed_bytes and capacity_bytes and needed_bytes > capacity_bytes:
            needs = f"needs {needed_bytes / 1e6:.1f} MB of {capacity_bytes / 1e6:.1f} MB"
            too_large.append(Row(method, SINGLE, device, Failure("out of memory", needs)))
        else:
            singles.append((method, SINGLE, device, Candidate(None, (device,))))
    used = tuple(device for device in measurer.devices if device.name in placed.used_devices)
    if len(used) > 1:
        others.append(("placement", HETERO, None, Candidate(placed.affinity, used)))
        if placed.segments:  # the form that the placement was made for comes last
            candidate = Candidate(placed.affinity, used, placed.segments)
            others.append(("placement, concurrent", CONCURRENT, None, candidate))
    num_forms = len(others)
    for device in devices.list_references(measurer.devices):
        candidate = Candidate(None, (device,))
        others.append((f"reference:{device.label}", REFERENCE, device, candidate))
    measured = baseline.measure(
        measurer,
        [candidate for *_, candidate in singles],
        [candidate for *_, candidate in others],
        min_rounds=MIN_ROUNDS,
        seconds=seconds,
    )
    single_rows, rows = (
        [Row(*way[:3], outcome) for way, outcome in zip(ways, outcomes, strict=True)]
        for ways, outcomes in ((singles, measured.singles), (others, measured.candidates))
    )
    for form in rows[:num_forms][-1:]:
        if not form.is_right:
            raise _refuse(placed, form)
    single_rows.sort(key=lambda row: baseline.ratio_or_latency(row.outcome))
    return [*single_rows, *too_large, *rows]


def list_deployable(placed: PlacementFile, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with right outputs.

    The concurrent form is deployed together with HETERO, which therefore has to be right, too.

    Raises:
      UserError: there is no such row.
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
