"""The `report` task: table, report.md and figures from a run directory's summary."""

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console

from placement.reporting import plots, runs, tables


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Reports again on a finished run.

    Raises:
      ValueError: the run directory holds no readable summary.json.
    """
    path = workdir / "summary.json"
    try:
        summary = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(
            f"no summary.json in {str(workdir)!r}; run --task=place with this --workdir first"
        ) from error
    write(summary, workdir, Console())
    return summary


def write(summary: dict[str, Any], workdir: Path, console: Console) -> None:
    """Prints the table; writes report.md and, where matplotlib is installed, the figures."""
    runs.write_text(workdir / "report.md", tables.report_markdown(summary))
    console.print(tables.rich_table(summary))
    placed = workdir / "placement.json"
    if placed.exists():
        console.print(f"placement: {placed}", markup=False, soft_wrap=True)
    figures = workdir / "figures"
    metrics = workdir / "metrics.jsonl"
    try:
        figures.mkdir(exist_ok=True)
        plots.plot_latencies(summary, figures / "latencies.png")
        if metrics.exists():
            plots.plot_search(runs.read_jsonl(metrics), figures / "search.png")
    except ValueError as error:
        console.print(f"no figures: {error}", markup=False, soft_wrap=True)
