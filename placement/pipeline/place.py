"""The `place` task: profile, search, measure, report.

`compare` and `solve` repeat it with several methods.
"""

import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement import arguments
from placement import methods as methods_lib
from placement.errors import UserError
from placement.methods import pretrained
from placement.pipeline import correction_loop, loading, method_runs, report, saved_costs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, progress
from placement.pipeline.results import advice, bounds, explain, outputs, verify
from placement.pipeline.results import rows as rows_lib
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.reporting import details, runs, verdict
from placement.runtime import devices
from placement.runtime.measurement import evaluate as evaluate_lib
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Measurement
from placement.solvers.limits import SearchLimits

_TRIVIAL = ("single", "hetero", "random")  # every table has them, and they search nothing
# Every table of devices with limits of memory has the usual ways to split a model, too.
_MEMORY_BASELINES = ("fill_in_order", "split_by_memory", method_runs.HETERO_PIPELINE)
_BASELINES = frozenset((*_TRIVIAL, *_MEMORY_BASELINES))


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Places one model with the configured method, next to the trivial ones.

    A run that was interrupted in the same directory continues.
    """
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
      methods: the methods that the user asked for.
      fault_log: keeps faults and failures, for the task to raise at its end.
      extra: methods that run before them, if they can run on this machine.
      bounds_file: keeps the lower bounds; by default a file in the run directory.
      advise: whether to bound the possible gain before any search. Searches are left out where
        there is none, unless `search_anyway` is set.
    """
    started_s, cpu_started_s, num_faults = time.monotonic(), _cpu_s(), len(fault_log)
    target, order = _prepare(settings, methods, extra, display)
    workdirs.claim(workdir, display, [settings.graph])
    if not (workdir / runs.SUMMARY).exists():
        outputs.write_provenance(workdir, settings, target, {})
    with target_lib.open_target(target, settings, workdir, display) as opened:
        target, costs, measurer, conditions = opened
        problem = loading.make_search_problem(target.net, costs, target.names, settings.objective)
        evaluate, measured = problem.simulate, None
        if measurer is not None and settings.evaluate == "measure":
            measured = make_measured_evaluate(settings, problem, measurer, workdir)
            if measured is None:
                raise UserError(
                    "evaluate='measure' compares placements with everything on the first device, "
                    "or with fill_in_order where that needs too much memory, and neither fits; "
                    "give the devices more memory, or set evaluate='simulate+verify'"
                )
            evaluate = measured
        context = method_runs.Context(
            settings, workdir, target, measurer, problem, evaluate, display,
            threading.Event(), fault_log, method_runs.Incumbent(),
        )  # fmt: skip
        if advise:
            with fault_log.during("estimating the possible gain"):
                order = _advise(context, order)
        rows: list[Row] = []
        with progress.stop_on_interrupt(display, context.stop):
            if settings.evaluate == "simulate+verify" and not _BASELINES.issuperset(order):
                with fault_log.during("correcting the costs"):
                    context = _correct_costs(context)
            for number, method in enumerate(order, 1):
                before = 0 if measured is None else measured.num_measurements
                new_rows = method_runs.run(method, context, is_only_method=methods == (method,))
                after = 0 if measured is None else measured.num_measurements
                rows += [row._replace(measurements=after - before) for row in new_rows]
                if context.stop.is_set():
                    rest = ", ".join(order[number:]) or "no method"
                    display.warn(f"interrupted in {method}; left out: {rest}")
                    break
        if measurer is not None and settings.evaluate != "simulate":
            rows = _measure(context, measurer, [*rows, *rows_lib.references(target.references)])
        problem = context.problem
        table, best = _finish_rows(context, rows, bounds_file or workdir / bounds.FILE)
        # Whether every method ended by itself, and everything that was to be measured was.
        is_complete = not context.stop.is_set() and len(fault_log) == num_faults
        explained = None
        with fault_log.during("explaining the best placement"):
            explained = _explain(best, context)
    graph, winner = target.net.graph, verdict.decide(table).winner
    described = {"name": graph.name, "num_ops": graph.num_ops, "num_edges": graph.num_edges}
    if (optimum := target.net.optimum) is not None:
        described["optimum_s"] = optimum.value_s
    summary = {
        "graph": described,
        "devices": list(target.labels),
        "objective": settings.objective,
        "seed": settings.seed,
        "rows": table,
        "best": winner and winner.method,
        "complete": is_complete,
        "compute_s": _cpu_s() - cpu_started_s,
        "wall_s": time.monotonic() - started_s,
    }
    if best is not None and len(problem.full.memory_limits.devices):
        placed = best.placed_problem(problem).coarse
        summary["memory"] = outputs.describe_memory(placed, best.placements[0])
    if target.unsupported:
        summary["unsupported"] = list(target.unsupported)
    if target.divisions and best is not None:
        affinity = loading.map_ops_to_devices(best.placed_problem(problem), best.placements[0])
        summary["divisions"] = [division.to_json(affinity) for division in target.divisions]
    directory = outputs.directory(workdir, summary, display)
    outputs.write_provenance(directory, settings, target, conditions)
    runs.write_json(directory / runs.SUMMARY, summary)
    with fault_log.during("writing the placement"):
        outputs.write_placement(directory, summary, best, target, problem)
        explain.write(directory, explained, target)
    return Run(summary, directory, context.stop.is_set())


def _cpu_s() -> float:
    """Returns the CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def _prepare(
    settings: Settings,
    methods: tuple[str, ...],
    extra: tuple[str, ...],
    display: progress.Display,
) -> tuple[target_lib.Target, tuple[str, ...]]:
    """Checks everything that was asked for; returns the target and the methods to run."""
    loading.check_settings(settings)
    for method in methods:
        method_runs.check(method, settings.objective)
    if settings.init_from:  # before anything takes time
        policy_method = pretrained.method_of(Path(settings.init_from))
        if "zero_shot" in methods:
            pretrained.check_zero_shot(policy_method)
    target = target_lib.find_target(settings)
    loading.refuse_stateful_stream(settings, target.net)
    if extra and any(device.capacity_bytes is not None for device in target.present):
        extra += tuple(method for method in _MEMORY_BASELINES if method not in methods)
    order = method_runs.runnable(methods, extra, target, settings, display)
    # Every search evaluates the single devices first.
    arguments.check_range("budget", settings.budget, target.num_devices)
    return target, order


def make_measured_evaluate(
    settings: Settings, problem: loading.SearchProblem, measurer: Measurer, workdir: Path
) -> evaluate_lib.MeasuredEvaluate | None:
    """Returns the function that measures coarse placements; None if no baseline fits.

    Placements are compared with everything on the first device, or with `fill_in_order` where that
    needs too much memory.
    """
    coarse = problem.coarse
    baseline = np.zeros(coarse.graph.num_ops, np.int32)
    if coarse.exceeds_memory(baseline):
        solution = methods_lib.solve(coarse, "fill_in_order")
        if not np.isfinite(solution.value_s):
            return None
        assert solution.placement is not None
        baseline = solution.placement
    return evaluate_lib.MeasuredEvaluate(
        measurer,
        baseline,
        lambda placement: loading.make_candidate(
            problem, placement, measurer.devices, settings.backend
        ),
        evaluate_lib.MeasurementCache(workdir / "measurements.jsonl"),
        compile_s=settings.time_limit_s,
    )


def _correct_costs(context: method_runs.Context) -> method_runs.Context:
    """Returns the context with costs that a few measured placements have corrected.

    The correction is kept in profile.json; costs that are corrected already stay.
    """
    settings, workdir, display = context.settings, context.workdir, context.display
    if context.measurer is None:
        return context
    path = Path(settings.costs) if settings.costs else workdir / saved_costs.FILE
    saved = saved_costs.read(path)
    if "correction" in saved:
        return context
    evaluate = make_measured_evaluate(settings, context.problem, context.measurer, workdir)
    if evaluate is None:
        return context
    with display.phase("correcting the costs by measured placements"):
        result = correction_loop.correct(
            context.target.net,
            context.problem,
            evaluate,
            settings.seed,
            SearchLimits(settings.time_limit_s, settings.budget, stop=context.stop.is_set),
            thorough=False,
        )
    if result is None or result.record is None or context.stop.is_set():
        return context
    display.say(result.describe())
    if not settings.costs:
        runs.write_json(path, saved | {"correction": result.record})
    net, full = context.target.net, context.problem.full
    problem = loading.make_search_problem(net, result.costs, full.devices, full.objective)
    return context._replace(problem=problem, evaluate=problem.simulate)


def _advise(context: method_runs.Context, order: tuple[str, ...]) -> tuple[str, ...]:
    """Says what a search may gain at best; returns the methods that are worth running."""
    settings, display = context.settings, context.display
    with display.phase("estimating the possible gain"):
        advised = advice.estimate(context.target, context.problem, context.measurer, settings)
    for line in advised.lines():
        display.say(line)
    runs.write_json(context.workdir / advice.FILE, advised.to_json())
    searches = [method for method in order if method not in _BASELINES]
    if not (advised.is_hopeless and searches):
        return order
    if settings.search_anyway:
        display.say(f"{searches[0]} runs anyway, because search_anyway is set.")
        return order
    display.say(f"{searches[0]} is not run. To run it anyway, set search_anyway=True")
    return tuple(method for method in order if method in _BASELINES)


def _finish_rows(
    context: method_runs.Context, rows: list[Row], bounds_file: Path
) -> tuple[list[dict[str, Any]], Row | None]:
    """Adds bounds to measured rows.

    Returns:
      The rows of the table; the row with the best placement, None where nothing can run.
    """
    fault_log = context.fault_log
    with context.display.phase("bounding"), fault_log.during("bounding"):
        rows = bounds.add_bounds(rows, context.problem, bounds_file, context.target.net.optimum)
    places_precisions = context.settings.devices.strip() == devices.PRECISIONS
    with_errors = places_precisions or bool(context.target.divisions)
    table = rows_lib.to_json(rows, with_errors=with_errors)
    winner = verdict.decide(table).placement
    best = winner and next(i for i, row in enumerate(table) if row is winner.row)
    return table, None if best is None else rows[best]


def _measure(context: method_runs.Context, measurer: Measurer, rows: list[Row]) -> list[Row]:
    """Measures the rows; Ctrl-C before or while measuring leaves all unmeasured."""
    display, settings = context.display, context.settings
    with context.fault_log.during("measuring"):
        if context.stop.is_set():
            display.warn("interrupted: nothing is measured; the same command continues from here")
            return rows
        try:
            with display.phase("measuring"):
                rows = verify.measure(measurer, rows, settings.measure_s, settings.time_limit_s)
        except KeyboardInterrupt:
            context.stop.set()
            display.warn("interrupted while measuring; the same command measures again")
        if error := verify.nothing_ran(rows):
            raise error
    return rows


def _explain(best: Row | None, context: method_runs.Context) -> details.Details | None:
    """Returns the details of the best placement, without measured times if these are missing.

    None without a placement, and of a graph that is too large to look at them.
    """
    if best is None:
        return None
    target, problem, display = context.target, context.problem, context.display
    if problem.full.graph.num_ops > details.MOST_OPS:
        display.say(
            f"left out of more than {details.MOST_OPS:,} operations: {details.FILE}, trace.json, "
            f"{explain.NETRON}, and what the page and the figures would show of each"
        )
        return None
    measurer = context.measurer if isinstance(best.outcome, Measurement) else None
    try:
        return explain.best(best, target, problem, context.settings, measurer)
    except (KeyboardInterrupt, ChildProcessError) as error:
        cause = str(error) or "interrupted"
        display.warn(f"no measured timeline: {cause}")
        return explain.best(best, target, problem, context.settings, None)
