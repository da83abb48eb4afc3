"""The `place` task: load, profile, search, measure, report.

`compare` and `solve` repeat `run_methods` with several methods.
"""

import collections
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.pipeline import correction_loop, loading, method_runs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, progress
from placement.pipeline.context import Context, Incumbent
from placement.pipeline.results import advice, bounds, explain, outputs
from placement.pipeline.results import rows as rows_lib
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import MIN_SAMPLES, Candidate, Failure, Measure

_TRIVIAL = ("hetero", "random")  # every table of `place` has them, and they search nothing
_BASELINES = frozenset(("single", *_TRIVIAL, *method_runs.MEMORY_BASELINES))


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Places one model with the configured method, next to the trivial ones.

    A run that was interrupted in the same directory continues.
    """
    from placement.pipeline import report  # draws, which the search does not need

    methods = arguments.split_list(settings.method)
    if len(methods) != 1:
        raise UserError(
            f"method={settings.method!r} is not one method; set one, or compare several"
        )
    extra = tuple(method for method in _TRIVIAL if method not in methods)
    with faults.raise_at_end() as fault_log:
        result = run_methods(
            settings, workdir, methods, fault_log, extra=extra, advise=True, display=display
        )
        with report.abort_report_on_error(fault_log, display):
            report.write_report(result.summary, result.directory, display.console, fault_log)
        if not (result.directory / runs.PLACEMENT).exists():
            display.warn("no method found a placement that every device can run: no placement.json")
    return result.summary


class Run(NamedTuple):
    """The files that a run of methods has written."""

    summary: dict[str, Any]
    directory: Path  # the run directory, or `outputs.INTERRUPTED` in it
    interrupted: bool


def run_methods(
    settings: Settings,
    workdir: Path,
    methods: tuple[str, ...],
    fault_log: faults.Faults,
    *,
    extra: tuple[str, ...] = (),
    bounds_file: Path | None = None,
    advise: bool = False,
    display: progress.Display,
) -> Run:
    """Runs methods, measures their placements together, and writes the run directory.

    Ctrl-C in a method ends the list of methods, and so does a fault or a failure; the results until
    then are written. A run that is not complete replaces no complete one (`outputs.directory`).

    Args:
      settings, workdir, display: as of `run`.
      methods: those that the user asked for.
      fault_log: keeps faults and failures, for the task to raise at its end.
      extra: methods that run before them, if they can run on this machine.
      bounds_file: keeps the lower bounds; by default a file in the run directory.
      advise: whether to leave out searches that can gain nothing (`advice.select`).
    """
    started_s, cpu_started_s = time.monotonic(), outputs.cpu_s()
    stop, num_faults = threading.Event(), len(fault_log)

    # Load the model and find the devices. Nothing is written before everything is checked.
    target, order = method_runs.prepare(settings, methods, extra, display)
    workdirs.claim(workdir, display, [settings.graph])
    if not (workdir / runs.SUMMARY).exists():
        outputs.write_provenance(workdir, settings, target, {})

    # Profile the devices, where they are present.
    with target_lib.open_target(target, settings, workdir, display) as opened:
        target, measurer, conditions = opened
        problem, measured = target.problem(settings.objective), None
        if measurer is not None and settings.evaluate == "measure":
            measured = loading.require_measured_evaluate(
                settings, target.net, problem, measurer, workdir
            )
        context = Context(
            settings, workdir, target, problem, measurer, measured, display, stop, fault_log,
            Incumbent(),
        )  # fmt: skip
        if advise:
            with fault_log.during("estimating the possible gain"):
                order = advice.select(context, order, _BASELINES)

        # Solve.
        with progress.stop_on_interrupt(display, stop):
            if not _BASELINES.issuperset(order):
                with fault_log.during("correcting the costs"):
                    context = correction_loop.correct_costs(context)
            rows = rows_lib.single_devices(context)
            for number, method in enumerate(order, 1):
                rows.append(method_runs.run(method, context, is_only_method=methods == (method,)))
                if stop.is_set():
                    rest = ", ".join(order[number:]) or "no method"
                    display.warn(f"interrupted in {method}; left out: {rest}")
                    break

        # Compare on the devices, and with the bounds.
        if measurer is not None and settings.evaluate != "simulate":
            rows += rows_lib.references(target.references)
            with fault_log.during("measuring"):
                rows = measure_unless_interrupted(context, rows)
                if error := nothing_ran(rows):
                    raise error
        with display.phase("bounding"), fault_log.during("bounding"):
            path = bounds_file or workdir / bounds.FILE
            rows = bounds.add_bounds(rows, context.problem, path, target.net.optimum)

        # Summarise. A run is complete if every method ended by itself and all was measured.
        summary, best = outputs.summarise(context, rows)
        summary["complete"] = not stop.is_set() and len(fault_log) == num_faults
        explained = None
        with fault_log.during("explaining the best placement"):
            explained = explain.best(best, context)

    # Write the results.
    summary["compute_s"] = outputs.cpu_s() - cpu_started_s
    summary["wall_s"] = time.monotonic() - started_s
    directory = outputs.directory(workdir, summary, display)
    outputs.write_provenance(directory, settings, target, conditions)
    runs.write_json(directory / runs.SUMMARY, summary)
    with fault_log.during("writing the placement"):
        outputs.write_placement(directory, summary, best, context)
        explain.write(directory, explained, target)
    return Run(summary, directory, stop.is_set())


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
    single_rows = [row for row in rows if row.is_single]
    device_candidates = {_only_device(row.placements[0]): row.candidates[0] for row in single_rows}
    rows = list(rows)
    for i, row in enumerate(rows):
        devices = [None if row.is_reference else _only_device(p) for p in row.placements]
        pairs = zip(devices, row.candidates, strict=True)
        rows[i] = row._replace(candidates=tuple(device_candidates.get(d, c) for d, c in pairs))
    singles: list[Candidate] = []
    for row in sorted((r for r in rows if r.is_single), key=lambda row: row.solution.value_s):
        if not row.is_out_of_memory and row.candidates[0] not in singles:
            singles.append(row.candidates[0])
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
    measured = baseline.measure(
        measurer,
        singles,
        multi_device,
        min_rounds=MIN_SAMPLES,
        seconds=seconds,
        compile_s=max(compile_s, _COMPILE_S * len(singles + multi_device)),
    )
    candidates, outcomes = singles + multi_device, measured.singles + measured.candidates
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
