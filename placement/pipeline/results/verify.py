"""Measures what the methods found, all in one interleaved session, and makes rows of it."""

import collections
import math
from typing import Any

import numpy as np

from placement.pipeline.method_runs import Entry
from placement.pipeline.results.resources import Load
from placement.reporting import units, verdict
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Measure, Measurement
from placement.solvers import base
from placement.types import Status

Outcome = Measurement | Failure | None  # None: not measured

_MIN_ROUNDS = 10
_COMPILE_S = 5.0  # that compiling each placement may take at least


class NothingRanError(OSError):
    """No placement that was to be measured ran."""


def measure(
    measurer: Measurer, entries: list[Entry], seconds: float, compile_s: float = math.inf
) -> tuple[list[Entry], list[Outcome], list[int]]:
    """Measures every entry beside the fastest single device (`measurement.baseline`).

    An entry with several candidates is first narrowed down to the fastest of them, whose number
    then is not used: the fastest of several noisy measurements is too fast. Entries of the same
    placement on the same devices are one candidate and share its outcome, so that no placement is
    faster than itself. An entry that gives one device everything is that single device, however it
    was found, HETERO's own choice included.

    Args:
      measurer: of the devices.
      entries: with candidates on them.
      seconds: of timing.
      compile_s: of compiling, or 5 s for each placement where that is longer. Placements of few
        segments are compiled first; those for which no time is left are not measured.

    Returns:
      The entries with the chosen candidate alone, an outcome each, and how many placements were
      measured for each.
    """
    entries = [_as_singles(entry, _singles(entries)) for entry in entries]
    singles: list[Candidate] = []
    for entry in sorted(_singles(entries), key=lambda entry: entry.solution.value_s):
        if entry.candidates[0] not in singles:
            singles.append(entry.candidates[0])
    several = sum(len(entry.candidates) > 1 for entry in entries)
    counts = [1] * len(entries)
    others: list[Candidate] = []
    for i, entry in enumerate(entries):
        if len(entry.candidates) > 1:
            counts[i] += len(entry.candidates)
            single = singles[0]
            entries[i] = _fastest(measurer, entry, single, seconds / (3 * several), compile_s)
        if entries[i].candidates[0] not in singles + others:
            others.append(entries[i].candidates[0])
    others.sort(key=_num_segments)  # compiled in this order
    measured = baseline.measure(
        measurer,
        singles,
        others,
        min_rounds=_MIN_ROUNDS,
        seconds=seconds,
        compile_s=max(compile_s, _COMPILE_S * len(singles + others)),
    )
    candidates, outcomes = singles + others, measured.singles + measured.others
    return entries, [outcomes[candidates.index(e.candidates[0])] for e in entries], counts


def _num_segments(candidate: Candidate) -> int:
    return len(candidate.segments or ())


def _fastest(
    measurer: Measurer, entry: Entry, single: Candidate, seconds: float, compile_s: float
) -> Entry:
    """Keeps an entry's fastest candidate, with its prediction; the first if all failed."""
    order = sorted(range(len(entry.candidates)), key=lambda i: _num_segments(entry.candidates[i]))
    candidates = [single, *(entry.candidates[i] for i in order)]
    compile_s = max(compile_s, _COMPILE_S * len(candidates))
    request = Measure(candidates, _MIN_ROUNDS, seconds, compile_s=compile_s)
    outcomes = dict(zip(order, measurer.ask(request)[1:], strict=True))
    return entry.only(min(sorted(outcomes), key=lambda i: baseline.ratio(outcomes[i])))


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


def rows(
    entries: list[Entry],
    outcomes: list[Outcome],
    measurements: list[int],
    loads: list[Load],
) -> list[dict[str, Any]]:
    """Rows of summary.json. An outcome None was not measured; a failure has no number."""
    single_s = min(entry.solution.value_s for entry in _singles(entries))
    return [
        _row(entry, outcome, count, load, single_s)
        for entry, outcome, count, load in zip(entries, outcomes, measurements, loads, strict=True)
    ]


def _row(
    entry: Entry,
    outcome: Outcome,
    measurements: int,
    load: Load,
    single_s: float,
) -> dict[str, Any]:
    solution = entry.solution
    status, measured, interval = solution.status_text, None, None
    if solution.scope != base.ALL:
        status = f"{status}, {solution.scope}"
    comparable = math.isfinite(single_s) and math.isfinite(solution.value_s)
    versus = units.ratio(solution.value_s, single_s) if comparable else None
    if isinstance(outcome, Measurement):
        measured = outcome.latency._asdict()
        versus, interval = None, None
        if math.isfinite(outcome.ratio.median):  # else no single device ran
            versus, interval = outcome.ratio.median, [outcome.ratio.low, outcome.ratio.high]
    elif isinstance(outcome, Failure):
        status = Status.FAILED.describe(f"{outcome.stage}: {outcome.cause}")
        versus = None
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
        "num_devices": len(np.unique(entry.placements[0])),  # that the placement uses
        "status": status,
    }
    return row | ({"reference": True} if entry.reference else {})


def best(rows_: list[dict[str, Any]]) -> int | None:
    """Returns the number of the row whose placement is the best on the devices, or None."""
    placement = verdict.decide(rows_).placement
    return next((i for i, row in enumerate(rows_) if placement and row is placement.row), None)


def nothing_ran(entries: list[Entry], outcomes: list[Outcome]) -> NothingRanError | None:
    """Makes the error of a run whose every placement failed: each cause, and how many had it."""
    own = [o for e, o in zip(entries, outcomes, strict=True) if not e.reference]
    failures = [outcome for outcome in own if isinstance(outcome, Failure)]
    if not own or len(failures) < len(own):
        return None
    causes = collections.Counter(f"{failure.stage}: {failure.cause}" for failure in failures)
    counted = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common())
    return NothingRanError(f"none of {len(own)} placements ran: {counted}")
