"""The figures of a run directory, and its trace: what can be drawn, and why the rest cannot."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from placement.reporting import details as details_lib
from placement.reporting import (
    graph_plot,
    load_plot,
    plots,
    relations,
    runs,
    search_plots,
    timeline_plot,
    traces,
)

_DIRECTORY = "figures"


def of_run(summary: Mapping[str, Any], workdir: Path, console: Console) -> None:
    """Draws what a run found and how; writes trace.json where details.json is."""
    rows, name = summary["rows"], summary["graph"]["name"]
    metrics = runs.read_jsonl(workdir / "metrics.jsonl")
    drawings: dict[str, Callable[[], Any]] = {
        "latencies": lambda: search_plots.latencies(summary),
        "search": lambda: search_plots.search(metrics, rows),
        "errors": lambda: relations.errors(relations.pairs(rows), name),
        "front": lambda: relations.front(rows),
    }
    details = details_lib.read(workdir / "details.json")

    def known() -> details_lib.Details:
        if details is None:
            raise ValueError("no details.json, as of an older run or one that found no placement")
        return details

    drawings |= {
        "placement": lambda: graph_plot.placement(known()),
        "timeline": lambda: timeline_plot.timeline(known()),
        "loads": lambda: load_plot.loads(known()),
    }
    write(drawings, workdir, console)
    if details is not None:
        traces.write(workdir / "trace.json", details)


def of_comparison(
    rows: list[dict[str, Any]], learned: Collection[str], workdir: Path, console: Console
) -> None:
    """Draws the methods beside each other, on every graph."""
    write({"ratios": lambda: relations.ratios(rows, learned)}, workdir, console)


def of_fidelity(fidelity: Mapping[str, Any], workdir: Path, console: Console) -> None:
    """Draws how far predictions are right, of what fidelity.json holds."""
    placements = fidelity["placements"]
    samples = [relations.Pair(p["kind"], p["predicted_s"], p["measured_s"]) for p in placements]
    write({"errors": lambda: relations.errors(samples, fidelity["graph"])}, workdir, console)


def write(drawings: Mapping[str, Callable[[], Any]], workdir: Path, console: Console) -> None:
    """Saves the figures that can be drawn, and says once of each reason what it left out."""
    directory = workdir / _DIRECTORY
    directory.mkdir(exist_ok=True)
    left_out: dict[str, list[str]] = {}
    for name, draw in drawings.items():
        try:
            plots.save(draw(), directory, name)
        except ValueError as error:
            left_out.setdefault(str(error), []).append(name)
    for reason, names in left_out.items():
        console.print(f"no figure of {', '.join(names)}: {reason}", markup=False, soft_wrap=True)
