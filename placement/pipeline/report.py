"""The `report` task: table, report.md, report.html and figures of a finished run."""

import contextlib
import functools
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console

from placement import files, methods
from placement.errors import UserError
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.results import advice
from placement.pipeline.settings import Settings
from placement.reporting import details as details_lib
from placement.reporting import printable, runs, verdict
from placement.reporting.figures import plots
from placement.reporting.page import html
from placement.reporting.tables import comparison, results

CELLS = "cells.json"  # the run directories that a comparison consists of, and their graphs
T = TypeVar("T")


def run(
    settings: Settings | None, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Reports again on a finished run, whatever the configuration."""
    summary = runs.read_summary(workdir)
    report = write_comparison if "statistics" in summary else write_report
    with faults.raise_at_end() as task_faults:
        report(summary, workdir, display.console, task_faults)
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
    summary: dict[str, Any], workdir: Path, console: Console, task_faults: faults.Faults
) -> None:
    """Prints the table, and writes report.md, report.html, the figures and the trace.

    After a fault, which `task_faults` collects, the parts that do not depend on it are still
    written.
    """
    facts, warnings, sections = _read_context(workdir, console)
    shown_workdir = printable.markdown(shlex.quote(str(workdir)))
    step = verdict.next_step(verdict.decide(summary["rows"]), shown_workdir)
    facts = {"next": step} | facts
    text = results.report(printable.markdown(summary), sections, facts=facts, warnings=warnings)
    summary = printable.data(summary)
    with task_faults.during("writing the table"):
        console.print(results.terminal_table(summary))
        runs.write_text(workdir / "report.md", text)
        _print(console, f"next: {step.replace('`', '')}")
    details = _read_or_print(lambda: details_lib.read(workdir / details_lib.FILE), console)

    def draw_timeline() -> Any:
        if details is None or len(np.unique(details.placement)) == 1:
            raise plots.NothingToDrawError("no placement on several devices")
        return plots.timeline(details)

    drawings: dict[str, Callable[[], Any]] = {
        "timeline": draw_timeline,
        "methods": lambda: plots.methods(summary["rows"]),
        "search": lambda: plots.search(metrics.read_metrics(workdir), summary["rows"]),
    }
    with task_faults.during("writing the trace"):
        (workdir / "trace.json").unlink(missing_ok=True)  # of an earlier run
        if details is not None:
            runs.write_json(workdir / "trace.json", details_lib.trace(details), indent=None)
    _write_page(text, workdir, drawings, console, task_faults, details)


def write_comparison(
    summary: dict[str, Any], workdir: Path, console: Console, task_faults: faults.Faults
) -> None:
    """Prints the tables of a comparison, and writes its report and comparison.csv.

    The arguments are those of `write_report`.
    """
    plain, summary = printable.data(summary), printable.markdown(summary)
    facts, warnings, sections = _read_context(workdir, console)
    if len(plain["rows"]) == len({row["method"] for row in plain["rows"]}):  # one graph and seed
        console.print(results.terminal_table(plain))
    else:
        table = comparison.compare(plain["rows"], _learners(plain["rows"]))
        title = f"objective {plain['objective']}; starts: {plain['starts']}"
        console.print(comparison.terminal_table(table, title))
        for sentence in verdict.sentences(plain["rows"], plain["objective"]):
            console.print(sentence.replace("`", ""), markup=False)
        compared = comparison.compare(summary["rows"], _learners(summary["rows"]))
        statistics = comparison.write_statistics(summary["statistics"])
        sections["Comparison"] = f"{comparison.grid(compared).markdown()}\n\n{statistics}"
    text = results.report(summary, sections, facts=facts, warnings=warnings)
    for name, content in (
        ("report.md", text),
        ("comparison.csv", comparison.to_csv(plain["rows"])),
    ):
        runs.write_text(workdir / name, content)
        _print(console, str(workdir / name))
    drawings: dict[str, Callable[[], Any]] = {"methods": lambda: plots.methods(plain["rows"])}
    for graph, records in (_read_or_print(lambda: _read_logs(workdir), console) or {}).items():
        rows = [row for row in plain["rows"] if row["graph"] == graph]
        drawings[f"search: {graph}"] = functools.partial(plots.search, records, rows)
    _write_page(text, workdir, drawings, console, task_faults)


def aggregate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the statistics of rows with graph and seed, as `comparison.aggregate` does."""
    learners = _learners(rows)
    compared = comparison.compare(rows, learners)
    return comparison.aggregate(compared, (*learners, "zero_shot", "search", "heft"))


def _learners(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(filter(methods.is_learned, dict.fromkeys(row["method"] for row in rows)))


def _write_page(
    text: str,
    workdir: Path,
    drawings: Mapping[str, Callable[[], Any]],
    console: Console,
    task_faults: faults.Faults,
    details: details_lib.Details | None = None,
) -> None:
    """Saves the figures that can be drawn, and writes report.html with them and the provenance."""
    svgs = {}
    names = {title: runs.file_name(title.replace(": ", "-")) for title in drawings}
    earlier = [f"{name}.{suffix}" for name in names.values() for suffix in plots.SUFFIXES]
    files.remove_files(workdir / "figures", earlier)
    directory = runs.make_folder(workdir / "figures")
    for title, draw in drawings.items():
        with task_faults.during(f"drawing {title}"):
            try:
                svgs[title[0].upper() + title[1:]] = plots.save(draw(), directory, names[title])
            except plots.NothingToDrawError:
                pass
            except UserError as error:  # without matplotlib, for one
                _print(console, f"without figures: {error}")
                break
    provenance = {
        name: printable.lines((workdir / name).read_text("utf-8", "replace"))
        for name in ("config.json", "environment.json")
        if (workdir / name).is_file()
    }
    with task_faults.during("writing report.html"):
        runs.write_text(workdir / "report.html", html.page(text, svgs, details, provenance))
        _print(console, f"report: {workdir / 'report.html'}")


def _read_context(
    workdir: Path, console: Console
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Returns, in Markdown, command and date of a run, warnings, and the section of the advice."""

    def read(name: str) -> dict[str, Any]:
        read_it = functools.partial(files.read_json, schema={str: object}, remedy="place again")
        exists = (workdir / name).exists()
        content = _read_or_print(lambda: read_it(workdir / name), console) if exists else {}
        return printable.markdown(content or {})

    environment, advised = read("environment.json"), read(advice.FILE).get("advice")
    command = environment.get("command")
    facts = {"command": f"`{command}`", "date": environment["date"]} if command else {}
    warnings = [
        f"The machine was busy while {work} ({busy}), so times are unreliable."
        for work in ("profiling", "measuring")
        if (busy := environment.get(work, {}).get("busy"))
    ]
    return facts, warnings, {"Advice before the search": "\n\n".join(advised)} if advised else {}


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
    """Returns the records of a comparison's learned searches, by graph."""
    logs: dict[str, list[dict[str, Any]]] = {}
    schema, remedy = [{"directory": str, "graph": str}], "compare with this workdir again"
    for cell in files.read_json(workdir / CELLS, schema, remedy=remedy):
        for record in metrics.read_metrics(workdir / cell["directory"]):
            if methods.is_learned(record["method"]):
                logs.setdefault(printable.lines(cell["graph"]), []).append(record)
    return logs
