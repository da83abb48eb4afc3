"""Which figures a run directory gets, and what is said of the others."""

import json
import sys

import pytest
from rich.console import Console

from placement.pipeline.console import faults
from placement.pipeline.results import figures
from placement.pipeline.tasks import report
from placement.reporting import details, runs
from placement.reporting.figures import scatter_plots
from tests.reporting import drawn

pytest.importorskip("matplotlib")


def _row(method, predicted_s, median=None):
    measured = median and {"median": median, "low": median, "high": median, "n": 9}
    return {
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": measured,
        "versus_best_single_device": predicted_s,
        "bound_s": 0.5,
        "status": "finished",
    }


def _summary():
    return {
        "graph": {"name": "diamond", "num_ops": 4, "num_edges": 4},
        "objective": "serial",
        "rows": [_row("single:CPU", 1.0, 1.1), _row("lns", 0.8, 0.9)],
        "best": "lns",
    }


def _console(capsys):
    def lines():
        return capsys.readouterr().out.splitlines()

    return Console(width=200), lines


def _draw(summary, workdir, console):
    with faults.raise_at_end() as kept:
        figures.draw_run(summary, workdir, details.read(workdir / details.FILE), console, kept)


def _drawn(workdir):
    return {path.name for path in (workdir / "figures").iterdir()}


def _both(*names):
    return {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}


def test_a_run_that_knows_everything_gets_every_figure_and_a_trace(tmp_path, capsys):
    console, lines = _console(capsys)
    record = {"method": "hsdag", "seed": 0, "step": 1, "evaluations": 1, "elapsed_s": 0.1}
    runs.append_jsonl(tmp_path / "metrics.jsonl", record | {"best_s": 1.0})
    details.write(tmp_path / "details.json", drawn.diamond())
    _draw(_summary(), tmp_path, console)
    names = ("latencies", "search", "errors", "placement", "timeline", "loads")
    assert _drawn(tmp_path) == _both(*names)
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 8
    assert lines() == []


def test_an_older_run_gets_what_it_knows_and_each_reason_once(tmp_path, capsys):
    """Figures that an earlier command drew, and this one cannot draw, do not stay."""
    console, lines = _console(capsys)
    (tmp_path / "figures").mkdir()
    for name in ("figures/placement.svg", "figures/placement.png", "trace.json"):
        (tmp_path / name).write_text("of an earlier command")
    _draw(_summary(), tmp_path, console)
    assert _drawn(tmp_path) == _both("latencies", "errors")
    said = lines()
    assert len(said) == 2
    assert said[0].startswith("no figure of placement, timeline, loads: no details.json")
    assert said[1] == "no figure of search: the search left no metrics to plot"
    assert not (tmp_path / "trace.json").exists()


def test_without_matplotlib_one_line_names_the_extra_and_the_trace_is_written(
    tmp_path, capsys, monkeypatch
):
    console, lines = _console(capsys)
    details.write(tmp_path / "details.json", drawn.diamond())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _draw(_summary(), tmp_path, console)
    missing = [line for line in lines() if "pip install -e '.[plots]'" in line]
    assert len(missing) == 1
    assert "placement, timeline, loads, latencies, errors" in missing[0]
    assert _drawn(tmp_path) == set()
    assert (tmp_path / "trace.json").exists()


def test_a_comparison_and_a_calibration_have_figures(tmp_path, capsys):
    console, lines = _console(capsys)
    summary = _summary()
    rows = [
        row | {"graph": g, "seed": 0, "search_s": 0.0}
        for g in ("a", "b:c=1")
        for row in summary["rows"]
    ]
    kept = faults.Faults()
    over_all = report.compare_rows(rows)[1]
    found = figures.draw_comparison(rows, over_all, ["hsdag"], tmp_path, console, kept)
    samples = [scatter_plots.Pair("contiguous", x, 1.1 * x) for x in (0.1, 0.2)]
    drawings = {"errors": lambda: scatter_plots.errors(samples, "diamond")}
    figures.write(drawings, tmp_path, console, kept)
    kept.raise_all()
    names = ("ratios", "profiles")
    assert _drawn(tmp_path) == _both(*names, "errors") | {f"{name}.pdf" for name in names}
    assert [path.stem for path in found] == [*names]
    assert lines() == []
