import dataclasses
import json
import os

import openvino as ov
import pytest

from placement.errors import UserError
from placement.runtime import devices, processors

HAS_BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="needs a processor that computes in bf16")


def test_auto_without_accelerators_is_host():
    available = ov.Core().available_devices
    host = devices.resolve("host")
    assert [device.precision for device in host] == ["f32", "bf16" if HAS_BF16 else "f32"]
    if len(available) > 1:
        assert [device.name for device in devices.resolve("auto")] == available
    else:
        assert devices.resolve("auto") == host


@pytest.mark.parametrize(
    ("spec", "names", "capacities"),
    [
        ("host:f32", ["CPU_F32"], [None]),
        ("host: f32 , f32 ", ["CPU_F32_0", "CPU_F32_1"], [None, None]),
        pytest.param("host:bf16,f32", ["CPU_BF16", "CPU_F32"], [None, None], marks=needs_bf16),
        ("host:f32,f32:memory=40MB", ["CPU_F32_0", "CPU_F32_1"], [None, 40_000_000]),
        ("host:f32:memory=1GiB, f32", ["CPU_F32_0", "CPU_F32_1"], [2**30, None]),
    ],
)
def test_host_devices_have_one_core(spec, names, capacities):
    found = devices.resolve(spec)
    assert [device.name for device in found] == names
    assert [device.capacity_bytes for device in found] == capacities
    cores = sorted(os.sched_getaffinity(0))
    assert [device.core for device in found] == [cores[i % len(cores)] for i in range(len(found))]
    for device in found:
        assert device.host
        assert device.num_threads == device.properties["INFERENCE_NUM_THREADS"] == 1
        assert device.properties["INFERENCE_PRECISION_HINT"] == device.precision
        note = "" if HAS_BF16 else ", no bf16 here"
        assert device.label == f"{device.name} [host, {device.precision}{note}, core {device.core}]"
        record = json.loads(json.dumps(dataclasses.asdict(device)))
        assert devices.from_record(record) == device
    core = ov.Core()
    devices.register_devices(core, found)
    assert set(names) <= set(core.available_devices)


def test_one_limit_counts_for_each():
    (cpu,) = devices.resolve("CPU:memory=6GB")
    assert (cpu.name, cpu.capacity_bytes) == ("CPU", 6_000_000_000)
    host = devices.resolve("host:memory=40MB")
    assert [device.capacity_bytes for device in host] == [40_000_000] * 2


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("host:f64,f32", "cannot compute in 'f64'.*set f32"),
        ("host:f32,", "cannot compute in ''"),
        ("CPU,TPU", "unknown device 'TPU'.*set 'auto', 'host', .*CPU"),
        ("", "unknown device ''"),
        ("CPU,CPU", "twice; set 'auto', 'host', .*CPU"),
        ("roofline:cpu,gpu", "not present, and cannot be measured; give 'auto', 'host', .*CPU"),
        ("auto:memory=1GB", "is not that of one device; write it after a device's name or 'host'"),
        ("CPU:memory=6", "'6' in devices 'CPU:memory=6' is not a size of a memory; set a number"),
        ("NPU.7:memory=1GB", "unknown device 'NPU.7'"),
        pytest.param(
            *("precisions", "computes in f32 alone; set devices='CPU'"),
            marks=pytest.mark.skipif(HAS_BF16, reason="needs a processor without bf16"),
        ),
    ],
)
def test_wrong_devices_are_one_line(spec, said):
    with pytest.raises(UserError, match=said) as caught:
        devices.resolve(spec)
    assert "\n" not in str(caught.value)


def test_host_devices_need_cores(monkeypatch):
    monkeypatch.setattr(processors, "list_allowed_cores", lambda: [3, 5, 8])
    assert [device.core for device in devices.resolve("host:f32,f32,f32")] == [3, 5, 8]
    with pytest.raises(UserError, match="4 host devices, but this process may use 3 cores"):
        devices.resolve("host:f32,f32,f32,f32")
    monkeypatch.setattr(processors, "list_allowed_cores", lambda: [4])  # two run in turn there
    assert [device.core for device in devices.resolve("host:f32,f32")] == [4, 4]


def test_references_are_whole_cpus():
    (cpu,) = devices.resolve("CPU")
    assert (cpu.host, cpu.num_threads) == (False, devices.describe_machine()["cores"])
    assert devices.list_references([cpu]) == ()
    host = devices.resolve("host")
    plain, streaming = devices.list_references(host), devices.list_throughput_references(host)
    assert {r.precision for r in plain} == {device.precision for device in host}
    assert [d.label for d in streaming] == [f"CPU [{d.precision}, THROUGHPUT]" for d in plain]
    assert devices.resolve_with_references("host", "max_load") == (host, plain + streaming)
    assert devices.resolve_with_references("host", "makespan") == (host, plain)
    assert all(map(devices.is_throughput_reference, streaming))
    assert not any(map(devices.is_throughput_reference, (*host, *plain)))


def test_streams_have_combined_references():
    (cpu,) = devices.resolve("CPU")
    gpu = dataclasses.replace(cpu, name="GPU.0", details=("A", "f16"), precision="f16")
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


class StubCore:
    """An `ov.Core` with a CPU and a GPU that reports its memory."""

    available_devices = ("CPU", "GPU")

    def __init__(self, memory_bytes=12_000_000_000, key="GPU_DEVICE_TOTAL_MEM_SIZE"):
        self.properties = {"FULL_DEVICE_NAME": "a GPU", key: memory_bytes}

    def get_property(self, name, key):
        if key == "SUPPORTED_PROPERTIES":
            return list(self.properties) if name == "GPU" else []
        if key == "OPTIMIZATION_CAPABILITIES":
            return ["FP32"]
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
    for stub in (StubCore(0, key), StubCore(key="FULL_NAME")):  # nothing is reported
        monkeypatch.setattr(devices.ov, "Core", lambda stub=stub: stub)
        assert [device.capacity_bytes for device in devices.resolve("CPU,GPU")] == [None, None]
