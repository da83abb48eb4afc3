"""The devices a network is placed on, and the machine they belong to.

Where OpenVINO finds one device only, two are made of the CPU ('host'): its plug-in is registered
twice more, as CPU_F32 and CPU_BF16, one thread each, in the two precisions that the names say. A
placement on them runs for real, transfers included, and its operations do cost differently, but it
says nothing about accelerators; so the label of such a device always contains 'host'. For devices
that work at the same time ('host:bf16,bf16') the precisions need not differ: each has a core of its
own, and two cores are faster than one.

HETERO runs the parts of one inference one after another, so two host devices never compute at the
same time there, and each has the machine to itself while it does. Pinning by OpenVINO is off: left
on, it ties every one-thread model to the first core. `Device.core` is the core that a *concurrent*
executor binds the device's thread to; under HETERO the operating system chooses.
"""

import dataclasses
import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import openvino as ov

from placement.errors import UserError

CPU_PLUGIN = "openvino_intel_cpu_plugin"
_PRECISIONS = ("f32", "f16", "bf16")
_THROUGHPUT = {"PERFORMANCE_HINT": "THROUGHPUT"}
_MOST = 2**31 - 1  # that a count may be


def _is_count(value: object, *, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


# What devices are compiled with, and which values are valid.
_PROPERTIES: Mapping[str, Callable[[Any], bool]] = {
    "INFERENCE_PRECISION_HINT": lambda value: isinstance(value, str) and value in _PRECISIONS,
    "INFERENCE_NUM_THREADS": _is_count,
    "ENABLE_CPU_PINNING": _is_switch,
    "EXCLUSIVE_ASYNC_REQUESTS": _is_switch,
    "PERFORMANCE_HINT": lambda value: value == "LATENCY",
}


@dataclasses.dataclass(frozen=True)
class Device:
    """One device, and how it is compiled for."""

    name: str  # what OpenVINO calls it, such as 'GPU.0', or 'CPU_BF16' for a host device
    label: str  # what reports print, such as 'CPU_F32 [host, f32, core 0]'
    precision: str  # 'f32', 'bf16' or 'f16'
    num_threads: int  # of this process that may compute at once for it
    core: int | None  # see above; None where it is not confined to one
    properties: Mapping[str, Any] = dataclasses.field(hash=False)  # compile properties, JSON-able
    host: bool  # one of several devices made of one CPU


def what_is_wrong(device: Device) -> str:
    """Says what of a device is not as `resolve` makes them, in a few words; '' if nothing is.

    Fields may be of any type: they come from a file. Of OpenVINO's properties those alone are
    right that are used here, as others write files, or read them.
    """
    name, properties = device.name, device.properties
    kinds = {
        "name": isinstance(name, str) and bool(re.fullmatch(r"[A-Z][\w.]*", name)),
        "label": isinstance(device.label, str),
        "precision": _PROPERTIES["INFERENCE_PRECISION_HINT"](device.precision),
        "num_threads": _is_count(device.num_threads),
        "core": device.core is None or _is_count(device.core, least=0),
        "properties": isinstance(properties, dict),
        "host": isinstance(device.host, bool),
    }
    wrong = [field for field, right in kinds.items() if not right]
    if wrong:
        return f"a {wrong[0]} that is none"
    if device.host and not name.startswith("CPU"):
        return f"the name {name!r}, but is made of the CPU"
    for key, value in properties.items():
        if key not in _PROPERTIES:
            return f"the property {key[:40]!r}; known are {', '.join(_PROPERTIES)}"
        if not _PROPERTIES[key](value):
            return f"a value of {key} that is none"
    return ""


def resolve(spec: str, *, concurrent: bool = False) -> tuple[Device, ...]:
    """The devices that `spec` names, in the order of a placement's indices.

    Args:
      spec: 'auto' (all of OpenVINO's devices if there are two or more, else host devices), 'host'
        (two devices made of the CPU, in f32 and in bf16), the same with other precisions, such as
        'host:bf16,bf16', or names of OpenVINO's devices such as 'CPU,GPU.0'.
      concurrent: that the devices are to work at the same time: the host devices of 'auto' are
        then alike, both in the faster precision.

    Raises:
      UserError: a device is unknown or named twice, or `spec` describes hardware ('roofline:').
    """
    spec = spec.strip()
    if spec.startswith("roofline:"):
        raise UserError(
            f"devices {spec!r} are described, not present, and cannot be measured; "
            f"give {_valid(ov.Core())}"
        )
    core = ov.Core()
    available = core.available_devices
    if spec.startswith("host:"):
        return _host(tuple(p.strip() for p in spec.removeprefix("host:").split(",")), core)
    if spec == "host" or (spec == "auto" and len(available) < 2):
        precisions = _host_precisions(core)
        alike = spec == "auto" and concurrent
        return _host((precisions[-1],) * 2 if alike else (precisions[0], precisions[-1]), core)
    names = available if spec == "auto" else [name.strip() for name in spec.split(",")]
    unknown = [name for name in names if name not in available]
    if unknown:
        raise UserError(f"unknown device {unknown[0]!r} in {spec!r}; give {_valid(core)}")
    if len(set(names)) < len(names):
        raise UserError(f"devices {spec!r} name one device twice; give {_valid(core)}, each once")
    return tuple(_real(core, name) for name in names)


def in_f32(devices: Sequence[Device], names: Collection[str]) -> tuple[Device, ...]:
    """The same devices, of which those named compute in f32; labels say instead of what.

    A host device is then called as `resolve` calls it, after all of their precisions.
    """
    made = [_in_f32(device) if device.name in names else device for device in devices]
    precisions = [device.precision for device in made]
    return tuple(
        _renamed(device, _host_name(precisions, i)) if device.host else device
        for i, device in enumerate(made)
    )


def all_threads(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Returns what a placement on `devices` is to be compared with beside each of them alone.

    Host devices have one thread each, so the whole CPU is another competitor: in f32, and in the
    other precisions of the host devices, never in a coarser one than they compute in. Real devices
    compete as they are, and the CPU with them if it is not among them.
    """
    core = ov.Core()
    devices = tuple(devices)
    if any(device.host for device in devices):
        used = {"f32", *(device.precision for device in devices)}
        return tuple(_whole_cpu(p) for p in _host_precisions(core) if p in used)
    return () if any(device.name == "CPU" for device in devices) else (_real(core, "CPU"),)


def streaming(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Returns how OpenVINO serves a stream of requests by itself, on the same hardware.

    Each plug-in as its hint THROUGHPUT has it, which chooses how many requests are under way; the
    CPU in both precisions where host devices are made of it. Of several real devices also what uses
    all of them: AUTO with CUMULATIVE_THROUGHPUT, and HETERO with the model cut into a pipeline.
    """
    devices = tuple(devices)
    own = tuple(device for device in devices if not device.host)
    served = [_in_a_stream(device) for device in (*own, *all_threads(devices))]
    if len(own) > 1:
        names = ",".join(device.name for device in own)
        coarsest = max(own, key=lambda device: device.precision != "f32")
        together = (
            ("AUTO", {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"}),
            ("HETERO", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"} | _THROUGHPUT),
        )
        for plugin, properties in together:
            label = f"{plugin}:{names} [{', '.join(properties.values())}]"
            every = dataclasses.replace(coarsest, name=f"{plugin}:{names}", label=label)
            threads = len(_cores())
            served.append(dataclasses.replace(every, num_threads=threads, properties=properties))
    return tuple(served)


def with_references(
    spec: str, concurrent: bool, streams: bool
) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """The devices of `resolve`, and what placements on them have to be compared with.

    Args:
      spec, concurrent: as of `resolve`.
      streams: that requests come in a stream, which OpenVINO has settings for.
    """
    devices = resolve(spec, concurrent=concurrent)
    references = all_threads(devices)
    return devices, references + streaming(devices) if streams else references


def is_streaming(device: Device) -> bool:
    """Whether a device is one of `streaming`, which has several requests under way."""
    return device.properties.get("PERFORMANCE_HINT", "").endswith("THROUGHPUT")


def reference_device() -> Device:
    """The device whose outputs count as right: the plain CPU in f32, with all its threads."""
    return _whole_cpu("f32")


def is_cpu(device: Device) -> bool:
    """Whether a device is the CPU's plug-in: all such share their memory, and what they support."""
    return device.host or device.name == "CPU"


def is_reference(device: Device) -> bool:
    """Whether a device is the reference but for its threads: the CPU's plug-in, in f32."""
    return device.precision == "f32" and is_cpu(device)


def open_core(devices: Iterable[Device]) -> ov.Core:
    """An `ov.Core` that knows `devices`."""
    core = ov.Core()
    register(core, devices)
    return core


def register(core: ov.Core, devices: Iterable[Device]) -> None:
    """Registers the CPU plug-in under the names of those host devices that `core` lacks."""
    for device in devices:
        if device.host and device.name not in core.available_devices:
            core.register_plugin(CPU_PLUGIN, device.name)


def describe_machine() -> dict[str, Any]:
    """Versions, devices, processor and load, for the record; JSON-able."""
    core = ov.Core()
    return {
        "openvino": ov.get_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(_cores()),
        "load_average": list(os.getloadavg()),
        "devices": {
            name: {
                "full_name": core.get_property(name, "FULL_DEVICE_NAME"),
                "capabilities": list(core.get_property(name, "OPTIMIZATION_CAPABILITIES")),
            }
            for name in core.available_devices
        },
    }


def hardware() -> dict[str, Any]:
    """Returns what measurements depend on beside model and placement; JSON-able."""
    machine = describe_machine()
    kept = {key: machine[key] for key in ("processor", "openvino", "devices")}
    return kept | {"cores": _cores()}


def _valid(core: ov.Core) -> str:
    available = ", ".join(core.available_devices)
    return f"'auto', 'host', 'host:f32,f32', or a comma list of the available devices ({available})"


def _cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            models = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        models = []
    return models[0] if models else platform.processor()


def _host_precisions(core: ov.Core) -> tuple[str, ...]:
    has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ("f32", "bf16") if has_bf16 else ("f32",)


def _host(precisions: tuple[str, ...], core: ov.Core) -> tuple[Device, ...]:
    """A device of one thread for each precision, on successive cores."""
    cores, valid = _cores(), _host_precisions(core)
    wrong = [precision for precision in precisions if precision not in valid]
    if wrong:
        raise UserError(
            f"host devices cannot compute in {wrong[0]!r} here; give {' or '.join(valid)}"
        )
    if len(precisions) > max(2, len(cores)):
        raise UserError(
            f"{len(precisions)} host devices, but this process may use {len(cores)} cores; give "
            "as many precisions as cores at most"
        )
    note = "" if len(valid) > 1 else ", no bf16 here"
    devices = []
    for i, precision in enumerate(precisions):
        name = _host_name(precisions, i)
        own = cores[i % len(cores)]
        devices.append(
            Device(
                name=name,
                label=f"{name} [host, {precision}{note}, core {own}]",
                precision=precision,
                num_threads=1,
                core=own,
                properties=_cpu_properties(precision, 1),
                host=True,
            )
        )
    return tuple(devices)


def _host_name(precisions: Sequence[str], i: int) -> str:
    return f"CPU_{precisions[i].upper()}" + f"_{i}" * (precisions.count(precisions[i]) > 1)


def _in_f32(device: Device) -> Device:
    before, _, after = device.label.rpartition(device.precision)
    return dataclasses.replace(
        device,
        label=f"{before}f32 as {device.precision} is wrong{after}",
        precision="f32",
        properties={**device.properties, "INFERENCE_PRECISION_HINT": "f32"},
    )


def _renamed(device: Device, name: str) -> Device:
    label = name + device.label.removeprefix(device.name)
    return dataclasses.replace(device, name=name, label=label)


def _whole_cpu(precision: str) -> Device:
    threads = len(_cores())
    return Device(
        name="CPU",
        label=f"CPU [{precision}, all {threads} threads]",
        precision=precision,
        num_threads=threads,
        core=None,
        properties=_cpu_properties(precision, threads),
        host=False,
    )


def _real(core: ov.Core, name: str) -> Device:
    """A device of OpenVINO's in the precision that it chooses itself."""
    precision = core.get_property(name, "INFERENCE_PRECISION_HINT").get_type_name()
    if name == "CPU":
        return _whole_cpu(precision)
    if precision not in _PRECISIONS:  # left open until a model is compiled: accelerators use f16
        precision = "f16"
    return Device(
        name=name,
        label=f"{name} [{core.get_property(name, 'FULL_DEVICE_NAME')}, {precision}]",
        precision=precision,
        num_threads=1,
        core=None,
        properties={"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"},
        host=False,
    )


def _in_a_stream(device: Device) -> Device:
    """The device in the same precision, with its threads and requests left to the plug-in."""
    before, _, _ = device.label.partition(" [")
    return dataclasses.replace(
        device,
        label=f"{before} [{device.precision}, THROUGHPUT]",
        properties={"INFERENCE_PRECISION_HINT": device.precision} | _THROUGHPUT,
    )


def _cpu_properties(precision: str, num_threads: int) -> dict[str, Any]:
    """Without EXCLUSIVE_ASYNC_REQUESTS off, HETERO ignores the number of threads once it splits."""
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": num_threads,
        "ENABLE_CPU_PINNING": False,
        "EXCLUSIVE_ASYNC_REQUESTS": False,
    }
