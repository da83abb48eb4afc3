"""The `place` task: load, profile, search, measure, report.

`compare` and `solve` repeat `run_methods` with several methods.
"""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from placement import arguments
from placement.errors import UserError
from placement.pipeline import correction_loop, loading, method_runs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, progress
from placement.pipeline.context import Context, Incumbent
from placement.pipeline.results import advice, bounds, explain, outputs, verify
from placement.pipeline.results import rows as rows_lib
from placement.pipeline.settings import Settings
from placement.reporting import runs

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
            measured = loading.make_measured_evaluate(
                settings, target.net, problem, measurer, workdir
            )
            if measured is None:
                raise UserError(
                    "evaluate='measure' compares placements with everything on the first device, "
                    "or with fill_in_order where that needs too much memory, and neither fits; "
                    "give the devices more memory, or set evaluate='simulate+verify'"
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
                rows = verify.measure_unless_interrupted(context, rows)
                if error := verify.nothing_ran(rows):
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
