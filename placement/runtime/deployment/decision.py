"""A placement against every single device, measured where it is to run; and what to write.

Rounds are interleaved and ratios paired, as `placement.runtime.measurement.request` explains. Which
row to use `placement.reporting.verdict` decides.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.deployment.preflight import Placed
from placement.runtime.devices import Device
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Interval, Measurement

REFERENCE = "reference"  # the form of a row about a device that the placement did not choose from
MIN_ROUNDS = 10

_FORMS = (artifact.HETERO, artifact.CONCURRENT)


class Row(NamedTuple):
    """What was measured of one way to run the model."""

    name: str  # 'single:CPU', 'placement', 'placement, concurrent' or a reference's label
    form: str  # 'single', 'hetero', 'concurrent' or 'reference'
    latency: Interval | None  # seconds; None where it failed
    ratio: Interval | None  # to the best single device, paired; None where there is none
    output_error: float | None
    tolerance: float | None
    status: str  # 'ok', or what went wrong
    device: Device | None = None  # of a reference


class Decision(NamedTuple):
    """What is to be deployed."""

    form: str
    alone: str | None  # the device of what OpenVINO runs alone; None where that is 'hetero'
    fallback: bool  # whether a single device takes the placement's place
    reason: str
    reference: Device | None = None  # what is alone, where that is none of the placement's


def measure(
    placed: Placed,
    measurer: Measurer,
    *,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measures every device alone, the forms of the placement, and devices for reference.

    Args:
      placed: the placement.
      measurer: of the model as placed, on all devices that could be used.
      seconds: of timing, compilation not included.
      say: called with what is being done.

    Returns:
      Rows: devices alone, the best first, then the placement's forms, then references.

    Raises:
      UserError: the placement fails or computes wrong outputs.
    """
    used = tuple(device for device in measurer.devices if device.name in placed.used)
    singles = [Candidate(None, (device,)) for device in measurer.devices]
    forms = _forms(placed, used) if len(used) > 1 else {}
    references = devices.all_threads(measurer.devices)
    say("the placement beside the single devices")
    measured = baseline.measure(
        measurer,
        singles,
        [*forms.values(), *(Candidate(None, (device,)) for device in references)],
        min_rounds=MIN_ROUNDS,
        seconds=seconds,
    )
    order = sorted(range(len(singles)), key=lambda i: baseline.ratio(measured.singles[i]))
    rows = [
        _row(f"single:{measurer.devices[i].name}", artifact.SINGLE, measured.singles[i])
        for i in order
    ]
    for (name, _), form, outcome in zip(forms.items(), _FORMS, measured.others, strict=False):
        rows.append(_row(name, form, outcome))
    if forms and rows[-1].latency is None:  # the form that was searched for
        raise _refusal(placed, f"{rows[-1].name}: {rows[-1].status}")
    for device, outcome in zip(references, measured.others[len(forms) :], strict=True):
        rows.append(_row(device.label, REFERENCE, outcome)._replace(device=device))
    return rows


def deployable(placed: Placed, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that can be deployed, or are measured to be compared with.

    A concurrent form is written beside a form that OpenVINO runs alone. Where no single device is
    right, that has to be another row, and a reference of a device that the placement uses in
    another precision cannot be it.

    Raises:
      UserError: there is none.
    """
    kept = [row for row in rows if row.latency]
    if not _singles(kept) and not _beside_concurrent(placed, kept):
        kept = [row for row in kept if row.form != artifact.CONCURRENT]
    if not kept:
        raise _refusal(placed, rows[0].status)
    return kept


def preferred(placed: Placed) -> str:
    """Returns the name of the row that a placement on one device keeps to, unless it loses."""
    return f"single:{next(iter(placed.used))}" if len(placed.used) == 1 else ""


def decide(placed: Placed, rows: Sequence[Row], winner: str, reason: str) -> Decision:
    """Returns what to write where a row is to be used.

    Args:
      placed: the placement.
      rows: of `measure`.
      winner: the name of the row, which is one of `deployable`.
      reason: why, for whoever reads the deployed files.
    """
    row = next(row for row in rows if row.name == winner)
    if row.form == REFERENCE:
        assert row.device is not None
        return Decision(artifact.SINGLE, row.device.name, True, reason, row.device)
    if row.form == artifact.SINGLE:
        return Decision(row.form, _device_name(row), winner != preferred(placed), reason)
    if row.form == artifact.HETERO:
        return Decision(row.form, None, False, reason)
    if not _singles(rows):
        alone = _beside_concurrent(placed, rows)[0]
        name = alone.device.name if alone.device else None
        return Decision(row.form, name, False, reason, alone.device)
    faster = [r for r in rows if r.form == artifact.HETERO and r.ratio and r.ratio.high < 1]
    return Decision(row.form, None if faster else _device_name(_singles(rows)[0]), False, reason)


def _singles(rows: Sequence[Row]) -> list[Row]:
    """Returns the single devices that are right, the best first."""
    return [row for row in rows if row.form == artifact.SINGLE and row.latency]


def _device_name(row: Row) -> str:
    return row.name.removeprefix("single:")


def _beside_concurrent(placed: Placed, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that OpenVINO runs alone where no single device is right, fastest first."""
    alone = [
        row
        for row in rows
        if row.latency
        and row.form in (artifact.HETERO, REFERENCE)
        and (row.device is None or row.device.name not in placed.used)
    ]
    return sorted(alone, key=lambda row: row.latency.median if row.latency else math.inf)


def _forms(placed: Placed, used: tuple[Device, ...]) -> dict[str, Candidate]:
    """Returns what there is of `_FORMS`, the one that the placement was found for last."""
    found = {"placement": Candidate(placed.affinity, used)}
    if placed.segments:
        found["placement, concurrent"] = Candidate(placed.affinity, used, placed.segments)
    return found


def _refusal(placed: Placed, cause: str) -> UserError:
    return UserError(
        f"the placement (of {placed.method}) cannot be deployed here: {cause}; "
        "place the model on this machine with the same flags: --task=place"
    )


def _row(name: str, form: str, outcome: Measurement | Failure) -> Row:
    if isinstance(outcome, Failure):
        return Row(name, form, None, None, None, None, f"{outcome.stage}: {outcome.cause}")
    ratio = None if math.isnan(outcome.ratio.median) else outcome.ratio
    return Row(name, form, outcome.latency, ratio, outcome.output_error, outcome.tolerance, "ok")
