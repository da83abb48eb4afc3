"""The `report` task: table, report.md, report.html and figures from a run directory."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from experiments.reproduction import published
from placement import files
from placement.errors import UserError
from placement.methods import learned
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.results import figures
from placement.pipeline.settings import Settings
from placement.reporting import details, printable, runs, words
from placement.reporting.page import html
from placement.reporting.tables import aggregates, comparison, learning_curves, results

CELLS = "cells.json"  # the run directories that a comparison consists of, and their graphs
# In a comparison of an earlier version, directories alone: each graph had a name of its own.
_CELLS = [({"directory": str, "graph": str}, str)]
# What learned methods are set against one by one, beside each other.
_BESIDE_LEARNERS = ("zero_shot", "search", "heft")
T = TypeVar("T")
PUBLISHED = Path(__file__).parents[2] / "third_party" / "published"


def run(
    settings: Settings | None, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Reports again on a finished run, whatever the configuration.

    Raises:
      UserError: the run directory holds no readable summary.json.
    """
    summary = runs.read_summary(workdir)
    with faults.told_last() as kept:
        if "graph" in summary["rows"][0]:
            write_comparison(summary, workdir, display.console, kept)
        else:
            write(summary, workdir, display.console, kept)
    return summary


@contextlib.contextmanager
def reporting(kept: faults.Faults, display: progress.Display) -> Iterator[None]:
    """Within it what goes wrong, or Ctrl-C, ends the report alone: what it is of is written."""
    try:
        with kept.during("reporting"):
            yield
    except KeyboardInterrupt:
        display.warn("interrupted while reporting; --task=report reports again")


def write(summary: dict[str, Any], workdir: Path, console: Console, kept: faults.Faults) -> None:
    """Prints the table; writes the reports, figures as far as they can be drawn, and the trace.

    After a fault whatever does not need what failed is written still.
    """
    summary = printable.data(summary)
    with kept.during("writing the table"):
        runs.write_text(workdir / "report.md", results.report_markdown(summary))
        words.show(results.rich_table(summary), console)
    placed = workdir / runs.PLACEMENT
    if placed.exists():
        console.print(f"placement: {placed}", markup=False, soft_wrap=True)
    found = _or_said(lambda: details.read(workdir / details.FILE), console)
    known = found and details.printable(found)
    drawn = figures.of_run(summary, workdir, known, console, kept)
    with kept.during("writing report.html"):
        _write_page(summary, workdir, drawn, console, known=known)


def write_comparison(
    summary: dict[str, Any], workdir: Path, console: Console, kept: faults.Faults
) -> None:
    """Prints the table over graphs and seeds, and how learned methods learned; writes report.md."""
    summary = printable.data(summary)
    rows = summary["rows"]
    learners = _learners(rows)
    found, over_all = compared(rows)
    logs = _or_said(lambda: _logs(workdir), console)
    curves = learning_curves.summarise(logs or {}, _single_s(rows))
    beside = published.pair(published.read(PUBLISHED), rows, summary["objective"])
    parts = [f"# Comparison, objective {summary['objective']}", comparison.markdown(found)]
    parts.append(aggregates.markdown(over_all))
    parts += [learning_curves.markdown(curves)] if curves.learned else []
    parts += [*map(published.markdown, beside), results.report_markdown(summary)]
    runs.write_text(workdir / "comparison.csv", comparison.to_csv(rows))
    runs.write_text(workdir / "report.md", "\n\n".join(parts))
    words.show(comparison.rich_table(found, f"objective {summary['objective']}"), console)
    for line in learning_curves.verdict(curves):
        console.print(line, markup=False)
    if beside:
        console.print("how they learned, and published figures beside ours: report.md")
    drawn = figures.of_comparison(rows, over_all, learners, workdir, console, kept)
    for name in ("report.md", "comparison.csv"):
        console.print(str(workdir / name), markup=False, soft_wrap=True)
    with kept.during("writing report.html"):
        _write_page(summary, workdir, drawn, console, {"Comparison": "\n\n".join(parts[1:-1])})


def compared(
    rows: list[dict[str, Any]],
) -> tuple[comparison.Comparison, aggregates.Aggregates]:
    """Returns what rows with graph and seed say of each graph, and over all of them."""
    found = comparison.compare(rows, _learners(rows))
    return found, aggregates.aggregate(found, (*_learners(rows), *_BESIDE_LEARNERS))


def _learners(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(filter(learned.is_learned, dict.fromkeys(row["method"] for row in rows)))


def _write_page(
    summary: dict[str, Any],
    workdir: Path,
    drawn: list[Path],
    console: Console,
    notes: dict[str, str] | None = None,
    known: details.Details | None = None,
) -> None:
    """Writes report.html of what the run directory holds."""
    page = workdir / "report.html"
    from_ = [p for p in (workdir / "config.json", workdir / "environment.json") if p.exists()]
    remedy = "run the task with this --workdir again"
    of_any = functools.partial(files.read_json, schema={str: object}, remedy=remedy)
    read = {p: _or_said(functools.partial(of_any, p), console) for p in from_}
    text = html.page(
        summary,
        details=known,
        figures={_caption(path): path.read_text("utf-8") for path in drawn},
        notes=notes,
        provenance={
            path.stem.capitalize(): printable.data(told) for path, told in read.items() if told
        },
    )
    runs.write_text(page, text)
    console.print(f"report: {page}", markup=False, soft_wrap=True)


def _or_said(read: Callable[[], T], console: Console) -> T | None:
    """Reads, or says in a line why it cannot, and returns None."""
    try:
        return read()
    except UserError as error:
        console.print(f"left out: {error}", markup=False, soft_wrap=True)
        return None


def _caption(figure: Path) -> str:
    return figure.stem.replace("-", " ").capitalize()


def _logs(workdir: Path) -> dict[str, list[dict[str, Any]]]:
    """What the learned searches of the comparison's cells logged, by graph.

    Raises:
      UserError: a file of a cell cannot be read.
    """
    logs: dict[str, list[dict[str, Any]]] = {}
    remedy = "run --task=compare with this --workdir again"
    for cell in files.read_json(workdir / CELLS, _CELLS, remedy=remedy):
        cell = cell if isinstance(cell, dict) else {"directory": cell}
        directory = workdir / cell["directory"]
        summary, records = runs.read_summary(directory), metrics.read(directory)
        wanted = {row["method"] for row in summary["rows"]}
        name = printable.text(cell.get("graph", summary["graph"]["name"]))
        of_graph = logs.setdefault(name, [])
        of_graph += (
            record
            for record in records
            if record["method"] in wanted and learned.is_learned(record["method"])
        )
    return logs


def _single_s(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The best single device of every graph, as searches evaluate it."""
    found: dict[str, float] = {}
    for row in rows:
        if results.is_single(row) and row["predicted_s"] is not None:
            found[row["graph"]] = min(found.get(row["graph"], math.inf), row["predicted_s"])
    return found
