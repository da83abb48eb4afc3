"""Checks and measurements of a placement, and checks of the folder that is written."""

import dataclasses
import json
import math

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import preflight
from placement.runtime.deployment.artifact import CONCURRENT, HETERO
from placement.runtime.deployment.preflight import REFERENCE
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import local
from placement.runtime.measurement.request import MIN_SAMPLES, Failure, Interval, Measurement
from placement.runtime.models import fingerprint
from placement.runtime.models.inputs import Inputs
from tests.runtime import small
from tests.runtime.deployment import test_network
from tests.runtime.deployment.folders import HOST, A, B, make, save

SAMPLES = Inputs(tuple([np.full((4, 8), value, np.float32)] for value in (1, 2)), "two", "")


def write(file, *, used=HOST, affinity=None, **others):
    """Writes a placement.json, and returns what is read from it."""
    provenance = {
        "devices": {device.name: dataclasses.asdict(device) for device in used},
        **{key: others.pop(key) for key in ("model", "memory") if key in others},
    }
    affinity = affinity or {"a": used[0].name, "b": used[-1].name}
    content = {"method": "m", "placement": affinity, "provenance": provenance}
    file.write_text(json.dumps(content | others))
    return preflight.read(file)


def test_placement_file_is_read(tmp_path):
    file = tmp_path / "placement.json"
    placed = write(file)
    assert (placed.segments, placed.devices) == ((), HOST)
    model = fingerprint.compute_fingerprint(small.diamond())
    placed = write(file, segments=[[A, ["a"]], [B, ["b"]]], model=model)
    assert placed.segments == (Segment(A, ("a",)), Segment(B, ("b",)))
    assert placed.model == model
    for content in ("{", '{"method": "m"}', "[]"):
        file.write_text(content)
        with pytest.raises(UserError, match="place the model") as caught:
            preflight.read(file)
        assert "\n" not in str(caught.value)


def test_devices_are_those_placed_on(tmp_path):
    file = tmp_path / "placement.json"
    (cpu,) = devices.resolve("CPU")
    for used in (
        HOST,
        devices.resolve("host:f32,f32"),
        (cpu,),
        devices.replace_with_f32(HOST, [B]),
    ):
        placed = write(file, used=used)
        assert preflight.find_devices(placed, "auto") == used
    f32 = devices.replace_with_f32([cpu], ["CPU"])
    limited = tuple(dataclasses.replace(d, precision="f32", capacity_bytes=9) for d in f32)
    (found,) = preflight.find_devices(write(file, used=limited), "auto")
    assert (found.precision, found.capacity_bytes) == ("f32", 9)
    assert found.properties["INFERENCE_PRECISION_HINT"] == "f32"
    gpu = dataclasses.replace(cpu, name="GPU.7")
    idle = write(file, used=(*HOST, gpu), affinity={"a": A})
    assert preflight.find_devices(idle, "auto") == HOST
    with pytest.raises(UserError, match=r"'GPU.7', not present: here are .*CPU") as caught:
        preflight.find_devices(write(file, used=(*HOST, gpu)), "auto")
    assert "\n" not in str(caught.value)
    # Costs from another machine name devices without their properties.
    content = json.loads(file.read_text())
    content["provenance"]["devices"] = {device.name: {"label": "there"} for device in HOST}
    content["placement"] = {"a": A}
    file.write_text(json.dumps(content))
    assert preflight.find_devices(preflight.read(file), "host") == HOST


def test_written_folders_are_verified(tmp_path):
    for form, names in ((HETERO, [HETERO]), (CONCURRENT, [CONCURRENT, HETERO])):
        artifact = make(small.diamond(), form, left=B)
        folder = save(tmp_path / form, small.diamond(), form, left=B)
        checks = preflight.verify(folder, artifact, SAMPLES)
        assert [*checks] == [f"outputs in form {name!r}" for name in names]
        negated = small.diamond()
        (result,) = negated.get_results()
        result.input(0).replace_source_output(ops.negative(result.input_value(0)).output(0))
        with pytest.raises(UserError, match=f"wrong outputs in form '{form}'"):
            preflight.verify(folder, artifact._replace(model=negated), SAMPLES)


def test_another_shape_is_verified(tmp_path):
    model = test_network.dynamic()
    folder = test_network.save_dynamic(tmp_path / "right", HETERO, model)
    placed = test_network.dynamic()
    placed.reshape([4, 8])
    artifact = make(placed, HETERO, dynamic=model, right=B)
    checks = preflight.verify(folder, artifact, SAMPLES)
    assert checks["another shape"] == "[5, 8] has right outputs, too"
    doubled = test_network.dynamic()
    (result,) = doubled.get_results()
    double = ops.add(result.input_value(0), result.input_value(0), name="double")
    result.input(0).replace_source_output(double.output(0))
    with pytest.raises(UserError, match="wrong outputs in form 'hetero'"):
        preflight.verify(folder, artifact._replace(dynamic=doubled), SAMPLES)


def test_a_lost_state_is_noticed(tmp_path):
    ones = Inputs(([np.ones(4, np.float32)],), "ones", "")
    source = ops.parameter([4], np.float32, name="x")
    stateless = ov.Model([ops.result(ops.relu(source), name="y")], [source], "stateless")
    folder = save(tmp_path, stateless, HETERO)
    with pytest.raises(UserError, match="wrong outputs"):
        preflight.verify(folder, make(small.counter(), HETERO), ones)


def make_placed(model: ov.Model, segments=(), **others: str) -> preflight.PlacementFile:
    affinity = small.everywhere(model, A, **others)
    return preflight.PlacementFile("by hand", affinity, segments, HOST, {}, {})


@pytest.mark.alone
def test_all_forms_are_measured():
    model = small.diamond()
    segments = Segment(A, ("top",)), Segment(B, ("left",)), Segment(A, ("right", "bottom"))
    with local.LocalMeasurer(model, HOST) as measurer:
        rows = preflight.measure(make_placed(model, segments, left=B), measurer, seconds=0.0)
        misfit = make_placed(model, segments[:2], left=B)
        with pytest.raises(UserError, match="compile: the segments do not have each") as caught:
            preflight.measure(misfit, measurer, seconds=0.0)
    assert "\n" not in str(caught.value)
    assert {row.method for row in rows[:2]} == {f"single:{A}", f"single:{B}"}
    assert [row.form for row in rows[2:4]] == [HETERO, CONCURRENT]
    assert {row.form for row in rows[4:]} == {REFERENCE}
    for row in rows:
        assert row.to_json()["status"] == "ok"
        assert row.outcome.output_error <= row.outcome.tolerance
        assert row.outcome.latency.n >= MIN_SAMPLES
        assert (row.candidate.affinity is None) == (row.form not in (HETERO, CONCURRENT))
    assert rows[0].outcome.ratio.median == 1
    assert all(row.outcome.ratio.median > 1 for row in rows[2:4])  # three submodels for one


def measurement(seconds: float, ratio: float = math.nan) -> Measurement:
    latency, ratios = Interval(*[seconds] * 3, 20), Interval(*[ratio] * 3, 20)
    values = dict.fromkeys(Measurement._fields, 0.0) | {"tolerance": 0.1, "ratios": ()}
    return Measurement(**values | {"latency": latency, "ratio": ratios})


class Judge:
    """Measures nothing: all single devices fail, and the placement has these outcomes."""

    devices = HOST

    def __init__(self, *outcomes: Measurement | Failure):
        self.outcomes = outcomes

    def ask(self, request):
        failure = Failure("infer", "it broke")
        outcomes = [failure] * request.num_baselines + [*self.outcomes]
        return outcomes + [failure] * (len(request.candidates) - len(outcomes))


def test_every_form_must_be_right():
    segments = Segment(A, ("top",)), Segment(B, ("left",)), Segment(A, ("right", "bottom"))
    placed = make_placed(small.diamond(), segments, left=B)
    right = measurement(1.0)
    right = right._replace(ratios=(right.ratio,) * len(HOST))
    rows = preflight.measure(placed, Judge(right, right), seconds=0.0)
    assert [row.form for row in rows if row.is_right] == [HETERO, CONCURRENT]
    assert rows[2].to_json()["versus_interval"] is None
    # OpenVINO alone runs the concurrent form by HETERO, which has to be right, too.
    with pytest.raises(UserError, match=r"cannot be deployed here: placement: infer: it broke"):
        preflight.measure(placed, Judge(Failure("infer", "it broke"), right), seconds=0.0)
    alone = make_placed(small.diamond())
    with pytest.raises(UserError, match=r"cannot be deployed here: single:.*: infer: it broke"):
        preflight.measure(alone, Judge(), seconds=0.0)
