"""The `place` task: profile, search, verify, report. `compare` is the same with several methods."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

import placement
from experiments import build, methods, report, verify
from placement.costs import tables
from placement.graphs import coarsen
from placement.reporting import runs
from placement.runtime import devices as devices_lib
from placement.runtime import evaluate as evaluate_lib
from placement.runtime.measure import Measurer
from placement.types import Array, CostModel, Evaluate


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Places one model with the configured method, beside the trivial ones.

    Args:
      config: of `configs.common`.
      workdir: the run directory; a run that was interrupted there goes on.

    Returns:
      The summary, as written to summary.json.

    Raises:
      ValueError: anything about the configuration that cannot be run, in one line.
    """
    chosen = build.names(config.method)
    if len(chosen) != 1:
        raise ValueError(
            f"method={config.method!r} with --task=place; give one method, or --task=compare"
        )
    trivial = ("single", "hetero", "random")
    return run_methods(config, workdir, (*trivial, *(m for m in chosen if m not in trivial)))


def run_methods(
    config: ConfigDict, workdir: Path, chosen: tuple[str, ...], *, label_rows: bool = False
) -> dict[str, Any]:
    """Runs the methods, measures what they found together, and writes the run directory.

    `label_rows` adds the graph and the seed to every row.
    """
    started, cpu_started = time.monotonic(), _cpu_s()
    build.check(config)
    for method in chosen:
        build.among("method", method, tuple(methods.METHODS))
    console = Console()
    devices = devices_lib.resolve(config.devices)
    if config.budget < len(devices):
        raise ValueError(
            f"budget={config.budget} does not cover the {len(devices)} single devices, which every "
            f"search evaluates first; give at least {len(devices)}"
        )
    net = build.network(config)
    runs.prepare_workdir(workdir)
    runs.write_json(workdir / "config.json", config.to_dict())
    runs.write_json(workdir / "environment.json", environment())
    _introduce(console, net, devices)
    with Measurer(net.model, devices, seed=config.seed) as measurer:
        setting = build.setting(
            net, _costs(config, net, measurer, workdir, console), devices, config.objective
        )
        evaluate, counter = _evaluate(config, setting, measurer, workdir)
        context = methods.Context(
            config, workdir, measurer, devices, setting, evaluate, config.seed, console
        )
        entries = [entry for method in chosen for entry in methods.METHODS[method](context)]
        entries += methods.references(devices)
        entries, outcomes, counts = _verify(config, measurer, entries, console)
    for i, entry in enumerate(entries):
        if entry.method in methods.LEARNED:
            counts[i] += counter()
    rows = verify.rows(entries, outcomes, counts)
    if label_rows:
        rows = [row | {"graph": net.graph.name, "seed": config.seed} for row in rows]
    summary = {
        "graph": {
            "name": net.graph.name,
            "num_ops": net.graph.num_ops,
            "num_edges": net.graph.num_edges,
        },
        "devices": [device.label for device in devices],
        "objective": config.objective,
        "seed": config.seed,
        "rows": rows,
        "best": verify.best(rows, outcomes),
        "compute_s": _cpu_s() - cpu_started,
        "wall_s": time.monotonic() - started,
    }
    _write_placement(workdir, summary, entries, net, devices)
    runs.write_json(workdir / "summary.json", summary)
    report.write(summary, workdir, console)
    return summary


def _cpu_s() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def environment() -> dict[str, Any]:
    """Versions, devices, processor and load."""
    versions = {"placement": placement.__version__, "jax": jax.__version__}
    versions |= {"flax": flax.__version__, "numpy": np.__version__}
    return devices_lib.describe_machine() | {"versions": versions}


def _introduce(
    console: Console, net: build.Network, devices: tuple[devices_lib.Device, ...]
) -> None:
    coarse = net.coarsening.graph
    console.print(
        f"[bold]{net.graph.name}[/]: {net.graph.num_ops} operations, {net.graph.num_edges} edges; "
        f"coarsened to {coarse.num_ops} and {coarse.num_edges}"
    )
    if net.estimated:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(net.estimated.items()))
        console.print(f"FLOPs estimated by bytes moved: {listed}", highlight=False)
    console.print("devices: " + "; ".join(device.label for device in devices), markup=False)


def _costs(
    config: ConfigDict, net: build.Network, measurer: Measurer, workdir: Path, console: Console
) -> CostModel:
    """Profiles the devices, or reads what this run directory holds of the same profile."""
    path = workdir / "profile.json"
    key = hashlib.sha256(
        json.dumps([measurer.fingerprint, [d.label for d in measurer.devices]]).encode()
    ).hexdigest()
    saved = json.loads(path.read_text()) if path.exists() else {}
    if saved.get("key") != key:
        with console.status("profiling the devices"):
            profiles, crossings = measurer.profile(), measurer.crossings()
        saved = {"key": key, **tables.to_json(profiles, crossings)}
        runs.write_json(path, saved)
    profiles, crossings = tables.from_json(saved)
    return tables.cost_model(net.graph, profiles, crossings)


def _evaluate(
    config: ConfigDict, setting: build.Setting, measurer: Measurer, workdir: Path
) -> tuple[Evaluate, Callable[[], int]]:
    """What searches evaluate with, and a counter of the measurements that it made."""
    if config.evaluate != "measure":
        return setting.simulate, lambda: 0
    cache = evaluate_lib.MeasurementCache(workdir / "measurements.jsonl")
    measured = evaluate_lib.as_evaluate(measurer, setting.full.graph.op_names, cache)

    def evaluate(placements: Array) -> Array:
        return measured(coarsen.lift(setting.assignment, np.asarray(placements)))

    return evaluate, lambda: measured.measurements


def _verify(
    config: ConfigDict, measurer: Measurer, entries: list[methods.Entry], console: Console
) -> tuple[list[methods.Entry], list[Any], list[int]]:
    interrupted = any(entry.solution.status == "interrupted" for entry in entries)
    unmeasured = entries, [None] * len(entries), [0] * len(entries)
    if config.evaluate == "simulate":
        own = [entry for entry in entries if not entry.reference]
        return own, [None] * len(own), [0] * len(own)
    if interrupted:
        console.print("interrupted: nothing is measured; the same command goes on from here")
        return unmeasured
    try:
        with console.status("measuring the placements, interleaved"):
            return verify.measure(measurer, entries, config.measure_s)
    except KeyboardInterrupt:
        console.print("interrupted while measuring; the same command measures again")
        return unmeasured


def _write_placement(
    workdir: Path,
    summary: dict[str, Any],
    entries: list[methods.Entry],
    net: build.Network,
    devices: tuple[devices_lib.Device, ...],
) -> None:
    """Writes the best method's placement with what is needed to trust and repeat it."""
    row, entry = next(
        (row, entry)
        for row, entry in zip(summary["rows"], entries, strict=True)
        if row["method"] == summary["best"]
    )
    affinity = entry.affinities[0]
    if affinity is None:
        placed = (devices[i].name for i in entry.solution.placement)
        affinity = dict(zip(net.graph.op_names, placed, strict=True))
    provenance = {
        "graph": summary["graph"],
        "objective": summary["objective"],
        "seed": summary["seed"],
        "devices": {d.name: {"label": d.label, "properties": dict(d.properties)} for d in devices},
        "row": row,
    }
    runs.write_json(
        workdir / "placement.json",
        {"method": row["method"], "placement": dict(affinity), "provenance": provenance},
    )
