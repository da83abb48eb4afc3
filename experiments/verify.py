"""Measures what the methods found, all in one interleaved session, and makes rows of it."""

import math
from typing import Any

from experiments.methods import Entry
from placement.runtime.hetero import Affinity
from placement.runtime.measure import Candidate, Failure, Measurement, Measurer

_MIN_ROUNDS = 10


def choose(
    measurer: Measurer, entry: Entry, baseline: Entry, seconds: float
) -> tuple[Affinity | None, Measurement | Failure, int]:
    """The entry's best candidate by measured ratio to the baseline.

    Its number is not what the table prints: the fastest of several noisy measurements is too fast,
    so the chosen one is measured again with all the others.

    Returns:
      The candidate (the most promising if all failed), its outcome, and how many were measured.
    """
    candidates = [Candidate(affinity, entry.devices) for affinity in entry.affinities]
    outcomes = measurer.measure(
        [_candidate(baseline), *candidates], min_rounds=_MIN_ROUNDS, time_limit_s=seconds
    )[1:]
    ran = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Measurement)]
    best = min(ran, key=lambda i: _ratio(outcomes[i]), default=0)
    return entry.affinities[best], outcomes[best], len(outcomes)


def _candidate(entry: Entry) -> Candidate:
    return Candidate(entry.affinities[0], entry.devices)


def _ratio(outcome: Measurement | Failure) -> float:
    if isinstance(outcome, Failure):
        return math.inf
    ratio = outcome.ratio.median
    return outcome.latency.median if math.isnan(ratio) else ratio


def measure(
    measurer: Measurer, entries: list[Entry], seconds: float
) -> tuple[list[Entry], list[Measurement | Failure], list[int]]:
    """Measures every entry once more beside the predicted best single device.

    Returns:
      The entries with the chosen candidate first, an outcome each, and how many placements were
      measured for each.
    """
    baseline = min(
        (entry for entry in entries if entry.method.startswith("single:")),
        key=lambda entry: entry.solution.value_s,
    )
    counts = [1] * len(entries)
    chosen = list(entries)
    several = [i for i, entry in enumerate(entries) if len(entry.affinities) > 1]
    for i in several:
        affinity, _, tried = choose(measurer, entries[i], baseline, seconds / 3 / len(several))
        chosen[i] = entries[i]._replace(affinities=(affinity,))
        counts[i] += tried
    order = [entries.index(baseline), *(i for i, e in enumerate(entries) if e is not baseline)]
    outcomes = measurer.measure(
        [_candidate(chosen[i]) for i in order], min_rounds=_MIN_ROUNDS, time_limit_s=seconds
    )
    by_entry = dict(zip(order, outcomes, strict=True))
    return chosen, [by_entry[i] for i in range(len(entries))], counts


def rows(
    entries: list[Entry],
    outcomes: list[Measurement | Failure | None],
    measurements: list[int],
) -> list[dict[str, Any]]:
    """Rows of summary.json. An outcome None was not measured; a failure has no number."""
    unit_measured = _fastest_single(entries, [_measured(outcome) for outcome in outcomes])
    unit_predicted = _fastest_single(entries, [entry.solution.value_s for entry in entries])
    return [
        _row(entry, outcome, count, unit_measured, unit_predicted)
        for entry, outcome, count in zip(entries, outcomes, measurements, strict=True)
    ]


def _measured(outcome: Measurement | Failure | None) -> float:
    """The paired ratio to the session's baseline: steadier than the latency itself."""
    return _ratio(outcome) if isinstance(outcome, Measurement) else math.inf


def _fastest_single(entries: list[Entry], values: list[float]) -> float:
    return min(
        value
        for entry, value in zip(entries, values, strict=True)
        if entry.method.startswith("single:")
    )


def _row(
    entry: Entry,
    outcome: Measurement | Failure | None,
    measurements: int,
    unit_measured: float,
    unit_predicted: float,
) -> dict[str, Any]:
    solution = entry.solution
    status, versus = solution.status, solution.value_s / unit_predicted
    measured = None
    if isinstance(outcome, Measurement):
        measured = outcome.latency._asdict()
        versus = _measured(outcome) / unit_measured if math.isfinite(unit_measured) else None
    elif isinstance(outcome, Failure):
        status, versus = f"failed: {outcome.stage}: {outcome.cause}", None
    row = {
        "method": entry.method,
        "predicted_s": solution.value_s,
        "measured_s": measured,
        "versus_best_single_device": versus,
        "bound_s": solution.bound_s,
        "gap": solution.value_s / solution.bound_s - 1.0,
        "search_s": solution.search_s,
        "evaluations": solution.evaluations,
        "measurements": measurements,
        "status": status,
    }
    return row | ({"reference": True} if entry.reference else {})


def best(rows_: list[dict[str, Any]]) -> str:
    """The method with the lowest measured latency, or predicted where nothing was measured."""
    own = [row for row in rows_ if not row.get("reference")]
    measured = [row for row in own if row["measured_s"]]
    if measured:
        return min(measured, key=lambda row: row["versus_best_single_device"])["method"]
    return min(own, key=lambda row: row["predicted_s"])["method"]
