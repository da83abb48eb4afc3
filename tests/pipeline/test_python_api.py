"""`placement.place` and `placement.compare`; docs/PYTHON.md has them on devices."""

import json
import sys
from pathlib import Path

import pytest

import placement
from placement.errors import UserError
from tests.pipeline import test_solve
from tests.runtime import small

SMALL = "synthetic:family=layered,ops=12,seed=1"
QUICK = {"devices": "roofline:cpu,gpu", "method": "heft", "evaluate": "simulate"}


def test_graphs_are_placed(tmp_path):
    placed = placement.place(SMALL, workdir=tmp_path / "run", **QUICK)
    assert json.loads((tmp_path / "run/summary.json").read_text()) == placed.summary
    assert {row["method"] for row in placed.summary["rows"]} >= {"single:gpu", "random"}
    assert placed.verdict.startswith("In simulation, use ")
    assert len(placed.placement) == 12
    assert {*placed.placement.values()} <= {*placed.summary["devices"], "cpu", "gpu"}
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already"):
        placed.deploy(tmp_path / "there")


def test_models_devices_and_shapes(tmp_path):
    model = small.convolutions(length=2)
    (name,) = model.input(0).names
    shape = tuple(model.input(0).shape)
    model.reshape([-1, *shape[1:]])  # the shape of a dynamic model is needed
    placed = placement.place(
        model,
        devices=["CPU"],
        input_shapes={name: shape},
        workdir=tmp_path,
        method="random",
        backend="hetero",
        objective="serial",
        measure_s=0.1,
        time_limit_s=1.0,
    )
    assert placed.settings.devices == "CPU"
    assert placed.settings.input_shapes == f"{name}:{','.join(map(str, shape))}"
    assert Path(placed.settings.graph) == tmp_path / "model.xml"
    assert set(placed.placement.values()) <= {"CPU"}


def test_workloads_may_cost_nothing(tmp_path):
    nodes = [{"id": i, "cpuLatency": 0, "fpgaLatency": 0} for i in range(3)]
    path = tmp_path / "free.json"
    path.write_text(json.dumps(test_solve.WORKLOAD | {"nodes": nodes, "edges": []}))
    settings = {"objective": "subgraph", "method": "random", "devices": "auto"}
    placed = placement.place(path, workdir=tmp_path / "run", **settings)
    assert {row["predicted_s"] for row in placed.summary["rows"]} == {0.0}


@pytest.mark.parametrize("shapes", [{"x": None}, {"x": (1.5,)}, [1, 2], {1: (2,)}])
def test_wrong_input_shapes_are_refused(shapes, tmp_path):
    with pytest.raises(UserError, match="pass a shape for each input"):
        placement.place(SMALL, input_shapes=shapes, workdir=tmp_path)
    with pytest.raises(UserError, match="an object of type dict is not a model"):
        placement.place({}, workdir=tmp_path)


def test_models_are_compared(tmp_path, monkeypatch):
    compared = placement.compare(
        [small.convolutions(length=2), SMALL],
        "heft",
        devices="roofline:cpu,gpu",
        evaluate="simulate",
        workdir=tmp_path,
    )
    assert {row["graph"] for row in compared.rows} == {"model-1", SMALL}
    assert repr(compared).startswith("Comparison(2 graphs, ")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"matplotlib .*or the extra 'plots'"):
        compared.plot()
