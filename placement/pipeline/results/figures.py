"""The figures of a run directory, and its trace: what can be drawn, and why the rest cannot."""

import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from placement.errors import UserError
from placement.pipeline.console import faults, metrics
from placement.reporting import details as details_lib
from placement.reporting import runs, traces
from placement.reporting.figures import (
    front_plot,
    graph_plot,
    load_plot,
    plots,
    profile_plot,
    scatter_plots,
    search_plots,
    timeline_plot,
)
from placement.reporting.tables.aggregates import Aggregates

_DIRECTORY = "figures"
_Drawings = Mapping[str, Callable[[], Any]]  # by name of the file


def of_run(
    summary: Mapping[str, Any],
    workdir: Path,
    details: details_lib.Details | None,
    console: Console,
    kept: faults.Faults,
) -> list[Path]:
    """Draws what a run found and how; writes trace.json where the details are known.

    Returns:
      The SVG files that were drawn, as of the other functions here.
    """
    rows, name = summary["rows"], summary["graph"]["name"]

    def known() -> details_lib.Details:
        if details is None:
            raise plots.NothingToDrawError(
                "no details.json, as of an older run, one that found no placement or one of more "
                f"than {details_lib.MOST_OPS:,} operations"
            )
        return details

    drawings: dict[str, Callable[[], Any]] = {
        "placement": lambda: graph_plot.placement(known()),
        "timeline": lambda: timeline_plot.timeline(known()),
        "loads": lambda: load_plot.loads(known()),
        "latencies": lambda: search_plots.latencies(summary),
        "search": lambda: search_plots.search(metrics.read(workdir), rows),
        "errors": lambda: scatter_plots.errors(scatter_plots.pairs(rows), name),
        "front": lambda: scatter_plots.pareto(rows),
    }
    trace = workdir / "trace.json"
    trace.unlink(missing_ok=True)  # of an earlier run
    if details is not None:
        with kept.during("writing the trace"):
            traces.write(trace, details)
    return _write(drawings, workdir, console, kept)


def of_comparison(
    rows: list[dict[str, Any]],
    aggregates: Aggregates,
    learned: Collection[str],
    workdir: Path,
    console: Console,
    kept: faults.Faults,
) -> list[Path]:
    """Draws the methods beside each other, and what each placement trades for what, by graph."""
    drawings: dict[str, Callable[[], Any]] = {
        "ratios": lambda: scatter_plots.ratios(rows, learned),
        "profiles": lambda: profile_plot.profiles(aggregates, learned),
    }
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    for graph, name in zip(graphs, runs.file_names(graphs), strict=True):
        of_graph = [row for row in rows if row["graph"] == graph]
        drawings[f"front-of-{name}"] = functools.partial(scatter_plots.pareto, of_graph)
    return _write(drawings, workdir, console, kept)


def of_fidelity(
    fidelity: Mapping[str, Any], workdir: Path, console: Console, kept: faults.Faults
) -> None:
    """Draws how far predictions are right, of what fidelity.json holds."""
    placements = fidelity["placements"]
    samples = [scatter_plots.Pair(p["kind"], p["predicted_s"], p["measured_s"]) for p in placements]
    drawings = {"errors": lambda: scatter_plots.errors(samples, fidelity["graph"])}
    _write(drawings, workdir, console, kept)


def of_front(told: Mapping[str, Any], workdir: Path, console: Console, kept: faults.Faults) -> None:
    """Draws what front.json holds."""
    _write({"front": lambda: front_plot.front(told)}, workdir, console, kept)


def _write(drawings: _Drawings, workdir: Path, console: Console, kept: faults.Faults) -> list[Path]:
    """Saves the figures that can be drawn, and says once of each reason what it left out."""
    directory = runs.make_folder(workdir / _DIRECTORY)
    drawn, left_out = [], dict[str, list[str]]()
    for name, draw in drawings.items():
        for suffix in ("png", "svg"):  # of an earlier run
            (directory / f"{name}.{suffix}").unlink(missing_ok=True)
        with kept.during(f"drawing {name}"):
            try:
                plots.save(draw(), directory, name)
                drawn.append(directory / f"{name}.svg")
            except (plots.NothingToDrawError, UserError) as error:
                left_out.setdefault(str(error), []).append(name)
    for reason, names in left_out.items():
        console.print(f"no figure of {', '.join(names)}: {reason}", markup=False, soft_wrap=True)
    return drawn
