"""Measures a placement against every single device on the target, and decides which one to deploy.

Rounds are interleaved and ratios are paired, as `placement.runtime.measurement.request` explains.
`placement.reporting.verdict` chooses the row to use.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import preflight
from placement.runtime.deployment.description import CONCURRENT, HETERO, SINGLE
from placement.runtime.deployment.preflight import PlacementFile
from placement.runtime.devices import Device
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Interval, Measurement

REFERENCE = "reference"  # the form of a row about a device that was not offered to the placement
MIN_ROUNDS = 10


class Row(NamedTuple):
    """The measurement of one way to run the model."""

    name: str  # 'single:CPU', 'placement', 'placement, concurrent' or a reference's label
    form: str  # 'single', 'hetero', 'concurrent' or 'reference'
    latency: Interval | None  # seconds; None for a failure
    ratio: Interval | None  # to the best single device, paired; None if every single device failed
    output_error: float | None
    tolerance: float | None
    status: str  # 'ok', or the failure
    device: Device | None = None  # of a reference


class Decision(NamedTuple):
    """The form to deploy."""

    form: str
    single_device: (
        str | None
    )  # the device if OpenVINO alone runs one; None if it runs form 'hetero'
    is_fallback: bool  # whether a single device replaces the placement
    reason: str
    reference: Device | None = None  # the device `alone` if the placement does not use it


def measure(
    placed: PlacementFile,
    measurer: Measurer,
    *,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measures every single device, the forms of the placement, and the reference devices.

    A device with too little memory for the whole model is not measured alone.

    Args:
      placed: the placement.
      measurer: measures the placed model on all devices that could be used.
      seconds: time for timing; compiling is not included.
      say: receives a note about the current step.

    Returns:
      Rows: single devices, the best first, then the placement's forms, then references.

    Raises:
      UserError: the placement fails or computes wrong outputs.
    """
    used = tuple(device for device in measurer.devices if device.name in placed.used_devices)
    # The form that the placement was made for comes last.
    forms: dict[str, tuple[str, Candidate]] = {}
    if len(used) > 1:
        forms["placement"] = HETERO, Candidate(placed.affinity, used)
        if placed.segments:
            concurrent = Candidate(placed.affinity, used, placed.segments)
            forms["placement, concurrent"] = CONCURRENT, concurrent
    references = devices.list_references(measurer.devices)
    excess = {d: preflight.describe_excess(placed, d, whole_model=True) for d in measurer.devices}
    large_enough = [device for device in measurer.devices if not excess[device]]
    say("the placement and the single devices")
    measured = baseline.measure(
        measurer,
        [Candidate(None, (device,)) for device in large_enough],
        [
            *(candidate for _, candidate in forms.values()),
            *(Candidate(None, (device,)) for device in references),
        ],
        min_rounds=MIN_ROUNDS,
        seconds=seconds,
    )

    def row(name: str, form: str, outcome: Measurement | Failure) -> Row:
        if isinstance(outcome, Failure):
            return Row(name, form, None, None, None, None, f"{outcome.stage}: {outcome.cause}")
        ratio = None if math.isnan(outcome.ratio.median) else outcome.ratio
        errors = outcome.output_error, outcome.tolerance
        return Row(name, form, outcome.latency, ratio, *errors, "ok")

    singles = sorted(
        zip(large_enough, measured.singles, strict=True),
        key=lambda single: baseline.ratio_or_latency(single[1]),
    )
    rows = [row(f"single:{device.name}", SINGLE, outcome) for device, outcome in singles]
    for device, cause in excess.items():
        if cause:
            status = f"out of memory: {cause}"
            rows.append(Row(f"single:{device.name}", SINGLE, None, None, None, None, status))
    form_outcomes = measured.candidates[: len(forms)]
    for (name, (form, _)), outcome in zip(forms.items(), form_outcomes, strict=True):
        rows.append(row(name, form, outcome))
    if forms and rows[-1].latency is None:
        raise _refusal(placed, f"{rows[-1].name}: {rows[-1].status}")
    for device, outcome in zip(references, measured.candidates[len(forms) :], strict=True):
        rows.append(row(device.label, REFERENCE, outcome)._replace(device=device))
    return rows


def deployable_rows(placed: PlacementFile, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with right outputs, without a concurrent form that cannot be deployed.

    A concurrent form is written together with a form that OpenVINO runs alone. If no single device
    is right, that must be another row; see `_serial_rows`.

    Raises:
      UserError: there is no such row.
    """
    right = [row for row in rows if row.latency]
    if not any(row.form == SINGLE for row in right) and not _serial_rows(placed, right):
        right = [row for row in right if row.form != CONCURRENT]
    if not right:
        raise _refusal(placed, rows[0].status)
    return right


def preferred_row(placed: PlacementFile) -> str:
    """Returns the row that equals a placement on one device, by name; '' for other placements."""
    return f"single:{next(iter(placed.used_devices))}" if len(placed.used_devices) == 1 else ""


def decide(placed: PlacementFile, rows: Sequence[Row], winner: str, reason: str) -> Decision:
    """Returns the form to deploy for the winning row.

    Args:
      placed: the placement.
      rows: from `measure`.
      winner: the name of the row, one of `deployable_rows`.
      reason: the reason for it, for readers of the deployed files.
    """
    row = next(row for row in rows if row.name == winner)
    if row.form == REFERENCE:
        assert row.device is not None
        return Decision(SINGLE, row.device.name, True, reason, row.device)
    if row.form == SINGLE:
        device_name = row.name.removeprefix("single:")
        return Decision(SINGLE, device_name, winner != preferred_row(placed), reason)
    if row.form == HETERO:
        return Decision(HETERO, None, False, reason)
    best_single = next((row for row in rows if row.form == SINGLE and row.latency), None)
    if best_single is None:
        serial = _serial_rows(placed, rows)[0]
        name = serial.device.name if serial.device else None
        return Decision(CONCURRENT, name, False, reason, serial.device)
    hetero_is_faster = any(r.form == HETERO and r.ratio and r.ratio.high < 1 for r in rows)
    device_name = best_single.name.removeprefix("single:")
    return Decision(CONCURRENT, None if hetero_is_faster else device_name, False, reason)


def _serial_rows(placed: PlacementFile, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that OpenVINO can run alone if no single device is right, fastest first.

    A reference that is a device of the placement in another precision is not among them, because
    one file cannot hold a device in two precisions.
    """
    timed = [
        (row.latency.median, row)
        for row in rows
        if row.latency
        and row.form in (HETERO, REFERENCE)
        and (row.device is None or row.device.name not in placed.used_devices)
    ]
    return [row for _, row in sorted(timed, key=lambda pair: pair[0])]


def _refusal(placed: PlacementFile, cause: str) -> UserError:
    return UserError(
        f"the placement (found by {placed.method}) cannot be deployed here: {cause}; "
        "place the model on this machine with the same settings"
    )
