"""Graphs in a comparison: the same file is one, another is another, whatever they are called."""

import json
import shutil
from pathlib import Path

import pytest

from placement.pipeline import graph_labels
from tests.experiments.command import run
from tests.pipeline import test_solve

FLAGS = ("--task=compare", "--config.objective=max_load", "--config.methods=topological")


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        (["/a/m.onnx", "/b/m.onnx", "b/k.onnx"], ["/a/m.onnx", "/b/m.onnx", "k"]),
        (["a/m.onnx", "a_m.onnx"], ["m", "a_m"]),
        (["/w.json:parts=1", "/w.json"], ["/w.json:parts=1", "/w.json"]),
        (["bert:layers=2", "bert:layers=4"], ["bert:layers=2", "bert:layers=4"]),
    ],
)
def test_labels_are_short(graphs, expected):
    assert graph_labels.distinct(graphs) == expected


def test_spellings_are_one_graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/m.onnx").touch()
    (tmp_path / "link.onnx").symlink_to("a/m.onnx")
    spelt = ("a/m.onnx", "./a//m.onnx", "a/../a/m.onnx", str(tmp_path / "a/m.onnx"), "link.onnx")
    assert {graph_labels.identity(graph) for graph in spelt} == {str(tmp_path / "a/m.onnx")}
    assert graph_labels.identity("./w.json:parts=2") == f"{tmp_path / 'w.json'}:parts=2"
    assert graph_labels.identity("bert:layers=4") == "bert:layers=4"


@pytest.fixture
def models(tmp_path) -> Path:
    """Four workloads, of which the accelerators are 1, 2, 3 and 4 times as slow."""
    for factor, name in enumerate(("x/m", "y/m", "x_m", "z/k"), 1):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        nodes = [
            n | {"fpgaLatency": factor * n["fpgaLatency"]} for n in test_solve.WORKLOAD["nodes"]
        ]
        path.write_text(json.dumps(test_solve.WORKLOAD | {"nodes": nodes}))
    return tmp_path


SOLVERS = ("--config.devices=auto", "--config.budget=64")


def test_every_model_has_a_cell(models, tmp_path):
    workdir = tmp_path / "run"
    names = ("x/m.json", "y/m.json", "x_m.json", "z/k.json", "x/../x/m.json")
    graphs = ",".join(f"{models}/{name}" for name in names)
    flags = (*FLAGS, *SOLVERS, f"--config.graphs={graphs}")
    code, out, err = run(workdir, *flags, config="solvers")
    assert code == 0, err
    rows = json.loads((workdir / "summary.json").read_text())["rows"]
    singles = {row["graph"]: row["predicted_s"] for row in rows if row["method"] == "single:acc0"}
    x, y = f"{models}/x/m.json", f"{models}/y/m.json"
    assert singles == {x: 15.0, y: 30.0, "x_m": 45.0, "k": 60.0}
    assert len(list(workdir.glob("cells/*/seed-0/summary.json"))) == 4
    csv = (workdir / "comparison.csv").read_text()
    report = (workdir / "report.md").read_text()
    for label in singles:
        assert csv.count(f"\n{label},") == 4
        assert f"### {label}\n" in report
    assert out.count("cell ") == 4

    code, out, err = run(workdir, *flags, config="solvers")
    assert code == 0, err
    assert out.count("finished before") == 4
    shutil.copy(models / "z/k.json", models / "y/m.json")  # another model under the same path
    code, out, err = run(workdir, *flags, config="solvers")
    assert code == 0, err
    assert out.count("finished before") == 3
    rows = json.loads((workdir / "summary.json").read_text())["rows"]
    singles = {row["graph"]: row["predicted_s"] for row in rows if row["method"] == "single:acc0"}
    assert singles[y] == 60.0
    (workdir / "report.md").unlink()
    code, _, err = run(workdir, "--task=report", config="solvers")
    assert code == 0, err


def test_corrupt_cells_run_again(models, tmp_path):
    workdir = tmp_path / "run"
    flags = (*FLAGS, *SOLVERS, f"--config.graphs={models}/x/m.json")
    code, _, err = run(workdir, *flags, config="solvers")
    assert code == 0, err
    (path,) = workdir.glob("cells/*/seed-0/summary.json")
    path.write_text("{")
    code, out, err = run(workdir, *flags, config="solvers")
    assert code == 0, err
    assert "finished before" not in out
    assert "set aside as summary.json.corrupt" in out
    code, out, err = run(workdir, *flags, config="solvers")
    assert "finished before" in out
