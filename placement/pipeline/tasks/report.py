"""The `report` task: table, report.md, report.html and figures of a finished run."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from placement import files
from placement.errors import UserError
from placement.methods import learned
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.results import figures
from placement.pipeline.settings import Settings
from placement.reporting import details, printable, runs, summaries, verdict, wrapped_text
from placement.reporting.page import html
from placement.reporting.tables import (
    aggregates,
    comparison,
    divisions,
    learning_curves,
    results,
    unsupported,
)

CELLS = "cells.json"  # the run directories that a comparison consists of, and their graphs
# An earlier version wrote the directories alone: each graph then had a unique name.
_CELLS_SCHEMA = [({"directory": str, "graph": str}, str)]
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
    summary = printable.data(summary)
    with task_faults.during("writing the table"):
        if writable:
            text = results.report_markdown(printable.markdown(summary))
            runs.write_text(workdir / "report.md", text)
        wrapped_text.print_table(results.rich_table(summary), console)
    placement_file = workdir / runs.PLACEMENT
    if placement_file.exists():
        console.print(f"placement: {placement_file}", markup=False, soft_wrap=True)
    if not writable:
        return
    run_details = _read_or_print(lambda: details.read(workdir / details.FILE), console)
    if run_details is not None:
        run_details = details.printable(run_details)
    figure_files = figures.draw_run(summary, workdir, run_details, console, task_faults)
    with task_faults.during("writing report.html"):
        notes = {}
        if summary.get("unsupported"):
            notes[unsupported.TITLE] = unsupported.markdown(
                printable.markdown(summary["unsupported"])
            )
        if summary.get("divisions"):
            notes[divisions.TITLE] = divisions.markdown(printable.markdown(summary["divisions"]))
        _write_page(summary, workdir, figure_files, console, notes, run_details)


def write_comparison(
    summary: dict[str, Any],
    workdir: Path,
    console: Console,
    task_faults: faults.Faults,
    *,
    writable: bool = True,
) -> None:
    """Prints the tables of a comparison, and writes its report, comparison.csv and comparison.tex.

    The arguments are those of `write_report`.
    """
    plain = printable.data(summary)
    summary = printable.markdown(summary)  # also for the terminal: few names change
    rows = summary["rows"]
    compared_rows, aggregated = compare_rows(rows)
    logs = _read_or_print(lambda: _read_logs(workdir), console)
    singles_s: dict[str, float] = {}  # the best single device of each graph, as predicted
    for row in rows:
        if summaries.is_single(row) and row["predicted_s"] is not None:
            best_s = singles_s.get(row["graph"], math.inf)
            singles_s[row["graph"]] = min(best_s, row["predicted_s"])
    curves = learning_curves.summarise(logs or {}, singles_s)
    closing = verdict.closing_sentence(rows, summary["objective"])
    sections = [comparison.markdown(compared_rows), aggregates.markdown(aggregated)]
    sections += [learning_curves.markdown(curves)] if curves.learned else []
    if writable:
        title = f"# Comparison, objective {summary['objective']}"
        parts = [title, closing, *sections, results.report_markdown(summary)]
        runs.write_text(workdir / "comparison.csv", comparison.to_csv(plain["rows"]))
        runs.write_text(
            workdir / "comparison.tex", comparison.latex(compare_rows(plain["rows"])[0])
        )
        runs.write_text(workdir / "report.md", "\n\n".join(parts))
    wrapped_text.print_table(
        comparison.rich_table(compared_rows, f"objective {summary['objective']}"), console
    )
    if curves.learned:
        console.print(learning_curves.verdict(curves), markup=False)
    plain_closing = verdict.closing_sentence(plain["rows"], summary["objective"])
    console.print(plain_closing.replace("`", ""), markup=False)
    if not writable:
        return
    figure_files = figures.draw_comparison(
        rows, aggregated, _learners(rows), workdir, console, task_faults
    )
    for name in ("report.md", "comparison.csv", "comparison.tex"):
        console.print(str(workdir / name), markup=False, soft_wrap=True)
    with task_faults.during("writing report.html"):
        _write_page(summary, workdir, figure_files, console, {"Comparison": "\n\n".join(sections)})


def compare_rows(
    rows: list[dict[str, Any]],
) -> tuple[comparison.Comparison, aggregates.Aggregates]:
    """Returns the comparison of rows with graph and seed, and aggregates over all graphs."""
    learners = _learners(rows)
    result = comparison.compare(rows, learners)
    return result, aggregates.aggregate(result, (*learners, "zero_shot", "search", "heft"))


def _learners(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(filter(learned.is_learned, dict.fromkeys(row["method"] for row in rows)))


def _write_page(
    summary: dict[str, Any],
    workdir: Path,
    figure_files: list[Path],
    console: Console,
    notes: dict[str, str] | None = None,
    run_details: details.Details | None = None,
) -> None:
    """Writes report.html from the results, the figures' files and the provenance."""
    provenance = {}
    for name in ("config", "environment"):
        path = workdir / f"{name}.json"
        if path.exists():
            read = functools.partial(
                files.read_json,
                *(path, {str: object}),
                remedy="run the task with this workdir again",
            )
            if data := _read_or_print(read, console):
                provenance[name.capitalize()] = printable.data(data)
    page = workdir / "report.html"
    text = html.page(
        summary,
        details=run_details,
        figures={
            path.stem.replace("-", " ").capitalize(): path.read_text("utf-8")
            for path in figure_files
        },
        notes=notes,
        provenance=provenance,
    )
    runs.write_text(page, text)
    console.print(f"report: {page}", markup=False, soft_wrap=True)


def _read_or_print(read: Callable[[], T], console: Console) -> T | None:
    """Reads a file; if that is impossible, prints the reason and returns None."""
    try:
        return read()
    except UserError as error:
        console.print(f"left out: {error}", markup=False, soft_wrap=True)
        return None


def _read_logs(workdir: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the records of the comparison's learned searches, by graph.

    Raises:
      UserError: a file of a cell cannot be read.
    """
    logs: dict[str, list[dict[str, Any]]] = {}
    remedy = "compare with this workdir again"
    for cell in files.read_json(workdir / CELLS, _CELLS_SCHEMA, remedy=remedy):
        cell = cell if isinstance(cell, dict) else {"directory": cell}
        directory = workdir / cell["directory"]
        summary, records = runs.read_summary(directory), metrics.read_metrics(directory)
        learners = set(_learners(summary["rows"]))
        name = printable.markdown(cell.get("graph", summary["graph"]["name"]))
        logs.setdefault(name, []).extend(r for r in records if r["method"] in learners)
    return logs
