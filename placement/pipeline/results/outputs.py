"""What a run writes of what it found, so that a run directory only ever gets better."""

import math
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np

import placement
from placement import files
from placement.errors import UserError
from placement.pipeline import loading
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.distributed import hosts
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.reporting import runs, summaries, verdict
from placement.runtime import devices as devices_lib
from placement.runtime.models import fingerprint

INTERRUPTED = "interrupted"  # in the run directory: what did not replace better results
_ENVIRONMENT = "environment.json"
# The files of a run that was interrupted, beside its figures.
_OF_A_RUN = (
    *("config.json", _ENVIRONMENT, runs.SUMMARY, runs.PLACEMENT, "details.json", "placed.xml"),
    *("report.md", "report.html", "trace.json"),
)


def environment() -> dict[str, Any]:
    """Versions, devices, processor and load."""
    versions = {"placement": placement.__version__, "jax": jax.__version__}
    versions |= {"flax": flax.__version__, "numpy": np.__version__}
    return devices_lib.describe_machine() | {"versions": versions}


def provenance(
    settings: Settings, target: target_lib.Target, conditions: dict[str, Any]
) -> dict[str, Any]:
    """Returns the files that say where results come from, by name.

    Args:
      settings: of the run.
      target: what it is about.
      conditions: under which something was measured, see `placement.pipeline.target.opened`.
    """
    here = environment() | hosts.record(target.hosts) | conditions
    return {"config.json": settings.to_dict(), _ENVIRONMENT: here}


def directory(workdir: Path, summary: dict[str, Any], display: progress.Display) -> Path:
    """Where to write results, so that a run directory only ever gets better.

    What is complete replaces all. What is not stands apart where something better is known.
    """
    apart = workdir / INTERRUPTED
    if summary["complete"]:
        files.remove_files(apart / "figures", ["*.png", "*.svg"])
        files.remove_files(apart, _OF_A_RUN)
        return workdir
    known = _known(workdir)
    if known is None or not (known.get("complete", True) or _value(known) < _value(summary)):
        return workdir
    runs.make_folder(apart)
    display.warn(f"{workdir} keeps the better results of before; those of this run are in {apart}")
    return apart


def _known(workdir: Path) -> dict[str, Any] | None:
    """The summary that a run directory has, if it can be read."""
    try:
        return runs.read_summary(workdir)
    except UserError:
        return None


def _value(summary: dict[str, Any]) -> float:
    """Returns what the best placement is predicted to take; inf without one."""
    best = verdict.decide(summary["rows"]).placement
    predicted_s = best and summaries.predicted_s(best.row)
    return math.inf if predicted_s is None else predicted_s


def write(directory: Path, contents: dict[str, Any]) -> None:
    """Writes JSON files by name."""
    for name, content in contents.items():
        runs.write_json(directory / name, content)


def origin(target: target_lib.Target, objective: str, seed: int) -> dict[str, Any]:
    """Returns what a placement is of, to trust and repeat it, as its file says it."""
    graph = target.net.graph
    properties = {device.name: dict(device.properties) for device in target.present}
    told: dict[str, Any] = {
        "graph": {"name": graph.name, "num_ops": graph.num_ops, "num_edges": graph.num_edges},
        "objective": objective,
        "seed": seed,
        "devices": {
            name: {"label": label, "properties": properties.get(name, {})}
            for name, label in zip(target.names, target.labels, strict=True)
        },
    }
    if target.net.model is not None:  # for --task=deploy to tell whether it is still the same
        told["model"] = fingerprint.of(target.net.model)
    return told


def write_placement(
    workdir: Path,
    summary: dict[str, Any],
    best: Row | None,
    target: target_lib.Target,
    problem: loading.SearchProblem,
) -> None:
    """Writes the best method's placement with what is needed to trust and repeat it.

    Without one that of an earlier run goes.
    """
    if best is None:
        (workdir / runs.PLACEMENT).unlink(missing_ok=True)
        return
    row = next(row for row in summary["rows"] if row["method"] == best.method)
    affinity = loading.affinity(best.placed_problem(problem), best.placements[0])
    provenance = origin(target, summary["objective"], summary["seed"]) | {"row": row}
    found: dict[str, Any] = {"method": row["method"], "placement": affinity}
    if (segments := best.candidates[0].segments) is not None:
        found["segments"] = segments
    runs.write_json(workdir / runs.PLACEMENT, found | {"provenance": provenance})
