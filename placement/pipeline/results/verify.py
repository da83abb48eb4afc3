"""Measures the placements of all methods in one interleaved session."""

import collections
import math
from collections.abc import Sequence

import numpy as np

from placement.pipeline.context import Context
from placement.pipeline.results.rows import Row
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import MIN_SAMPLES, Candidate, Failure, Measure

_COMPILE_S = 5.0  # the time that compiling each placement may take at least


def measure(
    measurer: Measurer, rows: Sequence[Row], seconds: float, compile_s: float = math.inf
) -> list[Row]:
    """Measures every row next to the fastest single device (`measurement.baseline`).

    Rows that are out of memory are not measured. Without a single device that has enough memory
    there are no ratios. A row with several candidates is first narrowed down to the fastest of
    them. That measurement is not used again, since the fastest of several noisy measurements is too
    fast. Rows of the same placement on the same devices are one candidate and share its outcome, so
    that no placement is faster than itself. A row that gives one device everything is that single
    device, also where a search or HETERO chose it.

    Args:
      measurer: of the devices.
      rows: with candidates on them.
      seconds: of timing.
      compile_s: of compiling, or 5 s for each placement where that is longer. Placements of few
        segments are compiled first; those for which no time is left are not measured.

    Returns:
      The rows, each with one candidate, its outcome and the number of placements measured for it.
    """
    single_rows = sorted((r for r in rows if r.is_single), key=lambda row: row.solution.value_s)
    singles = [row.candidates[0] for row in single_rows if not row.is_out_of_memory]
    device_candidates = {_only_device(row.placements[0]): row.candidates[0] for row in single_rows}
    rows = list(rows)
    for i, row in enumerate(rows):
        pairs = zip(map(_only_device, row.placements), row.candidates, strict=True)
        rows[i] = row._replace(candidates=tuple(device_candidates.get(d, c) for d, c in pairs))
    num_ambiguous = sum(len(row.candidates) > 1 for row in rows)
    multi_device: list[Candidate] = []
    for i, row in enumerate(rows):
        if row.is_out_of_memory:
            continue
        count = 1
        if len(row.candidates) > 1:
            count += len(row.candidates)
            share_s = seconds / (3 * num_ambiguous)
            row = _narrow_to_fastest(measurer, row, singles[:1], share_s, compile_s)
        rows[i] = row = row._replace(measurements=row.measurements + count)
        if row.candidates[0] not in singles + multi_device:
            multi_device.append(row.candidates[0])
    multi_device.sort(key=_num_segments)  # compiled in this order
    candidates = singles + multi_device
    compile_s = max(compile_s, _COMPILE_S * len(candidates))
    outcomes = baseline.measure(
        measurer, singles, multi_device, seconds=seconds, compile_s=compile_s
    )
    return [
        row
        if row.is_out_of_memory
        else row._replace(outcome=outcomes[candidates.index(row.candidates[0])])
        for row in rows
    ]


def _num_segments(candidate: Candidate) -> int:
    return len(candidate.segments or ())


def _narrow_to_fastest(
    measurer: Measurer, row: Row, singles: list[Candidate], seconds: float, compile_s: float
) -> Row:
    """Keeps a row's fastest candidate, with its prediction; the first if all failed.

    `singles` has the single device that is the baseline; [] if there is none.
    """
    order = sorted(range(len(row.candidates)), key=lambda i: _num_segments(row.candidates[i]))
    candidates = [*singles, *(row.candidates[i] for i in order)]
    compile_s = max(compile_s, _COMPILE_S * len(candidates))
    request = Measure(candidates, MIN_SAMPLES, seconds, compile_s=compile_s)
    outcomes = dict(zip(order, measurer.ask(request)[len(singles) :], strict=True))
    return row.select(min(sorted(outcomes), key=lambda i: baseline.ratio_or_latency(outcomes[i])))


def _only_device(placement: np.ndarray) -> int | None:
    """Returns the device of a placement int32 [M] that uses one device alone."""
    return int(placement[0]) if len(placement) and (placement == placement[0]).all() else None


def measure_unless_interrupted(context: Context, rows: Sequence[Row]) -> list[Row]:
    """Measures the rows of a run; Ctrl-C before or while measuring leaves all unmeasured."""
    display, settings, rows = context.display, context.settings, list(rows)
    assert context.measurer is not None
    if context.stop.is_set():
        display.warn("interrupted: nothing is measured; the same command continues from here")
        return rows
    try:
        with display.phase("measuring"):
            rows = measure(context.measurer, rows, settings.measure_s, settings.time_limit_s)
    except KeyboardInterrupt:
        context.stop.set()
        display.warn("interrupted while measuring; the same command measures again")
    return rows


def nothing_ran(rows: Sequence[Row]) -> OSError | None:
    """Returns the error of a run whose every placement failed; it counts each cause."""
    outcomes = [row.outcome for row in rows if not (row.is_reference or row.is_out_of_memory)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if not outcomes or len(failures) < len(outcomes):
        return None
    causes = collections.Counter(f"{failure.stage}: {failure.cause}" for failure in failures)
    counted = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common())
    return OSError(f"none of {len(outcomes)} placements ran: {counted}")
