"""The `report` task: table, report.md, report.html and figures from a run directory."""

import json
import math
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console

from experiments import faults, figures, learned, progress
from placement.errors import UserError
from placement.reporting import (
    comparison,
    details,
    html,
    learning_curves,
    printable,
    published,
    runs,
    tables,
)

CELLS = "cells.json"  # the run directories that a comparison consists of
_PUBLISHED = Path(__file__).parent.parent / "third_party" / "published"


def run(
    config: ConfigDict | None, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Reports again on a finished run, whatever the configuration.

    Raises:
      UserError: the run directory holds no readable summary.json.
    """
    path = workdir / "summary.json"
    try:
        summary = json.loads(path.read_text())
    except OSError as error:
        raise UserError(
            f"no summary.json in {str(workdir)!r}; run --task=place with this --workdir first"
        ) from error
    with faults.told_last() as kept:
        if "graph" in summary["rows"][0]:
            write_comparison(summary, workdir, display.console, kept)
        else:
            write(summary, workdir, display.console, kept)
    return summary


def write(summary: dict[str, Any], workdir: Path, console: Console, kept: faults.Faults) -> None:
    """Prints the table; writes the reports, figures as far as they can be drawn, and the trace.

    After a fault whatever does not need what failed is written still.
    """
    summary = printable.data(summary)
    with kept.during("writing the table"):
        runs.write_text(workdir / "report.md", tables.report_markdown(summary))
        console.print(tables.rich_table(summary))
    placed = workdir / "placement.json"
    if placed.exists():
        console.print(f"placement: {placed}", markup=False, soft_wrap=True)
    found = details.read(workdir / details.FILE)
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
    named = dict.fromkeys(row["method"] for row in rows)
    learners = tuple(filter(learned.is_learned, named))
    found = comparison.compare(rows, learners)
    curves = learning_curves.summarise(_logs(workdir), _single_s(rows))
    beside = published.pair(published.read(_PUBLISHED), rows, summary["objective"])
    parts = [f"# Comparison, objective {summary['objective']}", comparison.markdown(found)]
    parts += [learning_curves.markdown(curves)] if curves.learned else []
    parts += [*map(published.markdown, beside), tables.report_markdown(summary)]
    runs.write_text(workdir / "comparison.csv", comparison.to_csv(rows))
    runs.write_text(workdir / "report.md", "\n\n".join(parts))
    console.print(comparison.rich_table(found, f"objective {summary['objective']}"))
    for line in learning_curves.verdict(curves):
        console.print(line, markup=False)
    if beside:
        console.print("how they learned, and published figures beside ours: report.md")
    drawn = figures.of_comparison(rows, learners, workdir, console, kept)
    for name in ("report.md", "comparison.csv"):
        console.print(str(workdir / name), markup=False, soft_wrap=True)
    with kept.during("writing report.html"):
        _write_page(summary, workdir, drawn, console, {"Comparison": "\n\n".join(parts[1:-1])})


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
    text = html.page(
        summary,
        details=known,
        figures={_caption(path): path.read_text("utf-8") for path in drawn},
        notes=notes,
        provenance={
            path.stem.capitalize(): printable.data(json.loads(path.read_text())) for path in from_
        },
    )
    runs.write_text(page, text)
    console.print(f"report: {page}", markup=False, soft_wrap=True)


def _caption(figure: Path) -> str:
    return figure.stem.replace("-", " ").capitalize()


def _logs(workdir: Path) -> dict[str, list[dict[str, Any]]]:
    """What the learned searches of the comparison's cells logged, by graph."""
    logs: dict[str, list[dict[str, Any]]] = {}
    for cell in json.loads((workdir / CELLS).read_text()):
        directory = workdir / cell
        summary = json.loads((directory / "summary.json").read_text())
        wanted = {row["method"] for row in summary["rows"]}
        records = runs.read_jsonl(directory / "metrics.jsonl")
        of_graph = logs.setdefault(printable.text(summary["graph"]["name"]), [])
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
        if row["method"].startswith("single:") and row["predicted_s"] is not None:
            found[row["graph"]] = min(found.get(row["graph"], math.inf), row["predicted_s"])
    return found
