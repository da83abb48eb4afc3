"""Devices that a network is placed on, and a description of the machine that they belong to.

A specification is one list, `[host:]NAME[:memory=SIZE],...`, or one of the words 'auto', 'host' and
'precisions' (`resolve`).

Host devices let a placement run for real, transfers included, where the only OpenVINO device is the
CPU: its plug-in is registered again for each of them, as CPU_F32 and CPU_BF16, with one thread and
one precision, so that the costs of operations differ. They say nothing about accelerators; their
labels always contain 'host'. HETERO runs the parts of one inference one after another, so that a
host device has the machine to itself while it computes. Pinning by OpenVINO is off, because it ties
every model with one thread to the first core. `Device.core` is the core that the *concurrent*
executor binds the device's thread to; under HETERO, and on Windows and macOS, the system chooses.

The devices of 'precisions' are made in the same way, but each has all threads: a placement then
chooses the precision of each operation on the processor as it is used in practice.

A device may have a limit of memory: the user's, or the size that OpenVINO reports for a GPU or an
NPU. Placements that need more are infeasible.
"""

import dataclasses
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import openvino as ov
import psutil

from placement import arguments, files
from placement.errors import UserError
from placement.runtime import processors

CPU_PLUGIN = "openvino_intel_cpu_plugin"
PRECISIONS = "precisions"  # the devices that are the whole CPU in each of its precisions
_PRECISIONS = ("f32", "f16", "bf16")
_THROUGHPUT = {"PERFORMANCE_HINT": "THROUGHPUT"}
# The thread that calls `infer` computes. With one thread of the plug-in's, `infer` discards every
# exception (OpenVINO 2026.4), and the outputs are those of an earlier inference.
# A model with idle threads is also slower: a few thousand of them make a waiting thread wake up in
# 70 us instead of 25 us, and the candidate measured last would seem the slowest.
_CALLING_THREAD = {"NUM_STREAMS": 0}
_MEMORY = ":memory="  # in the specification of devices, before the limit of one
# OpenVINO's properties with the bytes of a device's memory.
_MEMORY_PROPERTIES = ("GPU_DEVICE_TOTAL_MEM_SIZE", "NPU_DEVICE_TOTAL_MEM_SIZE")


# Names of the properties that devices are compiled with -> tests of their values.
_PROPERTIES: Mapping[str, Callable[[Any], bool]] = {
    "INFERENCE_PRECISION_HINT": lambda value: value in _PRECISIONS,
    "INFERENCE_NUM_THREADS": lambda value: type(value) is int and 0 < value < 2**31,
    "ENABLE_CPU_PINNING": lambda value: type(value) is bool,
    "EXCLUSIVE_ASYNC_REQUESTS": lambda value: type(value) is bool,
    "NUM_STREAMS": lambda value: type(value) is int and value == 0,
    "PERFORMANCE_HINT": lambda value: value == "LATENCY",
}
# The schema of a device in a file.
_SCHEMA = {
    **{"name": str, "details": [str], "precision": str, "num_threads": int, "core": (int, None)},
    **{"properties": {str: object}, "host": bool, "capacity_bytes": (int, None)},
}


@dataclasses.dataclass(frozen=True)
class Device:
    """A device, and the properties that models are compiled with for it."""

    name: str  # OpenVINO's name, such as 'GPU.0', or 'CPU_BF16' for a host device
    details: tuple[str, ...]  # for reports, such as ('host', 'f32', 'core 0')
    precision: str  # 'f32', 'bf16' or 'f16'
    num_threads: int  # threads of this process that may compute at once for it
    core: int | None  # the only core that its thread uses in the executor; None: any
    properties: Mapping[str, Any] = dataclasses.field(hash=False)  # compile properties, JSON-able
    host: bool  # one of several devices made of one CPU
    capacity_bytes: int | None = None  # memory that placements may occupy; None: no limit

    @property
    def label(self) -> str:
        """The name in reports, such as 'CPU_F32 [host, f32, core 0]'."""
        return f"{self.name} [{', '.join(self.details)}]"


def from_record(record: Mapping[str, Any]) -> Device:
    """Makes the device that a file describes, such as one of those that `resolve` makes.

    Only those properties of OpenVINO are valid that this module uses: others write or read files.

    Raises:
      ValueError: the record is not valid.
    """
    files.check(record, _SCHEMA, "a device")
    name, precision, properties = record["name"], record["precision"], record["properties"]
    is_named = re.fullmatch(r"CPU[\w.]*" if record["host"] else r"[A-Z][\w.]*", name)
    if not is_named or precision not in _PRECISIONS or record["num_threads"] < 1:
        raise ValueError(f"the device {name[:40]!r} has an invalid name, precision or num_threads")
    for key, value in properties.items():
        if key not in _PROPERTIES:
            known = ", ".join(_PROPERTIES)
            raise ValueError(f"a device has the property {key[:40]!r}; known are {known}")
        if not _PROPERTIES[key](value):
            raise ValueError(f"a device has an invalid value of {key}")
    return Device(**{**record, "details": tuple(record["details"])})


def resolve(spec: str) -> tuple[Device, ...]:
    """Returns the devices that `spec` names, in the order of a placement's indices.

    Args:
      spec: 'auto' (all of OpenVINO's devices, or 'host' if there is only the CPU), 'host' (two
        devices made of the CPU, in f32 and in bf16), 'host:' with other precisions, such as
        'host:bf16,bf16', 'precisions' (the whole CPU in f32 and in bf16), or names of OpenVINO's
        devices, such as 'CPU,GPU.0'. A name or precision may be followed by the device's limit of
        memory, as in 'CPU,GPU.0:memory=6GB' and 'host:f32:memory=40MB,f32:memory=60MB'; that of
        'host:memory=40MB' is each device's.

    Raises:
      UserError: a device is unknown or named twice, `spec` describes hardware ('roofline:'), the
        CPU has no second precision, or a limit of memory is not a size, belongs to no device, or
        is more than the device has.
    """
    names, limits_bytes = list[str](), list[int | None]()
    for entry in spec.strip().split(","):
        name, separator, size = entry.partition(_MEMORY)
        name = name.strip()
        if separator and name in ("", "auto", PRECISIONS):
            raise UserError(
                f"the limit of memory {entry.strip()!r} in devices {spec!r} is not that of one "
                "device; write it after a device's name or 'host', such as "
                "'CPU,GPU.0:memory=6GB' or 'host:memory=40MB'"
            )
        names.append(name)
        limits_bytes.append(arguments.parse_bytes(size, f"devices {spec!r}") if separator else None)
    core = ov.Core()
    available, cpu_precisions = core.available_devices, _host_precisions(core)
    plain_spec = ",".join(names)
    valid_specs = (
        "'auto', 'host', 'host:f32,f32', 'precisions', or a comma list of the available devices "
        f"({', '.join(available)})"
    )
    if plain_spec.startswith("roofline:"):
        raise UserError(
            f"devices {plain_spec!r} are described, not present, and cannot be measured; "
            f"give {valid_specs}"
        )
    if names[0].startswith("host:"):
        names[0] = names[0].removeprefix("host:").strip()
        devices = _make_host_devices(names, cpu_precisions)
    elif names == ["host"] or (names == ["auto"] and len(available) < 2):
        devices = _make_host_devices([cpu_precisions[0], cpu_precisions[-1]], cpu_precisions)
    elif names == [PRECISIONS]:
        if len(cpu_precisions) < 2:
            raise UserError(
                f"devices={PRECISIONS!r} place operations in f32 or bf16, but this processor "
                "computes in f32 alone; set devices='CPU'"
            )
        devices = []
        for precision, name in zip(cpu_precisions, _host_names(cpu_precisions), strict=True):
            cpu = _make_whole_cpu(precision)
            details = PRECISIONS, *cpu.details
            devices.append(dataclasses.replace(cpu, name=name, details=details, host=True))
    else:
        names = available if names == ["auto"] else names
        unknown_names = [name for name in names if name not in available]
        if unknown_names:
            raise UserError(
                f"unknown device {unknown_names[0]!r} in {plain_spec!r}; set {valid_specs}"
            )
        if len(set(names)) < len(names):
            raise UserError(
                f"devices {plain_spec!r} name one device twice; set {valid_specs}, each once"
            )
        devices = [_make_device(core, name) for name in names]
    if len(limits_bytes) == 1:
        limits_bytes *= len(devices)  # 'host:memory=40MB' limits each device
    for i, limit_bytes in enumerate(limits_bytes):
        if limit_bytes is not None:
            available_bytes = devices[i].capacity_bytes
            if available_bytes is not None and limit_bytes > available_bytes:
                raise UserError(
                    f"devices {spec!r} give {devices[i].name} {limit_bytes} bytes of memory, but "
                    f"it has {available_bytes}; set memory={available_bytes}B or less"
                )
            devices[i] = dataclasses.replace(devices[i], capacity_bytes=limit_bytes)
    return tuple(devices)


def _make_host_devices(precisions: Sequence[str], cpu_precisions: Sequence[str]) -> list[Device]:
    """Makes a device of one thread for each precision, on successive cores."""
    cores = processors.list_allowed_cores()
    invalid = [precision for precision in precisions if precision not in cpu_precisions]
    if invalid:
        valid = " or ".join(cpu_precisions)
        raise UserError(f"host devices cannot compute in {invalid[0]!r} here; set {valid}")
    if len(precisions) > max(2, len(cores)):
        raise UserError(
            f"{len(precisions)} host devices, but this process may use {len(cores)} cores; set "
            "at most as many precisions as cores"
        )
    devices = []
    for i, (precision, name) in enumerate(zip(precisions, _host_names(precisions), strict=True)):
        core = cores[i % len(cores)] if processors.CAN_BIND_THREADS else None
        details = ["host", precision]
        details += ["no bf16 here"] if len(cpu_precisions) < 2 else []
        details += [] if core is None else [f"core {core}"]
        properties = _cpu_properties(precision, 1)
        devices.append(Device(name, tuple(details), precision, 1, core, properties, host=True))
    return devices


def replace_with_f32(devices: Sequence[Device], names: Collection[str]) -> tuple[Device, ...]:
    """Returns the same devices, of which those with the given names compute in f32.

    Labels mention the precision that was replaced. Host devices get the names that `resolve` gives
    to devices with these precisions.
    """
    replaced = []
    for device in devices:
        if device.name in names:
            precision = device.precision
            in_f32 = f"f32 as {precision} is wrong"
            device = dataclasses.replace(
                device,
                details=tuple(in_f32 if text == precision else text for text in device.details),
                precision="f32",
                properties={**device.properties, "INFERENCE_PRECISION_HINT": "f32"},
            )
        replaced.append(device)
    host_names = _host_names([device.precision for device in replaced])
    return tuple(
        dataclasses.replace(device, name=name) if device.host else device
        for device, name in zip(replaced, host_names, strict=True)
    )


def list_references(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Returns the devices that a placement on `devices` is compared with, next to each of them.

    Host devices are parts of the CPU, so the whole CPU is a competitor: in f32, and in the other
    precisions of the host devices, but never in a coarser precision than theirs. Real devices
    compete as they are, and the CPU joins them if it is not among them.
    """
    core = ov.Core()
    devices = tuple(devices)
    if any(device.host for device in devices):
        used = {"f32", *(device.precision for device in devices)}
        return tuple(_make_whole_cpu(p) for p in _host_precisions(core) if p in used)
    return () if any(device.name == "CPU" for device in devices) else (_make_device(core, "CPU"),)


def list_throughput_references(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Returns the ways in which OpenVINO itself serves a stream of requests on the same hardware.

    These are each plug-in with the hint THROUGHPUT, which chooses the number of requests under way
    (the CPU in both precisions if host devices are made of it). With several real devices there are
    two more, which use all of them: AUTO with CUMULATIVE_THROUGHPUT, and HETERO with the model cut
    into a pipeline.
    """
    devices = tuple(devices)
    real_devices = tuple(device for device in devices if not device.host)
    served = [
        dataclasses.replace(
            device,
            details=(device.precision, "THROUGHPUT"),
            # Threads and requests are left to the plug-in.
            properties={"INFERENCE_PRECISION_HINT": device.precision} | _THROUGHPUT,
        )
        for device in (*real_devices, *list_references(devices))
    ]
    if len(real_devices) > 1:
        names = ",".join(device.name for device in real_devices)
        coarsest = max(real_devices, key=lambda device: device.precision != "f32")
        for plugin, properties in (
            ("AUTO", {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"}),
            ("HETERO", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"} | _THROUGHPUT),
        ):
            combined = dataclasses.replace(
                coarsest,
                name=f"{plugin}:{names}",
                details=tuple(properties.values()),
                num_threads=len(processors.list_allowed_cores()),
                properties=properties,
            )
            served.append(combined)
    return tuple(served)


def resolve_with_references(
    spec: str, objective: str
) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """Returns the devices of `resolve`, and those that placements on them are compared with.

    The latter include OpenVINO's own ways to serve a stream of requests if that is the objective.
    """
    devices = resolve(spec)
    references = list_references(devices)
    if objective == "max_load":
        references += list_throughput_references(devices)
    return devices, references


def is_throughput_reference(device: Device) -> bool:
    """Returns whether a device is one of `list_throughput_references`."""
    return device.properties.get("PERFORMANCE_HINT", "").endswith("THROUGHPUT")


def reference_device() -> Device:
    """Returns the device whose outputs count as correct: the plain CPU in f32, all its threads."""
    return _make_whole_cpu("f32")


def is_cpu(device: Device) -> bool:
    """Returns whether a device is the CPU plug-in.

    All such devices share their memory, and support the same operations.
    """
    return device.host or device.name == "CPU"


def is_reference(device: Device) -> bool:
    """Returns whether a device is the CPU plug-in in f32, as the reference device is."""
    return device.precision == "f32" and is_cpu(device)


def adapt_to_process(device: Device) -> Device:
    """Returns a device of a file with the core and the properties that this process needs for it.

    In a process with one core the CPU plug-in has one thread, whatever the number asked for.
    """
    cores = processors.list_allowed_cores()
    if device.core is not None and not processors.CAN_BIND_THREADS:
        device = dataclasses.replace(device, core=None)
    elif device.core is not None and device.core not in cores:  # of another machine
        device = dataclasses.replace(device, core=cores[device.core % len(cores)])
    if is_cpu(device) and len(cores) == 1:
        properties = {**device.properties, **_CALLING_THREAD}
        device = dataclasses.replace(device, properties=properties)
    return device


def register_devices(core: ov.Core, devices: Iterable[Device]) -> None:
    """Registers the CPU plug-in under the names of those host devices that `core` lacks."""
    for device in devices:
        if device.host and device.name not in core.available_devices:
            core.register_plugin(CPU_PLUGIN, device.name)


def describe_machine() -> dict[str, Any]:
    """Returns versions, devices, processor and load, for the record; JSON-able."""
    core = ov.Core()
    return {
        "openvino": ov.get_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": core.get_property("CPU", "FULL_DEVICE_NAME"),
        "cores": len(processors.list_allowed_cores()),
        "load_average": list(psutil.getloadavg()),
        "devices": {
            name: {
                "full_name": core.get_property(name, "FULL_DEVICE_NAME"),
                "capabilities": list(core.get_property(name, "OPTIMIZATION_CAPABILITIES")),
            }
            for name in core.available_devices
        },
    }


def describe_hardware() -> dict[str, Any]:
    """Returns what measurements depend on apart from model and placement; JSON-able."""
    machine = describe_machine()
    stable_fields = {key: machine[key] for key in ("processor", "openvino", "devices")}
    return stable_fields | {"cores": processors.list_allowed_cores()}


def _host_precisions(core: ov.Core) -> tuple[str, ...]:
    """Returns the precisions that the CPU computes in, the slowest first."""
    has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ("f32", "bf16") if has_bf16 else ("f32",)


def _host_names(precisions: Sequence[str]) -> list[str]:
    """Returns 'CPU_F32' and the like, or 'CPU_F32_0', 'CPU_F32_1' if a precision repeats."""
    return [
        f"CPU_{precision.upper()}" + (f"_{i}" if precisions.count(precision) > 1 else "")
        for i, precision in enumerate(precisions)
    ]


def _make_whole_cpu(precision: str) -> Device:
    num_threads = len(processors.list_allowed_cores())
    details = precision, f"all {num_threads} threads"
    properties = _cpu_properties(precision, num_threads)
    return Device("CPU", details, precision, num_threads, None, properties, host=False)


def _make_device(core: ov.Core, name: str) -> Device:
    """Makes one of OpenVINO's devices, in the precision that OpenVINO chooses for it."""
    precision = core.get_property(name, "INFERENCE_PRECISION_HINT").get_type_name()
    if name == "CPU":
        return _make_whole_cpu(precision)
    if precision not in _PRECISIONS:  # open until a model is compiled: accelerators then use f16
        precision = "f16"
    supported = core.get_property(name, "SUPPORTED_PROPERTIES")
    sizes = [core.get_property(name, key) for key in _MEMORY_PROPERTIES if key in supported]
    return Device(
        name=name,
        details=(core.get_property(name, "FULL_DEVICE_NAME"), precision),
        precision=precision,
        num_threads=1,
        core=None,
        properties={"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"},
        host=False,
        capacity_bytes=int(sizes[0]) or None if sizes else None,  # 0: it is not known
    )


def _cpu_properties(precision: str, num_threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": num_threads,
        # Two models of one thread each would both be pinned to core 0.
        "ENABLE_CPU_PINNING": False,
        # HETERO turns this on when it splits a model, and then ignores the number of threads.
        "EXCLUSIVE_ASYNC_REQUESTS": False,
        **(_CALLING_THREAD if num_threads == 1 else {}),
    }
