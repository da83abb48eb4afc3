"""The `place` task: load, profile, search, measure, report.

`compare` and `solve` repeat `run_methods` with several methods.
"""

import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from placement import arguments
from placement.errors import UserError
from placement.instance import Instance
from placement.methods import pretrained
from placement.pipeline import correction_loop, loading, method_runs, report, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, progress
from placement.pipeline.results import advice, bounds, explain, outputs, rows, verify
from placement.pipeline.settings import Settings
from placement.reporting import runs, verdict
from placement.runtime import devices
from placement.runtime.measurement.measurer import Measurer

_TRIVIAL = ("single", "hetero", "random")  # every table has them, and they search nothing
# Every table of devices with limits of memory has the usual ways to split a model, too.
_MEMORY_BASELINES = ("fill_in_order", "split_by_memory", "hetero_pipeline")
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
    stop = threading.Event()

    # Load the model and find the devices. Nothing is written before everything is checked.
    target, order = _prepare(settings, methods, extra, display)
    workdirs.claim(workdir, display, [settings.graph])
    if not (workdir / runs.SUMMARY).exists():
        outputs.write_provenance(workdir, settings, target, {})

    # Profile the devices, where they are present.
    with target_lib.open_target(target, settings, workdir, display) as opened:
        target, measurer, conditions = opened
        problem = target.problem(settings.objective)
        measured = None
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
        if advise:
            with fault_log.during("estimating the possible gain"):
                order = _advise(target, problem, measurer, settings, workdir, order, display)

        # Search.
        results: list[rows.Row] = []
        with progress.stop_on_interrupt(display, stop):
            searches = not _BASELINES.issuperset(order)
            if measurer is not None and settings.evaluate == "simulate+verify" and searches:
                with fault_log.during("correcting the costs"):
                    target, problem = correction_loop.correct_saved_costs(
                        target, problem, measurer, settings, workdir, display, stop
                    )
            context = method_runs.Context(
                settings, workdir, target, problem, measurer, measured, display, stop, fault_log
            )
            for number, method in enumerate(order, 1):
                results += method_runs.run(method, context, is_only_method=methods == (method,))
                if stop.is_set():
                    rest = ", ".join(order[number:]) or "no method"
                    display.warn(f"interrupted in {method}; left out: {rest}")
                    break

        # Compare on the devices.
        if measurer is not None and settings.evaluate != "simulate":
            results += rows.references(target.references)
            with fault_log.during("measuring"):
                if stop.is_set():
                    display.warn(
                        "interrupted: nothing is measured; the same command continues from here"
                    )
                else:
                    try:
                        with display.phase("measuring"):
                            limits_s = settings.measure_s, settings.time_limit_s
                            results = verify.measure(measurer, results, *limits_s)
                    except KeyboardInterrupt:
                        stop.set()
                        display.warn("interrupted while measuring; the same command measures again")
                if error := verify.nothing_ran(results):
                    raise error
        with display.phase("bounding"), fault_log.during("bounding"):
            path = bounds_file or workdir / bounds.FILE
            results = bounds.add_bounds(results, problem, path, target.net.optimum)
        is_divided = bool(target.divisions) or settings.devices.strip() == devices.PRECISIONS
        table = rows.to_json(results, with_errors=is_divided)
        decided = verdict.decide(table)
        best = None
        if decided.placement is not None:
            (best,) = (results[i] for i, row in enumerate(table) if row is decided.placement.row)
        # Whether every method ended by itself, and everything that was to be measured was.
        is_complete = not stop.is_set() and len(fault_log) == num_faults
        explained = None
        with fault_log.during("explaining the best placement"):
            explained = explain.best(best, target, problem, measurer, display)

    # Summarise.
    graph = target.net.graph
    described = {"name": graph.name, "num_ops": graph.num_ops, "num_edges": graph.num_edges}
    if (optimum := target.net.optimum) is not None:
        described["optimum_s"] = optimum.value_s
    summary = {
        "graph": described,
        "devices": list(target.labels),
        "objective": settings.objective,
        "seed": settings.seed,
        "rows": table,
        "best": decided.winner and decided.winner.method,
        "complete": is_complete,
        "compute_s": _cpu_s() - cpu_started_s,
        "wall_s": time.monotonic() - started_s,
    }
    if target.unsupported:
        summary["unsupported"] = list(target.unsupported)
    if best is not None:
        placement = best.placements[0]
        if len(problem.memory_limits.devices):
            summary["memory"] = outputs.describe_memory(problem, placement)
        if target.divisions:
            affinity = target.net.affinity(target.names, placement)
            summary["divisions"] = [division.to_json(affinity) for division in target.divisions]

    # Write.
    directory = outputs.directory(workdir, summary, display)
    outputs.write_provenance(directory, settings, target, conditions)
    runs.write_json(directory / runs.SUMMARY, summary)
    with fault_log.during("writing the placement"):
        outputs.write_placement(directory, summary, best, target, problem)
        explain.write(directory, explained, target)
    return Run(summary, directory, stop.is_set())


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


def _advise(
    target: target_lib.Target,
    problem: Instance,
    measurer: Measurer | None,
    settings: Settings,
    workdir: Path,
    order: tuple[str, ...],
    display: progress.Display,
) -> tuple[str, ...]:
    """Says what a search may gain at best; returns the methods that are worth running."""
    with display.phase("estimating the possible gain"):
        advised = advice.estimate(target, problem, measurer, settings)
    for line in advised.lines():
        display.say(line)
    runs.write_json(workdir / advice.FILE, advised.to_json())
    searches = [method for method in order if method not in _BASELINES]
    if not (advised.is_hopeless and searches):
        return order
    if settings.search_anyway:
        display.say(f"{searches[0]} runs anyway, because search_anyway is set.")
        return order
    display.say(f"{searches[0]} is not run. To run it anyway, set search_anyway=True")
    return tuple(method for method in order if method in _BASELINES)
