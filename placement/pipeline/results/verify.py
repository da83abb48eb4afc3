"""Measures what the methods found, all in one interleaved session, and makes rows of it."""

import collections
import math
from typing import Any

import numpy as np

from placement.pipeline.method_runs import Entry
from placement.pipeline.results.resources import Load
from placement.reporting import units
from placement.reporting.tables import results
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import MIN_SAMPLES, Failure, Measure, Measurement
from placement.solvers import base

Outcome = Measurement | Failure | None  # None: not measured

_MIN_ROUNDS = 10


class NothingRanError(OSError):
    """No placement that was to be measured ran."""


def measure(
    measurer: Measurer, entries: list[Entry], seconds: float
) -> tuple[list[Entry], list[Outcome], list[int]]:
    """Measures every entry beside the predicted best single device that runs, interleaved.

    An entry with several candidates is first narrowed down to the fastest of them, whose number
    then is not used: the fastest of several noisy measurements is too fast. Entries of the same
    placement on the same devices are one candidate and share its outcome, so that no placement is
    faster than itself. What gives one device everything is that single device, however it was
    found, HETERO's own choice included.

    Returns:
      The entries with the chosen candidate alone, an outcome each, and how many placements were
      measured for each.
    """
    entries = [_as_singles(entry, _singles(entries)) for entry in entries]
    baseline = _baseline(measurer, entries)
    several = sum(len(entry.candidates) > 1 for entry in entries)
    counts = [1] * len(entries)
    for i, entry in enumerate(entries):
        if len(entry.candidates) > 1:
            counts[i] += len(entry.candidates)
            entries = entries.copy()
            entries[i] = _fastest(measurer, entry, baseline, seconds / (3 * several))
    candidates = [baseline.candidates[0]]
    for entry in entries:
        if entry.candidates[0] not in candidates:
            candidates.append(entry.candidates[0])
    outcomes = measurer.ask(Measure(candidates, _MIN_ROUNDS, seconds))
    found: list[Outcome] = [outcomes[candidates.index(entry.candidates[0])] for entry in entries]
    return entries, found, counts


def _baseline(measurer: Measurer, entries: list[Entry]) -> Entry:
    """The single device predicted best of those that run: ratios to one that fails are none."""
    singles = sorted(_singles(entries), key=lambda entry: entry.solution.value_s)
    for single in singles:
        (outcome,) = measurer.ask(Measure([single.candidates[0]], MIN_SAMPLES, 0.0))
        if isinstance(outcome, Measurement):
            return single
    return singles[0]


def _fastest(measurer: Measurer, entry: Entry, baseline: Entry, seconds: float) -> Entry:
    """The entry with its fastest candidate and that one's prediction; the first if all failed."""
    candidates = [baseline.candidates[0], *entry.candidates]
    outcomes = measurer.ask(Measure(candidates, _MIN_ROUNDS, seconds))[1:]
    best = min(range(len(outcomes)), key=lambda i: _ratio(outcomes[i]))
    return entry.only(best)


def _as_singles(entry: Entry, singles: list[Entry]) -> Entry:
    """The entry whose placements on one device are the candidates of the single devices."""
    alone = {_only_device(single.placements[0]): single.candidates[0] for single in singles}
    devices = [None if entry.reference else _only_device(row) for row in entry.placements]
    candidates = zip(devices, entry.candidates, strict=True)
    return entry._replace(candidates=tuple(alone.get(d, own) for d, own in candidates))


def _only_device(placement: np.ndarray) -> int | None:
    """The device of a placement int32 [M] that uses just one."""
    return int(placement[0]) if len(placement) and (placement == placement[0]).all() else None


def _singles(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.method.startswith("single:")]


def _ratio(outcome: Outcome) -> float:
    """To the session's baseline, paired: steadier than the latency itself. inf without a number."""
    if not isinstance(outcome, Measurement):
        return math.inf
    ratio = outcome.ratio.median
    return outcome.latency.median if math.isnan(ratio) else ratio


def rows(
    entries: list[Entry],
    outcomes: list[Outcome],
    measurements: list[int],
    loads: list[Load],
) -> list[dict[str, Any]]:
    """Rows of summary.json. An outcome None was not measured; a failure has no number."""
    unit_measured = _fastest_single(entries, [_ratio(outcome) for outcome in outcomes])
    unit_predicted = _fastest_single(entries, [entry.solution.value_s for entry in entries])
    return [
        _row(entry, outcome, count, load, unit_measured, unit_predicted)
        for entry, outcome, count, load in zip(entries, outcomes, measurements, loads, strict=True)
    ]


def _fastest_single(entries: list[Entry], values: list[float]) -> float:
    return min(
        value
        for entry, value in zip(entries, values, strict=True)
        if entry.method.startswith("single:")
    )


def _row(
    entry: Entry,
    outcome: Outcome,
    measurements: int,
    load: Load,
    unit_measured: float,
    unit_predicted: float,
) -> dict[str, Any]:
    solution = entry.solution
    status, measured, interval = solution.status, None, None
    if solution.scope != base.ALL:
        status = f"{status}, {solution.scope}"
    comparable = math.isfinite(unit_predicted) and math.isfinite(solution.value_s)
    versus = units.ratio(solution.value_s, unit_predicted) if comparable else None
    if isinstance(outcome, Measurement):
        measured = outcome.latency._asdict()
        versus = _ratio(outcome) / unit_measured if math.isfinite(unit_measured) else None
        if versus is not None and math.isfinite(outcome.ratio.low):
            interval = [outcome.ratio.low / unit_measured, outcome.ratio.high / unit_measured]
    elif isinstance(outcome, Failure):
        status, versus = f"failed: {outcome.stage}: {outcome.cause}", None
    row = {
        "method": entry.method,
        "predicted_s": solution.value_s,
        "measured_s": measured,
        "versus_best_single_device": versus,
        "versus_interval": interval,  # 95%, of the paired ratios' median
        "bound_s": solution.bound_s,
        "gap": units.ratio(solution.value_s, solution.bound_s) - 1.0,
        "search_s": solution.search_s,
        "evaluations": solution.evaluations,
        "measurements": measurements,
        "max_load_s": math.nan if isinstance(outcome, Failure) else load.max_load_s,
        "memory_bytes": math.nan if isinstance(outcome, Failure) else load.memory_bytes,
        "status": status,
    }
    return row | ({"reference": True} if entry.reference else {})


def best(entries: list[Entry], rows_: list[dict[str, Any]]) -> int | None:
    """The number of the entry whose placement to use; None if none can run.

    Where latencies were measured: the lowest ratio to the best single device among the methods
    whose interval of that ratio lies below 1; the best single device itself if there is none, as
    what cannot be told from it is no gain. Else the lowest prediction, single devices first.
    """
    singles = [row for row in rows_ if results.is_single(row)]
    others = [
        row
        for entry, row in zip(entries, rows_, strict=True)
        if _only_device(entry.placements[0]) is None and _is_gain(row)
    ]
    chosen = results.best([*singles, *others])
    return next((i for i, row in enumerate(rows_) if row is chosen), None)


def _is_gain(row: results.Row) -> bool:
    """Whether a row is clearly faster than the best single device, where both were measured."""
    if row["measured_s"] is None or row["versus_best_single_device"] is None:
        return True
    return row["versus_interval"] is not None and row["versus_interval"][1] < 1


def nothing_ran(entries: list[Entry], outcomes: list[Outcome]) -> NothingRanError | None:
    """Makes the error of a run whose every placement failed: each cause, and how many had it."""
    own = [o for e, o in zip(entries, outcomes, strict=True) if not e.reference]
    failures = [outcome for outcome in own if isinstance(outcome, Failure)]
    if not own or len(failures) < len(own):
        return None
    causes = collections.Counter(f"{failure.stage}: {failure.cause}" for failure in failures)
    counted = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common())
    return NothingRanError(f"none of {len(own)} placements ran: {counted}")
