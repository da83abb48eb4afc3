"""A deployed placement: a folder that OpenVINO runs, and what loads it.

The folder holds

    model.xml, model.bin   the model; its runtime information, under 'placement', says how to run it
    compiled.blob          the same compiled, where the devices can export it
    compiled.json          what importing the blob needs
    deploy.json, deploy.md what was checked, with figures (`placement.runtime.deployment.preflight`)

OpenVINO forgets the devices of operations when it writes a model, but not runtime information of
the model nor the names of operations; so the devices are written there, and put back on loading.
Every operation of the file has a device, constants included, which each device has its own of: a
loader only has to copy labels (docs/DEPLOY.md has one without this package).

There are three forms. 'single': one device runs all. 'hetero': the placement, one part after
another, as HETERO runs it. 'concurrent': the placement, its devices at the same time, which needs
this package. A file has a form that the measurement decided for and one for OpenVINO alone; they
differ if the first is 'concurrent'.
"""

import dataclasses
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime.deployment import description, netron, network
from placement.runtime.deployment.description import CONCURRENT, HETERO, Description
from placement.runtime.deployment.description import SINGLE as SINGLE
from placement.runtime.deployment.network import Network
from placement.runtime.devices import Device
from placement.runtime.errors import essence, silent_stderr, why
from placement.runtime.execution import hetero
from placement.runtime.execution.executor import Executor, InferRequest
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.models import operations, serialization
from placement.runtime.models.fingerprint import few

MODEL, BLOB, IMPORT = "model.xml", "compiled.blob", "compiled.json"
# How long `load` waits while other processes replace the files, while a model.bin has no model.xml
# beside it, as when they are replaced one by one, and between two attempts.
_REPLACED_S, _ABSENT_S, _PAUSE_S = 10.0, 2.0, 0.05
_REMEDY = "deploy it again"


class Artifact(NamedTuple):
    """What is deployed."""

    model: ov.Model  # `frontend.prepare`d
    affinity: hetero.Affinity  # what the placement says; not read where `alone` is given
    segments: tuple[Segment, ...]  # of the placement; none where it has no 'concurrent' form
    devices: tuple[Device, ...]  # what it may run on, in HETERO's order of preference
    form: str  # what is loaded unless something else is asked for
    alone: str | None  # the device of form 'single', or None where OpenVINO alone runs 'hetero'
    decision: str  # why this form, for people
    notes: Mapping[str, str]  # where it comes from, for people


def save(artifact: Artifact, folder: Path) -> str:
    """Writes the model and the compiled blob into an existing folder.

    Returns:
      Why there is no blob, '' if there is one.

    Raises:
      UserError: the placement does not fit the model.
      OSError: the folder cannot hold the model.
      RuntimeError: OpenVINO cannot read or compile the model.
    """
    model, told = _described(artifact)
    with serialization.naming_free_space(folder):
        # Its default is to round weights to f16.
        ov.save_model(model, folder / MODEL, compress_to_fp16=False)
    _show_devices(folder / MODEL, told)
    description.seal(folder / MODEL)
    core = devices_lib.open_core(told.devices)
    compiled = _compile(core, core.read_model(folder / MODEL), told)
    unable = [device.name for device in told.serial_devices if not _exports(core, device)]
    if unable:
        return f"{few(unable)} cannot export what it compiled"
    try:
        files.write_bytes(folder / BLOB, compiled.export_model().getvalue())
    except RuntimeError as error:
        return essence(error)
    needed = {
        "file": BLOB,
        "form": told.serial_form,
        "device": told.device,
        "config": told.config,
        "register": description.registered(told.serial_devices),
        "openvino": ov.get_version(),
        "decision": artifact.decision,
        **artifact.notes,
    }
    files.write_bytes(folder / IMPORT, json.dumps(needed, indent=2).encode() + b"\n")
    return ""


def load(
    path: str | os.PathLike[str],
    devices: Mapping[str, str] | None = None,
    *,
    concurrent: bool | None = None,
) -> Network:
    """Compiles a deployed model as it was decided to run, every operation on its device.

    A folder that another process replaces meanwhile is read again, so that all of what is read is
    of one deployment.

    Args:
      path: the folder, or the model.xml in it.
      devices: names of this machine's devices for the names that the file uses, where they differ:
        {'GPU.0': 'GPU.1'}.
      concurrent: True for the placement with its devices at the same time, False for the form that
        OpenVINO runs alone; None for what the measurement decided.

    Raises:
      UserError: no such file, no placement in it, one that is damaged or not as it was written, a
        device that is not present, or no concurrent form.
      OSError: a file cannot be read.
    """
    core = ov.Core()
    file, model, told = _read_unchanged(core, Path(path))
    told = _renamed(told, devices or {})
    _check_present(core, told)
    devices_lib.register(core, told.devices)
    form = {None: told.form, True: CONCURRENT, False: told.serial_form}[concurrent]
    if form == CONCURRENT and not told.segments:
        decision = description.decision(model)
        # A placement that was not deployed has no concurrent form, however it was placed.
        other = ", or place it with --config.backend=concurrent and deploy it again"
        raise UserError(
            f"{str(file)!r} has no concurrent form: it was deployed on the verdict {decision!r}; "
            "load it without concurrent=True"
            f"{other if told.form == HETERO else ''}"
        )
    try:
        if form == CONCURRENT:
            return _concurrent(core, model, told)
        return Network(model, _compile(core, model, told), form=form)
    except RuntimeError as error:
        raise UserError(
            f"{str(file)!r} cannot be compiled for {told.device}: {essence(error)}; "
            "deploy it again on this machine"
        ) from error


def import_blob(folder: Path) -> ov.CompiledModel:
    """Imports the blob of a folder with what compiled.json says, in an `ov.Core` of its own."""
    needed = files.read_json(folder / IMPORT, {"register": [str]}, remedy=_REMEDY)
    core = ov.Core()
    for name in needed["register"]:
        core.register_plugin(devices_lib.CPU_PLUGIN, name)
    blob = files.read_bytes(folder / needed["file"], remedy=_REMEDY)
    return core.import_model(blob, needed["device"], needed["config"])


def _described(artifact: Artifact) -> tuple[ov.Model, Description]:
    """A copy of the model with its description written into it."""
    by_name = {device.name: device for device in artifact.devices}
    model = artifact.model.clone()
    labels: dict[str, str] = {}
    if artifact.alone is None:
        used = [name for name in by_name if name in set(artifact.affinity.values())]
        model = hetero.label(artifact.model, artifact.affinity, used)
        _make_names_unique(model)
        ops = model.get_ordered_ops()
        labels = {op.get_friendly_name(): op.get_rt_info()["affinity"].astype(str) for op in ops}
        device = f"HETERO:{','.join(used)}"
    else:
        device = artifact.alone
    constant = operations.constant_names(artifact.model)
    segments = tuple(
        Segment(segment.device, tuple(name for name in segment.ops if name not in constant))
        for segment in artifact.segments
    )
    told = Description(artifact.form, device, labels, segments, artifact.devices)
    description.write(model, told, {"decision": artifact.decision, **artifact.notes})
    return model, told


def _show_devices(file: Path, told: Description) -> None:
    """Writes devices where viewers show them; what loads the file goes by its runtime information.

    With one device the operations have no labels.
    """
    text = files.read_bytes(file, remedy=_REMEDY)
    files.write_bytes(file, netron.annotate(text, told.affinity, otherwise=told.device))


def _renamed(told: Description, devices: Mapping[str, str]) -> Description:
    """The same with other names of devices; what a host device is renamed to is to be present."""
    names = [device.name for device in told.devices]
    unknown = [name for name in devices if name not in names]
    if unknown:
        raise UserError(f"devices= renames {few(unknown)}; the file uses {', '.join(names)}")
    to = {name: devices.get(name, name) for name in names}
    if len(set(to.values())) < len(to):
        raise UserError(f"devices= gives two devices one name: {dict(to)}; give each its own")
    prefix, _, listed = told.device.rpartition(":")
    return told._replace(
        device=prefix + ":" * bool(prefix) + ",".join(to[name] for name in listed.split(",")),
        affinity={op: to[name] for op, name in told.affinity.items()},
        segments=tuple(Segment(to[device], ops) for device, ops in told.segments),
        devices=tuple(
            dataclasses.replace(d, name=to[d.name], host=d.host and d.name not in devices)
            for d in told.devices
        ),
    )


def _check_present(core: ov.Core, told: Description) -> None:
    """Host devices are made on any machine with a CPU."""
    present = core.available_devices
    absent = [d.name for d in told.devices if d.name not in present and not d.host]
    if absent:
        raise UserError(
            f"device {few(absent)} is not present; here are {', '.join(present)}: rename it, "
            f"such as devices={{{absent[0]!r}: {present[-1]!r}}}, or deploy on this machine"
        )


def _read_unchanged(core: ov.Core, path: Path) -> tuple[Path, ov.Model, Description]:
    """Reads a model and its description from files that stay the same meanwhile.

    Returns:
      The model's file, the model and the description.
    """
    began_s = time.monotonic()
    while True:
        file = path / MODEL if path.is_dir() else path
        version = _version(file)
        try:
            model = _read(core, file)
            details = description.read(model, file)
            failure: Exception | None = None
        except (UserError, OSError) as error:
            failure = error
        is_replaced = _version(file) != version
        if failure is None and not is_replaced:
            return file, model, details
        failure = failure or UserError(f"{str(file)!r} changes all the time; load it later")
        is_absent = not file.exists() and file.with_suffix(".bin").exists()
        limit_s = _REPLACED_S if is_replaced else _ABSENT_S * is_absent
        if time.monotonic() - began_s >= limit_s:
            raise failure
        time.sleep(_PAUSE_S)


def _version(file: Path) -> tuple[tuple[int, ...], ...] | None:
    """Returns what tells a model's files from those that replace them; None without files."""
    try:
        stats = [os.stat(path) for path in (file, file.with_suffix(".bin"))]
    except (OSError, ValueError):  # ValueError: a path that no file has
        return None
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def _read(core: ov.Core, file: Path) -> ov.Model:
    if not file.is_file():
        raise UserError(
            f"no {str(file)!r}; give the folder that --task=deploy wrote, or run that task again "
            "if it was interrupted"
        )
    if file.suffix != ".xml":
        raise UserError(f"{str(file)!r} is no {MODEL}; give the folder that --task=deploy wrote")
    description.check_seal(file)
    try:
        with silent_stderr():
            return core.read_model(file)
    except RuntimeError as error:
        reason = why(error, "it is not complete")
        raise UserError(f"{str(file)!r} cannot be read: {reason}; deploy it again") from error


def _compile(core: ov.Core, model: ov.Model, told: Description) -> ov.CompiledModel:
    """The form that OpenVINO runs alone."""
    labelled = model.clone()
    if told.serial_form == HETERO:
        for op in labelled.get_ops():
            op.get_rt_info()["affinity"] = told.affinity[op.get_friendly_name()]
    return core.compile_model(labelled, told.device, told.config)


def _concurrent(core: ov.Core, model: ov.Model, told: Description) -> Network:
    used = {segment.device for segment in told.segments}
    devices = [_on_a_core(d, i) for i, d in enumerate(told.devices) if d.name in used]
    workers, submodels = Workers(), Submodels(core, model)
    try:
        executor = Executor(submodels, told.segments, devices, workers)
    except BaseException:
        workers.close()
        raise

    def more() -> list[InferRequest]:
        count = network.AT_ONCE * len(devices)
        return Executor(submodels, told.segments, devices, workers, num_requests=count).requests

    return Network(model, executor, form=CONCURRENT, more=more, workers=workers)


def _on_a_core(device: Device, number: int) -> Device:
    """The device on a core that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if device.core is None or device.core in cores:
        return device
    return dataclasses.replace(device, core=cores[number % len(cores)])


def _exports(core: ov.Core, device: Device) -> bool:
    return "EXPORT_IMPORT" in core.get_property(device.name, "OPTIMIZATION_CAPABILITIES")


def _make_names_unique(model: ov.Model) -> None:
    """Numbers repeats: constants of which several parts have one each."""
    seen: dict[str, int] = {}
    for op in model.get_ordered_ops():
        name = op.get_friendly_name()
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            op.set_friendly_name(f"{name}#{seen[name]}")
