"""Which files a run directory gets from a report, and what is said of the others."""

import json

import pytest
from rich.console import Console

from placement.pipeline import report
from placement.pipeline.console import faults
from placement.reporting import details, runs
from tests.reporting import drawn
from tests.reporting.rows import make_row

pytest.importorskip("matplotlib")

SUMMARY = {
    "graph": {"name": "diamond", "num_ops": 4, "num_edges": 4},
    **{"devices": ["CPU"], "objective": "serial", "starts": "single", "seed": 0, "best": "lns"},
    "rows": [make_row("single:CPU", 1.0, 1.1, 1.0), make_row("lns", 0.8, 0.9, 0.8)],
}


def write_report(workdir, capsys):
    """Writes the report; returns the lines printed below the table about figures."""
    with faults.raise_at_end() as task_faults:
        report.write_report(SUMMARY, workdir, Console(width=200), task_faults)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("no figure")]


def list_figures(workdir):
    return {path.name for path in (workdir / "figures").iterdir()}


def name_files(*figures):
    return {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")}


def test_complete_run_has_all_figures(tmp_path, capsys):
    record = {"method": "hsdag", "seed": 0, "step": 1, "evaluations": 1, "elapsed_s": 0.1}
    runs.append_jsonl(tmp_path / "metrics.jsonl", record | {"best_s": 1.0})
    details.write(tmp_path / "details.json", drawn.diamond())
    assert write_report(tmp_path, capsys) == []
    assert list_figures(tmp_path) == name_files("placement", "timeline", "methods", "search")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 8
    page = (tmp_path / "report.html").read_text()
    assert all(f'alt="{name}"' in page for name in ("Placement", "Timeline", "Methods", "Search"))


def test_missing_files_are_named_once(tmp_path, capsys):
    (tmp_path / "figures").mkdir()
    for name in ("figures/placement.svg", "figures/placement.png", "trace.json"):
        (tmp_path / name).write_text("of an earlier command")
    lines = write_report(tmp_path, capsys)
    assert len(lines) == 2
    assert lines[0].startswith("no figure of placement, timeline: no details.json")
    assert lines[1] == "no figure of search: the search left no metrics to plot"
    assert list_figures(tmp_path) == name_files("methods")
    assert not (tmp_path / "trace.json").exists()
