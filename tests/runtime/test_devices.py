import json

import openvino as ov
import pytest

from placement.runtime import devices


def test_host_makes_two_devices_of_the_cpu():
    host = devices.resolve("host")
    assert len({device.name for device in host}) == 2
    for device in host:
        assert "CPU" in device.name
        assert "host" in device.label
        assert device.precision in device.label
        assert device.num_threads == 1
        assert json.loads(json.dumps(device.properties)) == device.properties
    core = devices.open_core(host)
    assert {device.name for device in host} <= set(core.available_devices)
    devices.register(core, host)  # knows them already


def test_host_precisions_follow_the_processor():
    bf16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precisions = [device.precision for device in devices.resolve("host")]
    assert precisions == (["f32", "bf16"] if bf16 else ["f32", "f32"])
    if not bf16:
        assert all("no bf16" in device.label for device in devices.resolve("host"))


def test_auto_is_host_where_there_is_one_device():
    available = ov.Core().available_devices
    found = devices.resolve("auto")
    if len(available) > 1:
        assert [device.name for device in found] == available
    else:
        assert found == devices.resolve("host")


def test_cpu_by_name_has_all_threads_and_openvinos_own_precision():
    (cpu,) = devices.resolve("CPU")
    assert not cpu.host
    assert cpu.num_threads == devices.describe_machine()["cores"]
    own = ov.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    assert cpu.precision == own
    assert devices.all_threads([cpu]) == ()


def test_references_of_host_devices_are_the_whole_cpu():
    host = devices.resolve("host")
    references = devices.all_threads(host)
    assert {r.precision for r in references} == {device.precision for device in host}
    assert all(r.name == "CPU" and "all" in r.label for r in references)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("CPU,TPU", "unknown device 'TPU'"),
        ("", "unknown device ''"),
        ("CPU,CPU", "twice"),
        ("roofline:cpu,gpu", "not present"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_what_is_valid(spec, said):
    with pytest.raises(ValueError, match=said) as caught:
        devices.resolve(spec)
    message = str(caught.value)
    assert "\n" not in message
    for valid in ("'auto'", "'host'", "CPU"):
        assert valid in message


def test_machine_is_described_in_json():
    machine = json.loads(json.dumps(devices.describe_machine()))
    assert machine["devices"]["CPU"]["full_name"]
    assert "FP32" in machine["devices"]["CPU"]["capabilities"]
    assert machine["cores"] >= 1
    assert len(machine["load_average"]) == 3
