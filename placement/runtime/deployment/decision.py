"""A placement against every single device, measured where it is to run; and what to make of it.

Rounds are interleaved and ratios paired, as `placement.runtime.measurement.request` explains. The
placement is deployed only if it is faster than the best single device, that is, if the 95% interval
of the ratio lies below 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.deployment.preflight import Placed
from placement.runtime.devices import Device
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    Interval,
    Measure,
    Measurement,
)

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
      say: told what is being done.

    Returns:
      Rows: devices alone, the best first, then the placement's forms, then references.

    Raises:
      UserError: the placement fails or computes wrong outputs.
    """
    used = tuple(device for device in measurer.devices if device.name in placed.used)
    alone = {f"single:{device.name}": Candidate(None, (device,)) for device in measurer.devices}
    mixed = _forms(placed, used) if len(used) > 1 else {}
    others = {d.label: Candidate(None, (d,)) for d in devices.all_threads(measurer.devices)}
    say("looking for the best single device")
    found = _outcomes(measurer, alone, seconds / 4)
    for _ in alone:  # until none turns out to be faster than the one taken for the best
        alone = dict(sorted(alone.items(), key=lambda item: _ratio(found[item[0]])))
        say("the placement beside the single devices")
        found = _outcomes(measurer, alone | mixed | others, seconds)
        if not any(_beats_the_first(found[name]) for name in list(alone)[1:]):
            break
    rows = [_row(name, artifact.SINGLE, found[name]) for name in alone]
    rows += [_row(name, form, found[name]) for name, form in zip(mixed, _FORMS, strict=False)]
    if mixed and rows[-1].latency is None:  # the form that was searched for
        raise _refusal(placed, f"{rows[-1].name}: {rows[-1].status}")
    references = [(_row(name, REFERENCE, found[name]), c.devices[0]) for name, c in others.items()]
    return rows + [row._replace(device=device) for row, device in references]


def decide(placed: Placed, rows: Sequence[Row]) -> Decision:
    """Decides what to deploy: the placement's fastest form if that beats every single device.

    A placement that gives one device everything is kept unless another device is faster. Where no
    single device is right it is the fastest of what is, the references among it.

    Raises:
      UserError: nothing that OpenVINO could run alone works.
    """
    forms = [row for row in rows if row.form in _FORMS and row.latency]
    if rows[0].latency is None:
        return _decide_without_singles(placed, rows)
    best = rows[0].name.partition(":")[2]
    if len(placed.used) == 1:
        return _decide_single(placed, rows, best)
    faster = [(row.ratio.median, row) for row in forms if row.ratio and row.ratio.high < 1]
    if not faster:
        told = "; ".join(f"{row.name}: {said(row.ratio)}" for row in forms)
        reason = f"the placement is not faster than {best} alone ({told})"
        return Decision(artifact.SINGLE, best, True, f"{reason}, which is deployed instead")
    _, chosen = min(faster, key=lambda pair: pair[0])
    serial = [row for _, row in faster if row.form == artifact.HETERO]
    reason = f"{chosen.name}: {said(chosen.ratio)} of the time of {best}, the best single device"
    return Decision(chosen.form, None if serial else best, False, reason)


def said(ratio: Interval | None) -> str:
    """A ratio with its interval."""
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "-"


def _decide_without_singles(placed: Placed, rows: Sequence[Row]) -> Decision:
    """Of what is right where no single device that the placement chose from is."""
    found = sorted((row for row in rows if row.latency), key=_latency_s)
    # What OpenVINO runs alone; a reference of a device that the placement has otherwise is another.
    plain = [r for r in found if r.device is None or r.device.name not in placed.used]
    plain = [row for row in plain if row.form != artifact.CONCURRENT]
    found = found if plain else [row for row in found if row.form != artifact.CONCURRENT]
    if not found:
        raise _refusal(placed, rows[0].status)
    chosen = found[0]
    alone = plain[0] if chosen.form == artifact.CONCURRENT else chosen
    causes = "; ".join(f"{row.name}: {row.status}" for row in rows if row.form == artifact.SINGLE)
    reason = (
        f"{chosen.name} takes {1e3 * _latency_s(chosen):.4g} ms, the least of what is right; no "
        f"single device of the placement is ({causes})"
    )
    form = artifact.SINGLE if chosen.device else chosen.form
    name = alone.device.name if alone.device else None
    return Decision(form, name, form == artifact.SINGLE, reason, alone.device)


def _latency_s(row: Row) -> float:
    assert row.latency is not None
    return row.latency.median


def _decide_single(placed: Placed, rows: Sequence[Row], best: str) -> Decision:
    """Of a placement that is all on one device, which OpenVINO then runs without HETERO."""
    (own,) = placed.used
    row = next(row for row in rows if row.name == f"single:{own}")
    reason = f"the placement gives {own} everything"
    if row.ratio is not None and row.ratio.low <= 1:
        reason += ", and no single device is faster"
        return Decision(artifact.SINGLE, own, False, reason)
    if row.ratio is None:
        reason += f", but {own} failed: {row.status}: {best} is deployed instead"
    else:
        reason += f", but {own} takes {said(row.ratio)} of the time of {best}"
        reason += f": {best} is deployed instead"
    return Decision(artifact.SINGLE, best, True, reason)


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


def _outcomes(
    measurer: Measurer, candidates: Mapping[str, Candidate], seconds: float
) -> dict[str, Measurement | Failure]:
    listed = list(candidates.values())
    found = measurer.ask(Measure(listed, min_rounds=MIN_ROUNDS, time_limit_s=seconds))
    return dict(zip(candidates, found, strict=True))


def _ratio(outcome: Measurement | Failure) -> float:
    """To the first candidate, paired; the latency where that failed, inf without a number."""
    if isinstance(outcome, Failure):
        return math.inf
    ratio = outcome.ratio.median
    return outcome.latency.median if math.isnan(ratio) else ratio


def _beats_the_first(outcome: Measurement | Failure) -> bool:
    """Also where the first failed, and no ratio to it is a number."""
    return isinstance(outcome, Measurement) and not outcome.ratio.high >= 1


def _row(name: str, form: str, outcome: Measurement | Failure) -> Row:
    if isinstance(outcome, Failure):
        return Row(name, form, None, None, None, None, f"{outcome.stage}: {outcome.cause}")
    ratio = None if math.isnan(outcome.ratio.median) else outcome.ratio
    return Row(name, form, outcome.latency, ratio, outcome.output_error, outcome.tolerance, "ok")
