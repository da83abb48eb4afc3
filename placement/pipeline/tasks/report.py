"""The `report` task: table, report.md, report.html and figures of a finished run."""

import contextlib
import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from placement import files
from placement.errors import UserError
from placement.methods import learned
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.settings import Settings
from placement.reporting import details as details_lib
from placement.reporting import printable, runs, summaries, traces, verdict
from placement.reporting.figures import graph_plot, method_plot, plots, search_plot, timeline_plot
from placement.reporting.page import html
from placement.reporting.tables import aggregates, comparison, learning_curves, results

CELLS = "cells.json"  # the run directories that a comparison consists of, and their graphs
_CELLS_SCHEMA = [{"directory": str, "graph": str}]
T = TypeVar("T")


def run(
    settings: Settings | None, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Reports again on a finished run, whatever the configuration.

    If the directory cannot be written to, only the table is printed.

    Raises:
      UserError: the run directory holds no readable summary.json.
    """
    summary = runs.read_summary(workdir)
    report = write_comparison if "graph" in summary["rows"][0] else write_report
    writable = os.access(workdir, os.W_OK | os.X_OK)
    with faults.raise_at_end() as task_faults:
        report(summary, workdir, display.console, task_faults, writable=writable)
    if not writable:
        display.warn(
            f"{workdir} cannot be written to: no report or figure is written; to get them copy the "
            "directory and set workdir to the copy"
        )
    return summary


@contextlib.contextmanager
def abort_report_on_error(task_faults: faults.Faults, display: progress.Display) -> Iterator[None]:
    """Lets an error or Ctrl-C abort only the report; the results are already written."""
    try:
        with task_faults.during("reporting"):
            yield
    except KeyboardInterrupt:
        display.warn("interrupted while reporting; run the task 'report' to write the report")


def write_report(
    summary: dict[str, Any],
    workdir: Path,
    console: Console,
    task_faults: faults.Faults,
    *,
    writable: bool = True,
) -> None:
    """Prints the table, and writes report.md, report.html, the figures and the trace.

    After a fault, which `task_faults` collects, the parts that do not depend on it are still
    written. Only the table is printed where the directory is not `writable`.
    """
    text = results.report(printable.markdown(summary))
    summary = printable.data(summary)
    with task_faults.during("writing the table"):
        if writable:
            runs.write_text(workdir / "report.md", text)
        console.print(results.terminal_table(summary))
    if (workdir / runs.PLACEMENT).exists():
        _print(console, f"placement: {workdir / runs.PLACEMENT}")
    if not writable:
        return
    details = _read_or_print(lambda: details_lib.read(workdir / details_lib.FILE), console)
    if details is not None:
        details = details_lib.printable(details)

    def required_details() -> details_lib.Details:
        if details is None:
            raise plots.NothingToDrawError(
                "no details.json: the run found no placement, or one of more than "
                f"{details_lib.MOST_OPS:,} operations"
            )
        return details

    drawings: dict[str, Callable[[], Any]] = {
        "placement": lambda: graph_plot.placement(required_details()),
        "timeline": lambda: timeline_plot.timeline(required_details()),
        "methods": lambda: method_plot.methods(summary["rows"]),
        "search": lambda: search_plot.search(metrics.read_metrics(workdir), summary["rows"]),
    }
    trace = workdir / "trace.json"
    trace.unlink(missing_ok=True)  # of an earlier run
    if details is not None:
        with task_faults.during("writing the trace"):
            runs.write_json(trace, traces.trace(details), indent=None)
    figures = _draw(drawings, workdir, console, task_faults)
    with task_faults.during("writing report.html"):
        _write_page(text, workdir, figures, console, details)


def write_comparison(
    summary: dict[str, Any],
    workdir: Path,
    console: Console,
    task_faults: faults.Faults,
    *,
    writable: bool = True,
) -> None:
    """Prints the tables of a comparison, and writes its report and comparison.csv.

    The arguments are those of `write_report`.
    """
    plain, summary = printable.data(summary), printable.markdown(summary)
    rows = summary["rows"]
    compared, aggregated = compare_rows(rows)
    logs = _read_or_print(lambda: _read_logs(workdir), console)
    singles_s: dict[str, float] = {}  # the best single device of each graph, as predicted
    for row in rows:
        if summaries.is_single(row) and row["predicted_s"] is not None:
            best_s = singles_s.get(row["graph"], math.inf)
            singles_s[row["graph"]] = min(best_s, row["predicted_s"])
    curves = learning_curves.summarise(logs or {}, singles_s)
    sections = [comparison.grid(compared).markdown(), aggregates.markdown(aggregated)]
    sections += [learning_curves.markdown(curves)] if curves.learned else []
    text = results.report(summary, {"Comparison": "\n\n".join(sections)})
    if writable:
        runs.write_text(workdir / "comparison.csv", comparison.to_csv(plain["rows"]))
        runs.write_text(workdir / "report.md", text)
    table, objective = compare_rows(plain["rows"])[0], summary["objective"]
    console.print(comparison.terminal_table(table, f"objective {objective}"))
    closing = verdict.closing_sentence(plain["rows"], objective)
    console.print(closing.replace("`", ""), markup=False)
    if not writable:
        return
    drawings = {"methods": lambda: method_plot.methods(plain["rows"])}
    figures = _draw(drawings, workdir, console, task_faults)
    for name in ("report.md", "comparison.csv"):
        _print(console, str(workdir / name))
    with task_faults.during("writing report.html"):
        _write_page(text, workdir, figures, console)


def compare_rows(
    rows: list[dict[str, Any]],
) -> tuple[comparison.Comparison, aggregates.Aggregates]:
    """Returns the comparison of rows with graph and seed, and aggregates over all graphs."""
    learners = _learners(rows)
    result = comparison.compare(rows, learners)
    return result, aggregates.aggregate(result, (*learners, "zero_shot", "search", "heft"))


def _learners(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(filter(learned.is_learned, dict.fromkeys(row["method"] for row in rows)))


def _draw(
    drawings: Mapping[str, Callable[[], Any]],
    workdir: Path,
    console: Console,
    task_faults: faults.Faults,
) -> list[Path]:
    """Saves the figures that can be drawn; says for each reason which ones cannot.

    Returns:
      The SVG files.
    """
    directory = runs.make_folder(workdir / "figures")
    saved, left_out = [], dict[str, list[str]]()
    for name, draw in drawings.items():
        for suffix in plots.SUFFIXES:  # of an earlier run
            (directory / f"{name}.{suffix}").unlink(missing_ok=True)
        with task_faults.during(f"drawing {name}"):
            try:
                plots.save(draw(), directory, name)
                saved.append(directory / f"{name}.svg")
            except (plots.NothingToDrawError, UserError) as error:
                left_out.setdefault(str(error), []).append(name)
    for reason, names in left_out.items():
        _print(console, f"no figure of {', '.join(names)}: {reason}")
    return saved


def _write_page(
    text: str,
    workdir: Path,
    figures: list[Path],
    console: Console,
    details: details_lib.Details | None = None,
) -> None:
    """Writes report.html from the report, the figures' files and the provenance."""
    provenance = {}
    for name in ("config.json", "environment.json"):
        if (workdir / name).exists():
            record = _read_or_print(functools.partial(_read_object, workdir / name), console)
            provenance[name] = json.dumps(printable.data(record or {}), indent=2)
    svgs = {path.stem.capitalize(): path.read_text("utf-8") for path in figures}
    runs.write_text(workdir / "report.html", html.page(text, svgs, details, provenance))
    _print(console, f"report: {workdir / 'report.html'}")


def _read_object(path: Path) -> dict[str, Any]:
    return files.read_json(path, {str: object}, remedy="run the task with this workdir again")


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _read_or_print(read: Callable[[], T], console: Console) -> T | None:
    """Reads a file; if that is impossible, prints the reason and returns None."""
    try:
        return read()
    except UserError as error:
        _print(console, f"left out: {error}")
        return None


def _read_logs(workdir: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the records of the comparison's learned searches, by graph.

    Raises:
      UserError: a file of a cell cannot be read.
    """
    logs: dict[str, list[dict[str, Any]]] = {}
    remedy = "compare with this workdir again"
    for cell in files.read_json(workdir / CELLS, _CELLS_SCHEMA, remedy=remedy):
        directory = workdir / cell["directory"]
        summary, records = runs.read_summary(directory), metrics.read_metrics(directory)
        learners = set(_learners(summary["rows"]))
        name = printable.markdown(cell["graph"])
        logs.setdefault(name, []).extend(r for r in records if r["method"] in learners)
    return logs
