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
from placement.runtime.deployment.preflight import PlacementFile, describe_excess
from placement.runtime.devices import Device
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Interval

REFERENCE = "reference"  # the form of a row about a device that was not offered to the placement
MIN_ROUNDS = 10


class Row(NamedTuple):
    """The measurement of one way to run the model."""

    name: str  # 'single:CPU', 'placement', 'placement, concurrent' or 'reference:' and a label
    form: str  # 'single', 'hetero', 'concurrent' or 'reference'
    status: str  # 'ok', or the failure
    latency: Interval | None = None  # seconds; None for a failure
    ratio: Interval | None = None  # to the best single device, paired; None without a right one
    output_error: float | None = None
    tolerance: float | None = None
    device: Device | None = None  # that runs the whole model; None for the placement

    def to_json(self) -> dict[str, Any]:
        """Returns the row as `summary.json` has it, with its form."""
        return {
            "method": self.name,
            "form": self.form,
            "measured_s": self.latency and self.latency._asdict(),
            "versus_best_single_device": self.ratio and self.ratio.median,
            "versus_interval": self.ratio and (self.ratio.low, self.ratio.high),
            "reference": self.form == REFERENCE,
            "output_error": self.output_error,
            "tolerance": self.tolerance,
            "status": self.status,
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
    rows, candidates, too_large = [], [], []
    for device in measurer.devices:
        row = Row(f"single:{device.name}", SINGLE, "ok", device=device)
        if excess := describe_excess(placed, device, whole_model=True):
            too_large.append(row._replace(status=f"out of memory: {excess}"))
        else:
            rows.append(row)
            candidates.append(Candidate(None, (device,)))
    num_singles = len(rows)
    used = tuple(device for device in measurer.devices if device.name in placed.used_devices)
    if len(used) > 1:
        rows.append(Row("placement", HETERO, "ok"))
        candidates.append(Candidate(placed.affinity, used))
        if placed.segments:  # the form that the placement was made for comes last
            rows.append(Row("placement, concurrent", CONCURRENT, "ok"))
            candidates.append(Candidate(placed.affinity, used, placed.segments))
    num_own = len(rows)
    for device in devices.list_references(measurer.devices):
        rows.append(Row(f"reference:{device.label}", REFERENCE, "ok", device=device))
        candidates.append(Candidate(None, (device,)))
    measured = baseline.measure(
        measurer,
        candidates[:num_singles],
        candidates[num_singles:],
        min_rounds=MIN_ROUNDS,
        seconds=seconds,
    )
    outcomes = [*measured.singles, *measured.candidates]
    for i, outcome in enumerate(outcomes):
        if isinstance(outcome, Failure):
            rows[i] = rows[i]._replace(status=f"{outcome.stage}: {outcome.cause}")
        else:
            ratio = None if math.isnan(outcome.ratio.median) else outcome.ratio
            errors = {"output_error": outcome.output_error, "tolerance": outcome.tolerance}
            rows[i] = rows[i]._replace(latency=outcome.latency, ratio=ratio, **errors)
    if num_own > num_singles and rows[num_own - 1].latency is None:
        raise _refuse(placed, rows[num_own - 1])
    best_first = sorted(range(num_singles), key=lambda i: baseline.ratio_or_latency(outcomes[i]))
    return [*(rows[i] for i in best_first), *too_large, *rows[num_singles:]]


def list_deployable(placed: PlacementFile, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with right outputs.

    The concurrent form is deployed together with HETERO, which therefore has to be right, too.

    Raises:
      UserError: there is no such row.
    """
    is_hetero_right = any(row.form == HETERO and row.latency for row in rows)
    right = [row for row in rows if row.latency and (row.form != CONCURRENT or is_hetero_right)]
    if not right:
        raise _refuse(placed, rows[0])
    return right


def _refuse(placed: PlacementFile, row: Row) -> UserError:
    return UserError(
        f"the placement (found by {placed.method}) cannot be deployed here: {row.name}: "
        f"{row.status}; place the model on this machine with the same settings"
    )
