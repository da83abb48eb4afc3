import dataclasses
import json
import os
import re

import openvino as ov
import pytest

from placement.errors import UserError
from placement.runtime import devices, processors


def test_host_precisions_follow_the_processor():
    bf16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precisions = [device.precision for device in devices.resolve("host")]
    assert precisions == (["f32", "bf16"] if bf16 else ["f32", "f32"])
    if not bf16:
        assert all("no bf16" in device.label for device in devices.resolve("host"))


def test_auto_without_accelerators_is_host():
    available = ov.Core().available_devices
    found = devices.resolve("auto")
    if len(available) > 1:
        assert [device.name for device in found] == available
    else:
        assert found == devices.resolve("host")


HAS_BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def test_precisions_are_the_whole_cpu():
    if not HAS_BF16:
        with pytest.raises(UserError, match="computes in f32 alone; set devices='CPU'"):
            devices.resolve("precisions")
        return
    found = devices.resolve("precisions")
    assert [device.name for device in found] == ["CPU_F32", "CPU_BF16"]
    num_cores = len(os.sched_getaffinity(0))
    for device, cpu in zip(found, devices.list_references(found), strict=True):
        assert (device.precision, device.properties) == (cpu.precision, cpu.properties)
        assert (device.num_threads, device.core) == (num_cores, None)
        assert devices.describe_invalid_device(device) == ""


@pytest.mark.parametrize(
    ("spec", "precisions", "names"),
    [
        ("host:f32", ["f32"], ["CPU_F32"]),
        ("host:f32,f32", ["f32", "f32"], ["CPU_F32_0", "CPU_F32_1"]),
        pytest.param(
            *("host: bf16 , bf16 ", ["bf16", "bf16"], ["CPU_BF16_0", "CPU_BF16_1"]),
            marks=pytest.mark.skipif(not HAS_BF16, reason="needs bf16"),
        ),
        pytest.param(
            *("host:bf16,f32", ["bf16", "f32"], ["CPU_BF16", "CPU_F32"]),
            marks=pytest.mark.skipif(not HAS_BF16, reason="needs bf16"),
        ),
    ],
)
def test_host_devices_in_given_precisions(spec, precisions, names):
    found = devices.resolve(spec)
    assert [device.precision for device in found] == precisions
    assert [device.name for device in found] == names
    cores = sorted(os.sched_getaffinity(0))
    assert [device.core for device in found] == [cores[i % len(cores)] for i in range(len(found))]
    for device in found:
        assert device.host
        assert device.num_threads == device.properties["INFERENCE_NUM_THREADS"] == 1
        assert device.properties["INFERENCE_PRECISION_HINT"] == device.precision
        assert device.label == f"{device.name} [host, {device.precision}" + (
            f"{'' if HAS_BF16 else ', no bf16 here'}, core {device.core}]"
        )
    core = devices.open_core(found)
    assert set(names) <= set(core.available_devices)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("host:f64,f32", "cannot compute in 'f64'.*set f32"),
        ("host:", "cannot compute in ''"),
        ("host:f32,", "cannot compute in ''"),
        ("host:f16", "cannot compute in 'f16'"),
        ("host:" + ",".join(["f32"] * 500), "500 host devices, but this process may use"),
    ],
)
def test_wrong_host_devices_are_refused(spec, said):
    with pytest.raises(UserError, match=said) as caught:
        devices.resolve(spec)
    assert "\n" not in str(caught.value)


def test_host_devices_need_cores(monkeypatch):
    monkeypatch.setattr(processors, "list_allowed_cores", lambda: [3, 5, 8])
    found = devices.resolve("host:f32,f32,f32")
    assert [device.core for device in found] == [3, 5, 8]
    with pytest.raises(UserError, match="4 host devices, but this process may use 3 cores"):
        devices.resolve("host:f32,f32,f32,f32")
    monkeypatch.setattr(processors, "list_allowed_cores", lambda: [4])  # two run in turn there
    assert [device.core for device in devices.resolve("host:f32,f32")] == [4, 4]


def test_cpu_has_all_threads():
    (cpu,) = devices.resolve("CPU")
    assert not cpu.host
    assert cpu.num_threads == devices.describe_machine()["cores"]
    own = ov.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    assert cpu.precision == own
    assert devices.list_references([cpu]) == ()


def test_host_references_are_whole_cpus():
    host = devices.resolve("host")
    references = devices.list_references(host)
    assert {r.precision for r in references} == {device.precision for device in host}
    assert all(r.name == "CPU" and "all" in r.label for r in references)


def test_streams_have_throughput_references():
    host = devices.resolve("host")
    plain, streaming = devices.list_references(host), devices.list_throughput_references(host)
    assert [d.precision for d in streaming] == [d.precision for d in plain]
    assert [d.label for d in streaming] == [f"CPU [{d.precision}, THROUGHPUT]" for d in plain]
    assert devices.resolve_with_references("host", "max_load") == (host, plain + streaming)
    assert devices.resolve_with_references("host", "makespan") == (host, plain)
    assert all(map(devices.is_throughput_reference, streaming))
    assert not any(map(devices.is_throughput_reference, (*host, *plain)))


def test_streams_have_combined_references():
    (cpu,) = devices.resolve("CPU")
    gpu = dataclasses.replace(cpu, name="GPU.0", label="GPU.0 [A, f16]", precision="f16")
    served = devices.list_throughput_references((gpu, cpu))
    assert [d.label for d in served] == [
        "GPU.0 [f16, THROUGHPUT]",
        f"CPU [{cpu.precision}, THROUGHPUT]",
        "AUTO:GPU.0,CPU [CUMULATIVE_THROUGHPUT]",
        "HETERO:GPU.0,CPU [PIPELINE_PARALLEL, THROUGHPUT]",
    ]
    assert [d.precision for d in served[2:]] == ["f16", "f16"]
    assert all(map(devices.is_throughput_reference, served))
    assert [d.name for d in devices.list_throughput_references((gpu,))] == ["GPU.0", "CPU"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("CPU,TPU", "unknown device 'TPU'"),
        ("", "unknown device ''"),
        ("CPU,CPU", "twice"),
        ("roofline:cpu,gpu", "not present"),
    ],
)
def test_wrong_devices_are_one_line(spec, said):
    with pytest.raises(UserError, match=said) as caught:
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


@pytest.mark.parametrize(
    ("spec", "capacities"),
    [
        ("CPU:memory=6GB", [6_000_000_000]),
        ("host:memory=40MB", [40_000_000, 40_000_000]),
        ("host:f32,f32:memory=40MB", [None, 40_000_000]),
        ("host:f32:memory=40MB, f32:memory=1GiB", [40_000_000, 2**30]),
        ("host:f32,f32", [None, None]),
    ],
)
def test_memory_limits_follow_devices(spec, capacities):
    limited = devices.resolve(spec)
    assert [device.capacity_bytes for device in limited] == capacities
    without = devices.resolve(re.sub(r":memory=\w+", "", spec))
    for device, plain in zip(limited, without, strict=True):
        assert dataclasses.replace(device, capacity_bytes=None) == plain
        assert devices.describe_invalid_device(device) == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("auto:memory=1GB", "is not that of one device; write it after a device's name or 'host'"),
        ("CPU:memory=6", "'6' in devices 'CPU:memory=6' is not a size of a memory; set a number"),
        ("CPU:memory=1GB:memory=2GB", "'1GB:memory=2GB' in devices"),
        ("NPU.7:memory=1GB", "unknown device 'NPU.7'"),
    ],
)
def test_wrong_memory_limits_are_refused(spec, message):
    with pytest.raises(UserError, match=message) as error:
        devices.resolve(spec)
    assert "\n" not in str(error.value)


class StubCore:
    """An `ov.Core` with a CPU and a GPU that reports its memory."""

    available_devices = ("CPU", "GPU")

    def __init__(self, memory_bytes=12_000_000_000, key="GPU_DEVICE_TOTAL_MEM_SIZE"):
        self.properties = {"FULL_DEVICE_NAME": "a GPU", key: memory_bytes}

    def get_property(self, name, key):
        if key == "SUPPORTED_PROPERTIES":
            return list(self.properties) if name == "GPU" else []
        if key == "INFERENCE_PRECISION_HINT":
            return ov.Type.f16 if name == "GPU" else ov.Type.f32
        assert name == "GPU"
        return self.properties[key]


@pytest.mark.parametrize("key", ["GPU_DEVICE_TOTAL_MEM_SIZE", "NPU_DEVICE_TOTAL_MEM_SIZE"])
def test_reported_memory_is_the_limit(monkeypatch, key):
    monkeypatch.setattr(devices.ov, "Core", lambda: StubCore(key=key))
    assert [d.capacity_bytes for d in devices.resolve("CPU,GPU")] == [None, 12_000_000_000]
    limited = devices.resolve("CPU,GPU:memory=6GB")
    assert [device.capacity_bytes for device in limited] == [None, 6_000_000_000]
    with pytest.raises(UserError, match="but it has 12000000000; set memory=12000000000B or less"):
        devices.resolve("CPU,GPU:memory=13GB")


def test_unreported_memory_is_unlimited(monkeypatch):
    for stub in (StubCore(0), StubCore(key="FULL_NAME")):
        monkeypatch.setattr(devices.ov, "Core", lambda stub=stub: stub)
        assert [device.capacity_bytes for device in devices.resolve("CPU,GPU")] == [None, None]
