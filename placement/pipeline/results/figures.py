"""The figures of a run directory and its trace; says why a figure cannot be drawn."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from placement.errors import UserError
from placement.pipeline.console import faults, metrics
from placement.reporting import details as details_lib
from placement.reporting import runs, traces
from placement.reporting.figures import (
    device_plots,
    graph_plot,
    plots,
    profile_plot,
    scatter_plots,
    search_plots,
)
from placement.reporting.tables.aggregates import Aggregates


def draw_run(
    summary: Mapping[str, Any],
    workdir: Path,
    details: details_lib.Details | None,
    console: Console,
    fault_log: faults.Faults,
) -> list[Path]:
    """Draws the results of a run and its searches; writes trace.json where details are known.

    Returns:
      The SVG files.
    """
    rows, name = summary["rows"], summary["graph"]["name"]

    def required_details() -> details_lib.Details:
        if details is None:
            raise plots.NothingToDrawError(
                "no details.json, as of an older run, one that found no placement or one of more "
                f"than {details_lib.MOST_OPS:,} operations"
            )
        return details

    drawings: dict[str, Callable[[], Any]] = {
        "placement": lambda: graph_plot.placement(required_details()),
        "timeline": lambda: device_plots.timeline(required_details()),
        "loads": lambda: device_plots.loads(required_details()),
        "latencies": lambda: search_plots.latencies(summary),
        "search": lambda: search_plots.search(metrics.read_metrics(workdir), rows),
        "errors": lambda: scatter_plots.errors(scatter_plots.pairs(rows), name),
    }
    trace = workdir / "trace.json"
    trace.unlink(missing_ok=True)  # of an earlier run
    if details is not None:
        with fault_log.during("writing the trace"):
            runs.write_json(trace, traces.trace(details), indent=None)
    return write(drawings, workdir, console, fault_log)


def draw_comparison(
    rows: list[dict[str, Any]],
    aggregates: Aggregates,
    learned: Collection[str],
    workdir: Path,
    console: Console,
    fault_log: faults.Faults,
) -> list[Path]:
    """Draws the methods beside each other."""
    drawings: dict[str, Callable[[], Any]] = {
        "ratios": lambda: scatter_plots.ratios(rows, learned),
        "profiles": lambda: profile_plot.profiles(aggregates, learned),
    }
    return write(drawings, workdir, console, fault_log, suffixes=("png", "svg", "pdf"))


def write(
    drawings: Mapping[str, Callable[[], Any]],
    workdir: Path,
    console: Console,
    fault_log: faults.Faults,
    *,
    suffixes: Collection[str] = ("png", "svg"),
) -> list[Path]:
    """Saves the figures that can be drawn; says for each reason which ones cannot.

    Args:
      drawings: by name of the file, functions that draw a figure or raise `NothingToDrawError`.
      workdir, console, fault_log: the run directory, to print the reasons on, and for other errors.
      suffixes: of the files of each figure, with 'svg'.

    Returns:
      The SVG files.
    """
    directory = runs.make_folder(workdir / "figures")
    saved, left_out = [], dict[str, list[str]]()
    for name, draw in drawings.items():
        for suffix in suffixes:  # of an earlier run
            (directory / f"{name}.{suffix}").unlink(missing_ok=True)
        with fault_log.during(f"drawing {name}"):
            try:
                plots.save(draw(), directory, name, suffixes)
                saved.append(directory / f"{name}.svg")
            except (plots.NothingToDrawError, UserError) as error:
                left_out.setdefault(str(error), []).append(name)
    for reason, names in left_out.items():
        console.print(f"no figure of {', '.join(names)}: {reason}", markup=False, soft_wrap=True)
    return saved
