"""The result files of a run. An incomplete run never replaces a complete one."""

import dataclasses
import datetime
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import placement
from placement import files, methods
from placement.errors import UserError
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.context import Context
from placement.pipeline.results.rows import Row, to_json
from placement.pipeline.settings import Settings
from placement.problem import Problem
from placement.reporting import runs, units, verdict
from placement.runtime import cluster
from placement.runtime import devices as devices_lib
from placement.runtime.models import fingerprint

INTERRUPTED = "interrupted"  # in the run directory: results that do not replace complete ones
_ENVIRONMENT = "environment.json"
# The files of a run that was interrupted, except its figures.
_OF_A_RUN = (
    *("config.json", _ENVIRONMENT, runs.SUMMARY, runs.PLACEMENT, "details.json", "placed.xml"),
    *("report.md", "report.html", "trace.json"),
)


def environment(choice: cluster.Choice | None = None) -> dict[str, Any]:
    """Returns command, date, versions, devices, processor and load, and the hosts that measure."""
    program, arguments = Path(sys.argv[0]).stem, sys.argv[1:]
    command = [program, *arguments] if program == "placement" else ["python", *sys.orig_argv[1:]]
    date = datetime.datetime.now().astimezone().isoformat(" ", "minutes")
    versions = {"placement": placement.__version__}
    versions |= {name: metadata.version(name) for name in ("jax", "flax", "numpy")}
    machine = {"command": shlex.join(command), "date": date} | devices_lib.describe_machine()
    machine["versions"] = versions
    if choice is None:
        return machine
    used = [host.name for host in choice.hosts]
    hardware = choice.hosts[0].hardware
    return machine | {"hosts": {"used": used, "hardware": hardware, "left_out": choice.left_out}}


def write_provenance(
    directory: Path, settings: Settings, target: target_lib.Target, conditions: dict[str, Any]
) -> None:
    """Writes the files that say where results come from, config.json and environment.json.

    `conditions` are those of measurements, see `placement.pipeline.target.open_target`.
    """
    runs.write_json(directory / "config.json", settings.to_dict())
    runs.write_json(directory / _ENVIRONMENT, environment(target.hosts) | conditions)


def directory(workdir: Path, summary: dict[str, Any], display: progress.Display) -> Path:
    """Returns the directory for the results of a run, so that no complete ones are replaced.

    A complete run replaces everything. An incomplete one has a separate directory where a
    complete run is there already.
    """
    separate = workdir / INTERRUPTED
    if summary["complete"]:
        files.remove_files(separate / "figures", ["*.png", "*.svg"])
        files.remove_files(separate, _OF_A_RUN)
        return workdir
    try:
        if not runs.read_summary(workdir)["complete"]:
            return workdir
    except UserError:
        return workdir
    runs.make_folder(separate)
    display.warn(
        f"{workdir} keeps the complete results of before; those of this run are in {separate}"
    )
    return separate


def cpu_s() -> float:
    """Returns the CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def summarise(context: Context, rows: Sequence[Row]) -> tuple[dict[str, Any], Row | None]:
    """Returns what summary.json says of the problem and the rows, and the row of the best one."""
    target, problem, settings = context.target, context.problem, context.settings
    is_divided = bool(target.divisions) or settings.devices.strip() == devices_lib.PRECISIONS
    table = to_json(rows, with_errors=is_divided)
    decided, best = verdict.decide(table), None
    if decided.placement is not None:
        (best,) = (rows[i] for i, row in enumerate(table) if row is decided.placement.row)
    graph, optimum = target.net.graph, target.net.optimum
    described = {"name": graph.name, "num_ops": graph.num_ops, "num_edges": graph.num_edges}
    summary: dict[str, Any] = {
        "graph": described | ({"optimum_s": optimum.value_s} if optimum is not None else {}),
        "devices": list(target.labels),
        "objective": settings.objective,
        "starts": settings.starts,
        "seed": settings.seed,
        "rows": table,
        "best": decided.winner and decided.winner.method,
    }
    if target.unsupported:
        summary["unsupported"] = list(target.unsupported)
    if best is not None and len(problem.memory_limits.devices):
        summary["memory"] = describe_memory(problem, best.placements[0])
    if best is not None and target.divisions:
        affinity = target.net.affinity(target.names, best.placements[0])
        summary["divisions"] = [division.to_json(affinity) for division in target.divisions]
    return summary, best


def describe_memory(problem: Problem, placement: np.ndarray) -> dict[str, dict[str, float | None]]:
    """Returns the memory that a placement int32 [K] and the whole model need on each device.

    Deploying compares it with the memory of the devices there.
    """
    placement_bytes = problem.peak_bytes(placement)
    capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
    singles = methods.single_device_placements(problem)
    return {
        name: {
            "placement_bytes": float(placement_bytes[device]),
            "model_bytes": float(problem.peak_bytes(singles[device])[device]),
            "capacity_bytes": units.number(capacity_bytes[device]),
        }
        for device, name in enumerate(problem.devices)
    }


def write_placement(
    workdir: Path,
    summary: dict[str, Any],
    best: Row | None,
    context: Context,
) -> None:
    """Writes the best method's placement with its origin; without one removes an earlier file."""
    if best is None:
        (workdir / runs.PLACEMENT).unlink(missing_ok=True)
        return
    target, problem = context.target, context.problem
    row = next(row for row in summary["rows"] if row["method"] == best.method)
    placement = best.placements[0]
    present = {device.name: dataclasses.asdict(device) for device in target.present}
    provenance: dict[str, Any] = {
        **{key: summary[key] for key in ("graph", "objective", "seed")},
        "devices": {
            name: present.get(name, {"label": label})
            for name, label in zip(target.names, target.labels, strict=True)
        },
        "row": row,
        "memory": describe_memory(problem, placement),
    }
    if target.net.model is not None:  # deploy checks that it is still the same
        provenance["model"] = fingerprint.compute_fingerprint(target.net.model)
    content: dict[str, Any] = {
        "method": row["method"],
        "placement": target.net.affinity(target.names, placement),
    }
    if "divisions" in summary:
        content["divisions"] = summary["divisions"]
    if best.solution.order is not None:
        members = target.net.members
        content["order"] = [name for k in best.solution.order.tolist() for name in members[k]]
    if (segments := best.candidates[0].segments) is not None:
        content["segments"] = segments
    runs.write_json(workdir / runs.PLACEMENT, content | {"provenance": provenance})
