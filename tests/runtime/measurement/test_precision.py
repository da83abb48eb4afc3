"""Devices that compute wrong outputs in their precision, on the real CPU plug-in."""

import openvino as ov
import pytest

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.measurement import local, precision
from placement.runtime.measurement.request import OutputErrors
from placement.runtime.models.outputs import OutputCheck
from tests.runtime import small

needs_bf16 = pytest.mark.skipif(
    "BF16" not in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"),
    reason="needs a processor that computes in bf16",
)


def choose(measurer, given, say):
    wrong = precision.find_wrong(measurer, given)
    return precision.replace_wrong(measurer, given, wrong, say)


def chosen(model: ov.Model, spec: str) -> tuple[tuple[devices.Device, ...], list[str]]:
    given, said = devices.resolve(spec), []
    with local.LocalMeasurer(model, given) as measurer:
        return choose(measurer, given, said.append), said


@needs_bf16
@pytest.mark.parametrize(
    ("spec", "names"),
    [("host", ["CPU_F32_0", "CPU_F32_1"]), ("host:bf16", ["CPU_F32"]), ("CPU", ["CPU"])],
)
def test_a_device_that_is_wrong_in_its_precision_computes_in_f32_and_that_is_said(spec, names):
    found, said = chosen(small.rounded(), spec)
    assert [device.name for device in found] == names
    assert {device.precision for device in found} == {"f32"}
    assert {d.properties["INFERENCE_PRECISION_HINT"] for d in found} == {"f32"}
    assert "f32 as bf16 is wrong" in found[-1].label
    assert found[-1].label.startswith(f"{names[-1]} [")
    (line,) = said
    assert line.startswith(devices.resolve(spec)[-1].label)
    assert "of their spread, over 0.1; it computes in f32 instead" in line


@needs_bf16
def test_what_was_chosen_is_right_and_has_the_names_that_a_placement_is_read_with():
    found, _ = chosen(small.rounded(), "host:bf16,bf16")
    assert [d.name for d in found] == [d.name for d in devices.resolve("host:f32,f32")]
    with local.LocalMeasurer(small.rounded(), found) as measurer:
        assert all(checked.is_correct for checked in measurer.ask(OutputErrors(found)))
        assert precision.find_wrong(measurer, found) == {}


@needs_bf16
def test_the_cpu_in_bf16_is_left_out_where_the_cpu_in_f32_is_there_already():
    found, said = chosen(small.rounded(), devices.PRECISIONS)
    assert [device.name for device in found] == ["CPU_F32"]
    (line,) = said
    assert "CPU_BF16 [precisions, bf16, " in line
    assert line.endswith("over 0.1; CPU_F32 computes in f32")


def test_devices_that_are_right_stay_as_they_are():
    model = small.diamond()
    for spec in ("host", "CPU"):
        found, said = chosen(model, spec)
        assert found == devices.resolve(spec)
        assert said == []


class Wrong:
    """Of these devices, in whatever precision."""

    def __init__(self, *names: str):
        self._names = names

    def ask(self, request):
        wrong = [device.name in self._names for device in request.devices]
        return [OutputCheck(0.5 if each else 0.0, 0.0, 1e-3) for each in wrong]


def gpu(name: str) -> devices.Device:
    return devices.Device(name, f"{name} [Some f16 Card, f16]", "f16", 1, None, {}, False)


def test_what_is_wrong_in_f32_too_is_left_out_and_said():
    given, said = (gpu("GPU.0"), gpu("GPU.1")), []
    assert choose(Wrong("GPU.0"), given, said.append) == given[1:]
    (line,) = said
    assert line.startswith("GPU.0 [Some f16 Card, f16] is left out: outputs differ by 0.5")
    with pytest.raises(UserError, match=r"no device computes right outputs.*--config\.inputs"):
        choose(Wrong("GPU.0", "GPU.1"), given, said.append)


def test_labels_of_real_devices_say_it_too():
    (changed,) = devices.replace_with_f32([gpu("GPU.0")], ["GPU.0"])
    assert changed.label == "GPU.0 [Some f16 Card, f32 as f16 is wrong]"
    assert devices.replace_with_f32([gpu("GPU.0")], []) == (gpu("GPU.0"),)
