"""`--task=compare`: which methods run with which seeds, and what is said over all runs."""

import dataclasses
import importlib.util
import json
import math
import shutil
from pathlib import Path

import pytest

from placement.pipeline import compare
from placement.pipeline.settings import Settings
from placement.reporting.tables import comparison
from tests.experiments.command import check_summary, run

_GRAPHS = "synthetic:family=layered,ops=12,seed=1", "synthetic:family=series_parallel,ops=12,seed=2"


# As many evaluations as devices let every learned method be made and start, but take no step, which
# it would have to compile for seconds.
_NO_STEP = ("--config.budget=3", "--config.time_limit_s=1")
# Methods of the audit that run with all graphs and seeds here: some of each kind.
_SOME = ("hsdag:variant=released", "search", "heft", "lns")


@pytest.mark.slow
def test_statistics_cover_all_runs(tmp_path: Path) -> None:
    flags = [f"--config.graphs={','.join(_GRAPHS)}", f"--config.methods={','.join(_SOME)}"]
    flags += ["--config.seeds=2", *_NO_STEP]
    code, _, err = run(
        tmp_path, "--task=compare", *flags, config="configs/simulate.py", plots=True, limit_s=480.0
    )
    assert code == 0, err
    summary = check_summary(tmp_path)
    told, own = summary["statistics"], {row["method"] for row in summary["rows"]}
    assert set(told["graphs"]) == set(_GRAPHS)
    latencies_s = {
        graph: [row["predicted_s"] or math.inf for row in summary["rows"] if row["graph"] == graph]
        for graph in _GRAPHS
    }
    assert {g: of["best_s"] for g, of in told["graphs"].items()} == {
        graph: min(of_graph) for graph, of_graph in latencies_s.items()
    }
    singles = {method for method in own if method.startswith("single:")}
    for scope in told["scopes"].values():
        assert set(scope["means"]) == (own - singles) | {comparison.SINGLE}
        values = {m: mean["value"] for m, mean in scope["means"].items()}
        assert min(filter(None, values.values())) >= 1
        assert values["hsdag:variant=released"] is None  # takes no step here, and knows nothing
        assert {"search", "heft"} <= set(scope["ratios"])
        assert "lns" not in scope["ratios"]
    for suffix in ("png", "svg"):
        assert (tmp_path / f"figures/methods.{suffix}").stat().st_size > 0
    page = (tmp_path / "report.html").read_text()
    assert '<img alt="Methods"' in page
    text = (tmp_path / "report.md").read_text()
    assert "### Methods over all runs" in text
    assert "<h3>Methods over all runs</h3>" in page


def test_measured_methods_repeat(tmp_path):
    settings = Settings(evaluate="simulate", methods="heft,random", seeds=2, graphs=_GRAPHS[0])
    simulated = compare._cells(settings, tmp_path, ("heft", "random"), ())
    assert [cell.methods for cell in simulated] == [("heft", "random"), ("random",)]
    settings = dataclasses.replace(settings, evaluate="simulate+verify")
    measured = compare._cells(settings, tmp_path, ("heft", "random"), ())
    assert {cell.methods for cell in measured} == {("heft", "random")}


def _nothing_installed() -> None:
    """As on a machine without Scotch and without the extra `solvers`."""
    find_spec = importlib.util.find_spec
    extra = ("pymetis", "ortools")
    importlib.util.find_spec = lambda name: None if name in extra else find_spec(name)
    shutil.which = lambda *_, **__: None


def test_missing_methods_are_left_out(tmp_path):
    flags = ["--task=compare", f"--config.graphs={','.join(_GRAPHS)}", *_NO_STEP]
    flags += ["--config.seeds=1", "--config.devices=roofline:cpu,gpu,gpu"]
    flags += ["--config.objective=makespan"]
    several = "--config.methods=human_expert,scotch,min_cut,cpsat,heft"
    code, out, err = run(tmp_path, *flags, several, broken=_nothing_installed)
    assert code == 0, err
    for line in (
        "without scotch: scotch is not installed",
        "without min_cut: pymetis is not installed; pip install pymetis, or the extra 'solvers'",
        "without cpsat: ortools is not installed",
    ):
        assert (out + err).count(line) == 1, line
    methods = {row["method"] for row in check_summary(tmp_path)["rows"]}
    assert {"human_expert", "heft"} <= methods
    assert not methods & {"scotch", "min_cut", "cpsat"}
    # What is installed later makes the cells run again.
    finished = json.loads(next(tmp_path.rglob("asked.json")).read_text())
    assert "scotch" not in finished["methods"]
