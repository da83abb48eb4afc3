"""Graphs in a comparison: the same file is one, another is another, whatever they are called."""

import json
import shutil
import sys

import pytest

from placement.pipeline import compare, graph_labels
from placement.pipeline.settings import Settings
from tests.pipeline import test_solve


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


def test_every_model_has_a_cell(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    names = ("x/m", "y/m", "x_m", "z/k", "x/../x/m")
    for factor, name in enumerate(names[:4], 1):  # accelerators are 1, 2, 3 and 4 times as slow
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        nodes = [
            n | {"fpgaLatency": factor * n["fpgaLatency"]} for n in test_solve.WORKLOAD["nodes"]
        ]
        path.write_text(json.dumps(test_solve.WORKLOAD | {"nodes": nodes}))
    graphs = ",".join(f"{tmp_path}/{name}.json" for name in names)
    settings = Settings(
        graphs=graphs, methods="topological", objective="max_load", evaluate="simulate"
    )
    workdir = tmp_path / "run"

    def run() -> tuple[dict[str, float], str]:
        rows = compare.run(settings, workdir)["rows"]
        singles = {r["graph"]: r["predicted_s"] for r in rows if r["method"] == "single:acc0"}
        return singles, capsys.readouterr().out

    singles, out = run()
    x, y = f"{tmp_path}/x/m.json", f"{tmp_path}/y/m.json"
    assert singles == {x: 15.0, y: 30.0, "x_m": 45.0, "k": 60.0}
    assert len(list(workdir.glob("cells/*/seed-0/summary.json"))) == 4
    csv = (workdir / "comparison.csv").read_text()
    report = (workdir / "report.md").read_text()
    for label in singles:
        assert csv.count(f"\n{label},") == 4
        assert f"### {label}\n" in report
    assert out.count(" finished in ") == 4

    # Another model under the same path, and a corrupt cell, are placed again.
    shutil.copy(tmp_path / "z/k.json", y)
    (corrupt,) = workdir.glob("cells/*z_k*/seed-0/summary.json")
    corrupt.write_text("{")
    singles, out = run()
    assert singles == {x: 15.0, y: 60.0, "x_m": 45.0, "k": 60.0}
    assert out.count("finished before") == 2
    assert "set aside as summary.json.corrupt" in out
