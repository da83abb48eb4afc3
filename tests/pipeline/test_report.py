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
    """Writes the report; returns what it prints."""
    with faults.raise_at_end() as task_faults:
        report.write_report(SUMMARY, workdir, Console(width=200), task_faults)
    return capsys.readouterr().out


def list_figures(workdir):
    return {path.name for path in (workdir / "figures").iterdir()}


def name_files(*figures):
    return {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")}


def test_complete_run_has_all_figures(tmp_path, capsys):
    record = {"method": "hsdag", "seed": 0, "step": 1, "evaluations": 1, "elapsed_s": 0.1}
    runs.append_jsonl(tmp_path / "metrics.jsonl", record | {"best_s": 1.0})
    details.write(tmp_path / "details.json", drawn.diamond())
    measuring = {"busy": "other programs took 22%"}
    environment = {"command": "placement place a", "date": "2026-01-01", "measuring": measuring}
    runs.write_json(tmp_path / "environment.json", environment)
    runs.write_json(tmp_path / "advice.json", {"advice": ["A search may gain *much*."]})
    step = f"placement deploy {tmp_path} writes a folder that placement.load runs"
    assert f"next: {step}\n" in write_report(tmp_path, capsys)
    text = (tmp_path / "report.md").read_text()
    assert "- command: `placement place a`\n- date: 2026-01-01\n" in text
    assert "> The machine was busy while measuring (other programs took 22%)" in text
    assert "## Advice before the search\n\nA search may gain \\*much" in text
    assert list_figures(tmp_path) == name_files("timeline", "methods", "search")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 8
    page = (tmp_path / "report.html").read_text()
    assert all(f'alt="{name}"' in page for name in ("Timeline", "Methods", "Search"))


def test_figures_need_something_to_draw(tmp_path, capsys):
    (tmp_path / "figures").mkdir()
    for name in ("figures/timeline.svg", "figures/timeline.png", "trace.json"):
        (tmp_path / name).write_text("of an earlier command")
    assert "figure" not in write_report(tmp_path, capsys).replace(str(tmp_path), "")
    assert list_figures(tmp_path) == name_files("methods")
    assert not (tmp_path / "trace.json").exists()
