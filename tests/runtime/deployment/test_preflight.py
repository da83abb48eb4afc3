import dataclasses
import json

import numpy as np
import openvino as ov
import pytest

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import decision, preflight
from placement.runtime.deployment.decision import REFERENCE, Row
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.request import Interval
from placement.runtime.models import fingerprint
from tests.runtime import small

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)


def placed(**kwargs) -> preflight.PlacementFile:
    given = {"method": "m", "affinity": {"a": A, "b": B}, "segments": (), "devices": (A, B)}
    rest = {"host": "host:f32,bf16" if "BF16" in B else "host:f32,f32", "graph": "g", "model": None}
    return preflight.PlacementFile(**(given | rest | kwargs))


def told(*made: devices.Device) -> dict:
    return {d.name: {"label": d.label, "properties": dict(d.properties)} for d in made}


def test_a_placement_is_read_with_or_without_segments_and_model(tmp_path):
    file = tmp_path / "placement.json"
    provenance = {"graph": {"name": "g"}, "devices": told(*HOST)}
    data = {"method": "m", "placement": {"a": A, "b": B}, "provenance": provenance}
    file.write_text(json.dumps(data))
    f32 = frozenset(device.name for device in HOST if device.precision == "f32")
    assert preflight.read(file) == placed(f32=f32)
    model = fingerprint.compute_fingerprint(small.diamond())
    segments = [[A, ["a"]], [B, ["b"]]]
    file.write_text(
        json.dumps(data | {"segments": segments, "provenance": provenance | {"model": model}})
    )
    read = preflight.read(file)
    assert read.segments == (Segment(A, ("a",)), Segment(B, ("b",)))
    assert read.model == model


def test_host_devices_are_found_as_they_were_when_placed_on(tmp_path):
    """By default there are others, of other names."""
    alike = devices.resolve("host:f32,f32")
    names = [device.name for device in alike]
    provenance = {"graph": {"name": "g"}, "devices": told(*alike)}
    data = {"method": "m", "placement": {"a": names[1]}, "provenance": provenance}
    file = tmp_path / "placement.json"
    file.write_text(json.dumps(data))
    assert preflight.find_devices(preflight.read(file), "auto") == alike


@pytest.mark.parametrize("content", [None, "{", '{"method": "m"}', "[]"])
def test_what_is_no_placement_is_refused_in_one_line(tmp_path, content):
    file = tmp_path / "placement.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match="place the model") as caught:
        preflight.read(file)
    assert "\n" not in str(caught.value)


def test_an_order_has_every_operation_of_the_placement_once(tmp_path):
    file = tmp_path / "placement.json"
    content = {"method": "search", "placement": {"a": A, "b": B}, "order": ["b", "a"]}
    content["provenance"] = {
        "devices": {name: {"label": name, "properties": {}} for name in (A, B)},
        "graph": {"name": "two"},
    }
    file.write_text(json.dumps(content))
    assert preflight.read(file).affinity == content["placement"]
    for order in (["a"], ["a", "a"], ["a", "c"]):
        file.write_text(json.dumps(content | {"order": order}))
        with pytest.raises(UserError, match="its order does not have every operation") as caught:
            preflight.read(file)
        assert "\n" not in str(caught.value)


def test_devices_are_those_placed_on_unless_others_are_given():
    assert preflight.find_devices(placed(), "auto") == HOST
    assert preflight.find_devices(placed(), "host") == HOST
    idle = placed(devices=(A, B, "GPU.7"))  # nothing is placed on it
    assert preflight.find_devices(idle, "auto") == HOST
    (cpu,) = preflight.find_devices(placed(affinity={"a": "CPU"}, devices=("CPU",)), "auto")
    assert cpu.name == "CPU"
    with pytest.raises(UserError, match=r"'GPU.7', not present: here are .*CPU"):
        preflight.find_devices(placed(affinity={"a": "GPU.7"}, devices=("GPU.7",)), "auto")
    with pytest.raises(UserError, match="not among devices='CPU': CPU;"):
        preflight.find_devices(placed(), "CPU")


def test_devices_that_had_to_compute_in_f32_do_so_again():
    """Whatever they choose: host devices are others by name then."""
    fallen = devices.replace_with_f32(devices.resolve("host"), [B])
    names = tuple(device.name for device in fallen)
    spec = f"host:{','.join(['f32'] * len(fallen))}"
    on = placed(affinity={"a": names[1]}, devices=names, host=spec, f32=frozenset(names))
    for given in ("auto", "host", spec):
        found = preflight.find_devices(on, given)
        assert [(d.name, d.precision) for d in found] == [(name, "f32") for name in names]
    cpu = placed(affinity={"a": "CPU"}, devices=("CPU",), host="", f32=frozenset({"CPU"}))
    for given in ("auto", "CPU"):
        (found,) = preflight.find_devices(cpu, given)
        assert found.properties["INFERENCE_PRECISION_HINT"] == found.precision == "f32"


def test_without_its_content_a_model_is_known_by_names():
    model = small.diamond()
    same = placed(affinity=small.everywhere(model, A))
    preflight.check_model(same, model, "diamond")
    affinity = small.everywhere(model, A, gone=B)
    del affinity["left"]
    with pytest.raises(UserError, match="lacks 'gone'; it has new 'left'") as caught:
        preflight.check_model(placed(affinity=affinity), model, "diamond")
    assert "'diamond'" in str(caught.value)


class Supporting:
    """A core whose devices support all but one operation."""

    def __init__(self, without: str):
        self._without = without

    def query_model(self, model, device, properties):
        ops = (op.get_friendly_name() for op in model.get_ops())
        return {name: device for name in ops if name != self._without}

    def compile_model(self, model, device):
        raise RuntimeError("Exception from src/core.cpp:1:\nno such kernel")


def test_an_operation_that_its_device_does_not_support_is_named():
    model = small.diamond()
    affinity = small.everywhere(model, A, left=B)
    preflight.check_support(devices.open_core(HOST), model, affinity, HOST)
    preflight.check_support(Supporting("m_left"), model, affinity, HOST)
    with pytest.raises(UserError, match=r"does not support 'left \(MatMul\)'") as caught:
        preflight.check_support(Supporting("left"), model, affinity, HOST)
    assert HOST[1].label in str(caught.value)
    assert "(left with f32[4,8], f32[8,8]: no such kernel)" in str(caught.value)


def row(name: str, form: str, ratio: float | None, spread: float = 0.02) -> Row:
    if ratio is None:
        return Row(name, form, None, None, None, None, "infer: it broke")
    within = Interval(ratio, ratio - spread, ratio + spread, 20)
    return Row(name, form, within, within, 0.0, 0.1, "ok")


def rows(hetero: float | None = None, concurrent: float | None = None) -> list[Row]:
    single = [
        row(f"single:{B}", artifact_lib.SINGLE, 1.0, 0.0),
        row(f"single:{A}", artifact_lib.SINGLE, 2.0),
    ]
    forms = [row("placement", artifact_lib.HETERO, hetero)]
    forms.append(row("placement, concurrent", artifact_lib.CONCURRENT, concurrent))
    return single + forms + [row("CPU", REFERENCE, 0.1)]


@pytest.mark.parametrize(
    ("hetero", "concurrent", "winner", "alone"),
    [
        (0.9, None, "placement", None),
        (1.5, None, f"single:{B}", B),
        (0.9, 0.8, "placement, concurrent", None),
        (1.2, 0.9, "placement, concurrent", B),  # OpenVINO alone is better off with one device
        (None, 0.9, "placement, concurrent", B),
    ],
)
def test_the_row_to_use_is_written_with_what_openvino_runs_alone(hetero, concurrent, winner, alone):
    measured = rows(hetero, concurrent)
    assert winner in [row.name for row in decision.deployable_rows(placed(), measured)]
    found = decision.decide(placed(), measured, winner, "why")
    form = next(row.form for row in measured if row.name == winner)
    fallback = form == artifact_lib.SINGLE
    assert found == (form, alone, fallback, "why", None)


def test_a_device_outside_the_placement_may_be_written():
    cpu = devices.reference_device()
    measured = [*rows(0.9)[:-1], row(cpu.label, REFERENCE, 0.5)._replace(device=cpu)]
    found = decision.decide(placed(), measured, cpu.label, "why")
    assert found == (artifact_lib.SINGLE, "CPU", True, "why", cpu)


def test_a_placement_on_one_device_is_no_fallback_to_it():
    on_b = placed(affinity={"a": B})
    assert (decision.preferred_row(on_b), decision.preferred_row(placed())) == (f"single:{B}", "")
    assert not decision.decide(on_b, rows()[:2], f"single:{B}", "why").is_fallback
    assert decision.decide(on_b, rows()[:2], f"single:{A}", "why").is_fallback


def test_where_no_single_device_works_a_placement_may_be_written():
    broken = [row(f"single:{name}", artifact_lib.SINGLE, None) for name in (A, B)]
    works = row("placement", artifact_lib.HETERO, 1.0)._replace(ratio=None)
    assert decision.deployable_rows(placed(), [*broken, works]) == [works]
    found = decision.decide(placed(), [*broken, works], "placement", "why")
    assert (found.form, found.single_device, found.is_fallback) == (
        artifact_lib.HETERO,
        None,
        False,
    )
    with pytest.raises(UserError, match="it broke"):
        decision.deployable_rows(placed(), [*broken, row("placement", artifact_lib.HETERO, None)])


def test_a_concurrent_form_needs_another_that_openvino_runs_alone():
    cpu = devices.reference_device()

    def written(hetero, on=cpu):
        timed = [row("placement", artifact_lib.HETERO, hetero)]
        timed.append(row("placement, concurrent", artifact_lib.CONCURRENT, 0.1))
        timed.append(row(on.label, REFERENCE, 0.2)._replace(device=on))
        measured = [row(f"single:{name}", artifact_lib.SINGLE, None) for name in (A, B)] + timed
        assert "placement, concurrent" in [
            r.name for r in decision.deployable_rows(placed(), measured)
        ]
        return decision.decide(placed(), measured, "placement, concurrent", "why").single_device

    assert written(0.3) == "CPU"
    assert written(0.15) is None  # HETERO is faster than the CPU
    assert written(None) == "CPU"
    # In another precision than the placement's device of that name: not both in one file.
    same = dataclasses.replace(cpu, name=A)
    measured = [*rows(None, 0.1)[2:-1], row(same.label, REFERENCE, 0.2)._replace(device=same)]
    broken = [row(f"single:{name}", artifact_lib.SINGLE, None) for name in (A, B)]
    kept = decision.deployable_rows(placed(), broken + measured)
    assert [row.name for row in kept] == [same.label]


def test_outputs_of_what_was_written_are_compared(tmp_path):
    model = small.diamond()
    artifact = artifact_lib.Artifact(
        model, small.everywhere(model, A, left=B), (), HOST, artifact_lib.HETERO, None, "", {}
    )
    artifact_lib.save(artifact, tmp_path)
    samples = [[np.full((4, 8), value, np.float32)] for value in (1, 2)]
    compared = preflight.compare_outputs(tmp_path, model, samples)
    assert compared.keys() == {"load", "import"}
    assert all(0 <= comparison.error < 0.05 for comparison in compared.values())
    negated = small.diamond()
    ((result,),) = [[op] for op in negated.get_results()]
    negative = ov.opset13.negative(result.input_value(0), name="negative")
    result.input(0).replace_source_output(negative.output(0))
    compared = preflight.compare_outputs(tmp_path, negated, samples)
    assert all(comparison.error > 0.5 for comparison in compared.values())
