"""The `place` task: profile, search, verify, report.

`compare` and `solve` repeat it with several methods.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from placement import arguments
from placement.errors import UserError
from placement.methods import pretrained
from placement.pipeline import loading, method_runs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, interrupts, progress
from placement.pipeline.results import advice, bounds, explain, outputs, resources, verify
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import report
from placement.reporting import details, runs, verdict
from placement.runtime.measurement import evaluate as evaluate_lib
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Measurement
from placement.types import Evaluate

_TRIVIAL = ("single", "hetero", "random")  # methods that every table has, and that search nothing


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Places one model with the configured method, beside the trivial ones.

    Args:
      settings: of the run.
      workdir: the run directory; a run that was interrupted there goes on.
      display: where to say what is done.

    Returns:
      The summary, as written to summary.json.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    chosen = arguments.entries(settings.method)
    if len(chosen) != 1:
        raise UserError(
            f"method={settings.method!r} with --task=place; give one method, or --task=compare"
        )
    beside = tuple(method for method in _TRIVIAL if method not in chosen)
    with faults.told_last() as kept:
        run_ = run_methods(
            settings, workdir, chosen, kept, beside=beside, display=display, advised=True
        )
        with report.reporting(kept, display):
            report.write(run_.summary, run_.directory, display.console, kept)
        if not (run_.directory / runs.PLACEMENT).exists():
            display.warn("no method found a placement that every device can run: no placement.json")
    return run_.summary


class Run(NamedTuple):
    """What a run of methods has written."""

    summary: dict[str, Any]
    directory: Path  # where: the run directory, or `outputs.INTERRUPTED` in it
    interrupted: bool


class _Judged(NamedTuple):
    """The rows of the table, and which placement is the best on the devices."""

    rows: list[dict[str, Any]]
    best: method_runs.Entry | None  # the best placement; None where nothing can run
    outcome: verify.Outcome  # of the best


def run_methods(
    settings: Settings,
    workdir: Path,
    chosen: tuple[str, ...],
    kept: faults.Faults,
    *,
    beside: tuple[str, ...] = (),
    known: Path | None = None,
    advised: bool = False,
    display: progress.Display,
) -> Run:
    """Runs the methods, measures what they found together, and writes the run directory.

    `beside` are methods that nobody asked for: they come first, and are left out where they need
    devices that are not present or are for other objectives. `known` is the file of bounds, by
    default that of the run directory. `advised` says before any search what there is to gain, and
    leaves searches out where that is nothing, unless `config.search_anyway`.
    Ctrl-C in a method ends the list: what was found until then
    is written. So it is after a fault or a failure once methods run, which is `kept` for the task
    to tell. What is not complete replaces nothing that is (`outputs.directory`).

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    started, cpu_started, before = time.monotonic(), _cpu_s(), len(kept)
    target, order = _prepared(settings, chosen, beside, display)
    workdirs.claim(workdir, display, [settings.graph])
    if not (workdir / runs.SUMMARY).exists():
        outputs.write(workdir, outputs.provenance(settings, target, {}))
    with target_lib.opened(target, settings, workdir, display) as opened:
        target, costs, measurer, conditions = opened
        problem = loading.search_problem(target.net, costs, target.names, settings.objective)
        evaluate, counter = _evaluate(settings, problem, measurer, workdir, display)
        context = method_runs.Context(
            settings, workdir, target, measurer, problem, evaluate, settings.seed, display,
            threading.Event(), kept, method_runs.Incumbent(),
        )  # fmt: skip
        if advised:
            with kept.during("estimating the possible gain"):
                order = _advise(context, order)
        entries, searched = _searched(context, order, chosen, counter)
        judged = _judged(context, entries, searched, known or workdir / bounds.FILE)
        # Every method ended by itself, and what was to be measured was.
        complete = not context.stop.is_set() and len(kept) == before
        explained = None
        with kept.during("explaining the best placement"):
            explained = _explained(judged, context)
    summary = _summary(context, judged) | {
        "complete": complete,
        "compute_s": _cpu_s() - cpu_started,
        "wall_s": time.monotonic() - started,
    }
    directory = outputs.directory(workdir, summary, display)
    files = outputs.provenance(settings, target, conditions)
    outputs.write(directory, files | {runs.SUMMARY: summary})
    with kept.during("writing the placement"):
        outputs.write_placement(directory, summary, judged.best, target, problem)
        explain.write(directory, explained, target)
    return Run(summary, directory, context.stop.is_set())


def _summary(context: method_runs.Context, judged: _Judged) -> dict[str, Any]:
    graph, winner = context.target.net.graph, verdict.decide(judged.rows).winner
    return {
        "graph": {"name": graph.name, "num_ops": graph.num_ops, "num_edges": graph.num_edges},
        "devices": list(context.target.labels),
        "objective": context.settings.objective,
        "seed": context.seed,
        "rows": judged.rows,
        "best": winner and winner.method,
    }


def _prepared(
    settings: Settings,
    chosen: tuple[str, ...],
    beside: tuple[str, ...],
    display: progress.Display,
) -> tuple[target_lib.Target, tuple[str, ...]]:
    """Finds the target, and the methods that run, once all that was asked for can be."""
    loading.check(settings)
    for method in chosen:
        method_runs.check(method, settings.objective)
    if settings.init_from:  # before anything takes time
        method_of_policy = pretrained.method_of(Path(settings.init_from))
        if "zero_shot" in chosen:
            pretrained.check_zero_shot(method_of_policy)
    target = target_lib.find(settings)
    order = method_runs.runnable(chosen, beside, target, settings, display)
    if settings.budget < target.num_devices:
        raise UserError(
            f"budget={settings.budget} does not cover the {target.num_devices} single devices, "
            f"which every search evaluates first; give at least {target.num_devices}"
        )
    return target, order


def _advise(context: method_runs.Context, order: tuple[str, ...]) -> tuple[str, ...]:
    """Says what a search may gain at best; returns the methods that then are worth running."""
    settings, display = context.settings, context.display
    measured = context.measurer if settings.evaluate != "simulate" else None
    with display.phase("estimating the possible gain"):
        backend = settings.backend if context.target.present else ""
        found = advice.find(
            context.target, context.problem, measured, backend, settings.time_limit_s
        )
    for line in found.lines():
        display.say(line)
    runs.write_json(context.workdir / advice.FILE, found.to_json())
    searches = [method for method in order if method not in _TRIVIAL]
    if not (found.is_hopeless and searches):
        return order
    if settings.search_anyway:
        display.say(f"{searches[0]} runs all the same: search_anyway is set.")
        return order
    display.say(f"{searches[0]} is not run. To run it anyway: --config.search_anyway=True")
    return tuple(method for method in order if method in _TRIVIAL)


def _searched(
    context: method_runs.Context,
    order: tuple[str, ...],
    chosen: tuple[str, ...],
    counter: Callable[[], int],
) -> tuple[list[method_runs.Entry], list[int]]:
    """Runs the methods in order, until Ctrl-C: entries, and what finding each has measured."""
    entries, measurements = [], []
    with interrupts.asked(context.display, context.stop):
        for number, method in enumerate(order, 1):
            before = counter()
            found = method_runs.run(method, context, alone=chosen == (method,))
            entries += found
            measurements += [counter() - before] * len(found)
            if context.stop.is_set():
                rest = ", ".join(order[number:]) or "no method"
                context.display.warn(f"interrupted in {method}; left out: {rest}")
                break
    return entries, measurements


def _judged(
    context: method_runs.Context,
    entries: list[method_runs.Entry],
    searched: list[int],
    known: Path,
) -> _Judged:
    """Measures what was found, beside the references, bounds it, and says which is best."""
    problem, kept = context.problem, context.kept
    wanted = context.measurer is not None and context.settings.evaluate != "simulate"
    if wanted:
        entries = [*entries, *method_runs.references(context.target.references)]
    outcomes: list[verify.Outcome] = [None] * len(entries)
    counts = [0] * len(entries)
    with kept.during("measuring"):
        if wanted:
            entries, outcomes, counts = _measured(context, entries)
            if error := verify.nothing_ran(entries, outcomes):
                raise error
    with context.display.phase("bounding"), kept.during("bounding"):
        entries = bounds.beside(entries, problem, known)
    asked = [resources.NONE] * len(entries)
    with kept.during("working out loads"):
        asked = resources.of(entries, problem)
    counts = [a + b for a, b in itertools.zip_longest(counts, searched, fillvalue=0)]
    rows = verify.rows(entries, outcomes, counts, asked)
    number = verify.best(rows)
    if number is None:
        return _Judged(rows, None, None)
    return _Judged(rows, entries[number], outcomes[number])


def _cpu_s() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def _evaluate(
    settings: Settings,
    problem: loading.SearchProblem,
    measurer: Measurer | None,
    workdir: Path,
    display: progress.Display,
) -> tuple[Evaluate, Callable[[], int]]:
    """Returns what searches evaluate with, and a counter of the measurements that it made."""
    if settings.evaluate != "measure":
        return problem.simulate, lambda: 0
    assert measurer is not None
    cache = evaluate_lib.MeasurementCache(workdir / "measurements.jsonl")
    display.detail(f"placements measured before: {len(cache)}")
    measured = evaluate_lib.MeasuredEvaluate(
        measurer,
        problem.coarse.graph.num_ops,
        lambda placement: loading.candidate(problem, placement, measurer.devices, settings.backend),
        cache,
        compile_s=settings.time_limit_s,
    )
    return measured, lambda: measured.measurements


def _measured(
    context: method_runs.Context, entries: list[method_runs.Entry]
) -> tuple[list[method_runs.Entry], list[verify.Outcome], list[int]]:
    """As `verify.measure`; Ctrl-C before or while measuring leaves all unmeasured."""
    display = context.display
    assert context.measurer is not None
    if context.stop.is_set():
        display.warn("interrupted: nothing is measured; the same command goes on from here")
    else:
        try:
            with display.phase("measuring"):
                settings = context.settings
                seconds = settings.measure_s, settings.time_limit_s
                return verify.measure(context.measurer, entries, *seconds)
        except KeyboardInterrupt:
            context.stop.set()
            display.warn("interrupted while measuring; the same command measures again")
    return entries, [None] * len(entries), [0] * len(entries)


def _explained(judged: _Judged, context: method_runs.Context) -> details.Details | None:
    """The details of the best placement; without measured times if these cannot be taken.

    None without a placement, and of a graph that is too large to look at them.
    """
    best, outcome = judged.best, judged.outcome
    if best is None:
        return None
    target, problem, display = context.target, context.problem, context.display
    if problem.full.graph.num_ops > details.MOST_OPS:
        display.say(
            f"left out of more than {details.MOST_OPS:,} operations: {details.FILE}, trace.json, "
            f"{explain.NETRON}, and what the page and the figures would show of each"
        )
        return None
    measurer = context.measurer if isinstance(outcome, Measurement) else None
    try:
        details_ = explain.best(best, target, problem, context.settings, measurer)
        if measurer is not None and details_.measured is None:
            display.warn(
                "no measured timeline: there was no time; give a longer --config.time_limit_s"
            )
        return details_
    except (KeyboardInterrupt, ChildProcessError) as error:
        cause = str(error) or "interrupted"
        display.warn(f"no measured timeline: {cause}")
        return explain.best(best, target, problem, context.settings, None)
