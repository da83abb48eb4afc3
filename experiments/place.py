"""The `place` task: profile, search, verify, report.

`compare` and `solve` repeat it with several methods.
"""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np
from ml_collections import ConfigDict

import placement
from experiments import (
    bounds,
    build,
    explain,
    faults,
    hosts,
    learned,
    loads,
    methods,
    progress,
    report,
    subject,
    verify,
    workdirs,
)
from placement import arguments
from placement.errors import UserError
from placement.reporting import details, runs
from placement.runtime import devices as devices_lib
from placement.runtime import evaluate as evaluate_lib
from placement.runtime import fingerprint
from placement.runtime.boundary import Boundary
from placement.runtime.measure import Measurement
from placement.types import Evaluate


def run(
    config: ConfigDict, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Places one model with the configured method, beside the trivial ones.

    Args:
      config: of `configs.common`.
      workdir: the run directory; a run that was interrupted there goes on.
      display: where to say what is done.

    Returns:
      The summary, as written to summary.json.

    Raises:
      UserError: anything about the configuration that cannot be run, in one line.
    """
    chosen = arguments.entries(config.method)
    if len(chosen) != 1:
        raise UserError(
            f"method={config.method!r} with --task=place; give one method, or --task=compare"
        )
    beside = tuple(m for m in ("single", "hetero", "random") if m not in chosen)
    with faults.told_last() as kept:
        summary = run_methods(config, workdir, chosen, kept, beside=beside, display=display)
        with kept.during("reporting"):
            report.write(summary, workdir, display.console, kept)
        if not (workdir / "placement.json").exists():
            display.warn("no method found a placement that every device can run: no placement.json")
    return summary


def run_methods(
    config: ConfigDict,
    workdir: Path,
    chosen: tuple[str, ...],
    kept: faults.Faults,
    *,
    beside: tuple[str, ...] = (),
    known: Path | None = None,
    display: progress.Display,
) -> dict[str, Any]:
    """Runs the methods, measures what they found together, and writes the run directory.

    `beside` are methods that nobody asked for: they come first, and are left out where they need
    devices that are not present or are for other objectives. `known` is the file of bounds, by
    default that of the run directory. Ctrl-C in a method ends the list: what was found until then
    is written. So it is after a fault once methods run, which is `kept` for the task to tell.

    Raises:
      UserError: anything about the configuration that cannot be run, in one line.
    """
    started, cpu_started = time.monotonic(), _cpu_s()
    build.check(config)
    for method in chosen:
        methods.check(method, config.objective)
    if config.init_from:
        learned.of_checkpoint(config.init_from)  # that can be read, before anything takes time
    about = subject.find(config)
    order = methods.runnable(chosen, beside, about, config, display)
    if config.budget < about.num_devices:
        raise UserError(
            f"budget={config.budget} does not cover the {about.num_devices} single devices, which "
            f"every search evaluates first; give at least {about.num_devices}"
        )
    workdirs.claim(workdir, display)
    runs.write_json(workdir / "config.json", config.to_dict())
    runs.write_json(workdir / "environment.json", environment() | hosts.told(about.hosts))
    with subject.opened(about, config, workdir, display) as (costs, measurer):
        setting = build.setting(about.net, costs, about.names, config.objective)
        evaluate, counter = _evaluate(config, setting, measurer, workdir, display)
        context = methods.Context(
            config, workdir, about, measurer, setting, evaluate, config.seed, display
        )
        entries, searched = [], []  # and the measurements that finding each took
        for number, method in enumerate(order, 1):
            before = counter()
            found = _found(method, context, kept, alone=chosen == (method,))
            entries += found
            searched += [counter() - before] * len(found)
            if _interrupted(found):
                rest = ", ".join(order[number:]) or "no method"
                display.warn(f"interrupted in {method}; left out: {rest}")
                break
        entries += methods.references(about.references)
        outcomes: list[verify.Outcome] = [None] * len(entries)
        counts = [0] * len(entries)
        with kept.during("measuring"):
            entries, outcomes, counts = _verify(config, measurer, entries, display)
        with display.phase("bounding"), kept.during("bounding"):
            entries = bounds.beside(entries, setting, known or workdir / bounds.FILE)
        asked = [loads.NONE] * len(entries)
        with kept.during("working out loads"):
            asked = loads.of(entries, setting)
        counts = [a + b for a, b in itertools.zip_longest(counts, searched, fillvalue=0)]
        rows = verify.rows(entries, outcomes, counts, asked)
        method = verify.best(rows, outcomes)
        best, outcome = next(
            pair for pair in zip(entries, outcomes, strict=True) if pair[0].method == method
        )
        can_run = np.isfinite(best.solution.value_s)
        ran = measurer if isinstance(outcome, Measurement) else None
        told = None
        with kept.during("explaining the best placement"):
            told = _explained(best, about, setting, config, ran, display) if can_run else None
    graph = about.net.graph
    summary = {
        "graph": {"name": graph.name, "num_ops": graph.num_ops, "num_edges": graph.num_edges},
        "devices": list(about.labels),
        "objective": config.objective,
        "seed": config.seed,
        "rows": rows,
        "best": method,
        "compute_s": _cpu_s() - cpu_started,
        "wall_s": time.monotonic() - started,
    }
    runs.write_json(workdir / "summary.json", summary)
    with kept.during("writing the placement"):
        if can_run:
            _write_placement(workdir, summary, best, about, setting)
        explain.write(workdir, told, about)
    return summary


def _found(
    method: str, context: methods.Context, kept: faults.Faults, *, alone: bool
) -> list[methods.Entry]:
    """What a method finds; one that cannot be used here is refused alone, and a row among others.

    One with a fault is a row that says so.

    Raises:
      UserError: it cannot be used on this problem, in one line.
    """
    try:
        return methods.run(method, context)
    except UserError as error:
        if alone:
            raise
        return [methods.failed(method, str(error), context)]
    except faults.OTHERS:
        raise
    except Exception as fault:
        kept.add(fault, f"searching with {method}")
        return [methods.failed(method, f"fault: {faults.in_short(fault)}", context)]


def _interrupted(entries: list[methods.Entry]) -> bool:
    return any(entry.solution.status == "interrupted" for entry in entries)


def _cpu_s() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def environment() -> dict[str, Any]:
    """Versions, devices, processor and load."""
    versions = {"placement": placement.__version__, "jax": jax.__version__}
    versions |= {"flax": flax.__version__, "numpy": np.__version__}
    return devices_lib.describe_machine() | {"versions": versions}


def _evaluate(
    config: ConfigDict,
    setting: build.Setting,
    measurer: Boundary | None,
    workdir: Path,
    display: progress.Display,
) -> tuple[Evaluate, Callable[[], int]]:
    """What searches evaluate with, and a counter of the measurements that it made."""
    if config.evaluate != "measure":
        return setting.simulate, lambda: 0
    assert measurer is not None
    cache = evaluate_lib.MeasurementCache(workdir / "measurements.jsonl")
    display.detail(f"placements measured before: {len(cache)}")
    measured = evaluate_lib.as_evaluate(
        measurer,
        setting.coarse.graph.num_ops,
        lambda placement: build.candidate(setting, placement, measurer.devices, config.backend),
        cache,
    )
    return measured, lambda: measured.measurements


def _verify(
    config: ConfigDict,
    measurer: Boundary | None,
    entries: list[methods.Entry],
    display: progress.Display,
) -> tuple[list[methods.Entry], list[Any], list[int]]:
    unmeasured = entries, [None] * len(entries), [0] * len(entries)
    if measurer is None or config.evaluate == "simulate":
        own = [entry for entry in entries if not entry.reference]
        return own, [None] * len(own), [0] * len(own)
    if _interrupted(entries):
        display.warn("interrupted: nothing is measured; the same command goes on from here")
        return unmeasured
    try:
        with display.phase("measuring"):
            return verify.measure(measurer, entries, config.measure_s)
    except KeyboardInterrupt:
        display.warn("interrupted while measuring; the same command measures again")
        return unmeasured


def _explained(
    best: methods.Entry,
    about: subject.Subject,
    setting: build.Setting,
    config: ConfigDict,
    measurer: Boundary | None,
    display: progress.Display,
) -> details.Details | None:
    """The details of the best placement; without measured times if these cannot be taken.

    None of a graph that is too large to look at them.
    """
    if setting.full.graph.num_ops > details.MOST_OPS:
        display.say(
            f"left out of more than {details.MOST_OPS:,} operations: {details.FILE}, trace.json, "
            f"{explain.NETRON}, and what the page and the figures would show of each"
        )
        return None
    try:
        return explain.best(best, about, setting, config, measurer)
    except (KeyboardInterrupt, ChildProcessError) as error:
        cause = str(error) or "interrupted"
        display.warn(f"no measured timeline: {cause}")
        return explain.best(best, about, setting, config, None)


def _write_placement(
    workdir: Path,
    summary: dict[str, Any],
    entry: methods.Entry,
    about: subject.Subject,
    setting: build.Setting,
) -> None:
    """Writes the best method's placement with what is needed to trust and repeat it."""
    row = next(row for row in summary["rows"] if row["method"] == entry.method)
    affinity = build.affinity(methods.placed_on(entry, setting), entry.placements[0])
    properties = {device.name: dict(device.properties) for device in about.present}
    provenance = {
        "graph": summary["graph"],
        "objective": summary["objective"],
        "seed": summary["seed"],
        "devices": {
            name: {"label": label, "properties": properties.get(name, {})}
            for name, label in zip(about.names, about.labels, strict=True)
        },
        "row": row,
    }
    if about.net.model is not None:  # for --task=deploy to tell whether it is still the same
        provenance["model"] = fingerprint.of(about.net.model)
    found: dict[str, Any] = {"method": row["method"], "placement": affinity}
    if (stretches := entry.candidates[0].stretches) is not None:
        found["stretches"] = stretches
    runs.write_json(workdir / "placement.json", found | {"provenance": provenance})
