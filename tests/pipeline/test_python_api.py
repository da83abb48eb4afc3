"""`placement.place`: what it gives, and how it refuses; docs/PYTHON.md has it on devices."""

import json
import re
import sys
from pathlib import Path

import pytest

import placement
from placement.errors import UserError
from placement.pipeline import python_api
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bugdet": 9}, "unknown key 'bugdet': did you mean 'budget'?"),
        ({"budget": "many"}, "budget must be of type int, not 'many'"),
        ({"method": "anneal"}, "unknown method 'anneal': did you mean 'annealing'?"),
    ],
)
def test_mistakes_are_one_line(given, said, tmp_path):
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        placement.place(SMALL, workdir=tmp_path, **(QUICK | given))
    assert "\n" not in str(caught.value)


def test_other_objects_are_refused(tmp_path):
    with pytest.raises(UserError, match="an object of type dict is not a model"):
        placement.place({}, workdir=tmp_path, **QUICK)


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


def test_shapes_by_any_name_are_json():
    assert python_api._format_shapes({"a;b": (1, 3)}) == '{"a;b": [1, 3]}'


@pytest.mark.parametrize("shapes", [{"x": None}, {"x": (1.5,)}, [1, 2], {1: (2,)}])
def test_wrong_input_shapes_are_refused(shapes):
    with pytest.raises(UserError, match="pass a shape for each input"):
        python_api._format_shapes(shapes)


def test_models_are_compared(tmp_path):
    compared = placement.compare(
        [small.convolutions(length=2), SMALL],
        "heft",
        devices="roofline:cpu,gpu",
        evaluate="simulate",
        workdir=tmp_path,
    )
    assert {row["graph"] for row in compared.rows} == {"model-1", SMALL}


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    rows = [{"graph": "g", "method": "heft", "seed": 0, "predicted_s": 1.0, "measured_s": None}]
    rows[0] |= {"versus_best_single_device": 1.0, "versus_interval": None, "bound_s": None}
    compared = python_api.Comparison(tuple(rows), {}, {"rows": rows, "best": "heft"}, tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=re.escape("pip install -e '.[plots]'")) as caught:
        compared.plot()
    assert "\n" not in str(caught.value)
