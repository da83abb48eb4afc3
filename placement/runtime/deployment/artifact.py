"""A deployed placement: a folder that OpenVINO can run, and its loader.

The folder holds

    model.xml, model.bin   the model; its runtime information, under 'placement', describes how to
                           run it (`placement.runtime.deployment.description`)
    compiled.blob          the compiled model, if the devices can export it
    compiled.json          the arguments for importing the blob
    deploy.json, deploy.md the checks with their figures (`placement.runtime.deployment.preflight`)

OpenVINO discards the devices of operations when it writes a model, and a later compilation for
HETERO would then silently put everything on one device. But it keeps the model's runtime
information and the names of operations. So the devices are written there and restored when the
model is loaded. Every operation of the file has a device, constants included: a constant that
several devices read is copied for each. A loader therefore only has to copy labels; docs/DEPLOY.md
shows one without this package.

There are four forms. 'single': one device runs everything. 'hetero': HETERO runs the placement,
one part after another. 'mixed precision': one CPU runs the placement, and the file marks the
operations that keep f32 (`placement.runtime.execution.mixed_precision`), so that a loader only
compiles it. 'concurrent': this package runs the placement, with its devices at the same time. A
file has one form that the measurement chose and one that OpenVINO runs alone. They differ if the
first is 'concurrent'.
"""

import dataclasses
import functools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime import processors
from placement.runtime.deployment import description as description_lib
from placement.runtime.deployment import netron, service
from placement.runtime.deployment import shapes as shapes_lib
from placement.runtime.deployment.description import (
    CONCURRENT,
    HETERO,
    MIXED,
    REMEDY,
    Description,
)
from placement.runtime.deployment.description import SINGLE as SINGLE
from placement.runtime.deployment.network import Network
from placement.runtime.devices import Device
from placement.runtime.errors import find_reason, silent_stderr, summarise_error
from placement.runtime.execution import hetero, mixed_precision
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.models import operations, serialization
from placement.runtime.models.fingerprint import quote_names

MODEL_FILE, BLOB_FILE, IMPORT_FILE = "model.xml", "compiled.blob", "compiled.json"
AFFINITIES_FILE, LOADER_FILE = "affinities.json", "loader.cpp"
# `load` reads again for so long while other processes replace the files, or while a model.bin has
# no model.xml beside it, as when the files are replaced one by one.
_REPLACED_S, _ABSENT_S = 10.0, 2.0
_PAUSE_S = 0.05  # between two attempts
_LOADER = Path(__file__).with_name(LOADER_FILE)


class Artifact(NamedTuple):
    """A model with its placement, to be deployed."""

    model: ov.Model  # from `frontend.prepare`
    affinity: hetero.Affinity  # the placement; not used if `single_device` is given
    segments: tuple[Segment, ...]  # of the placement; empty if it has no 'concurrent' form
    devices: tuple[Device, ...]  # that the model may run on, in HETERO's order of preference
    form: str  # the form that `load` chooses by default
    single_device: str | None  # of form 'single'; None if OpenVINO alone runs the placement
    decision: str  # the reason for this form, for people
    notes: Mapping[str, str]  # its origin, for people
    dynamic: ov.Model | None = None  # the model with its dynamic inputs; None if it has none


def save(artifact: Artifact, folder: Path) -> str:
    """Writes the model, the files for other programs and the blob into an existing folder.

    Returns:
      The reason why there is no blob; '' if there is one.

    Raises:
      UserError: the placement does not fit the model.
      OSError: the folder cannot hold the model.
      RuntimeError: OpenVINO cannot read or compile the model.
    """
    dynamic = ""
    if artifact.dynamic is not None:
        with serialization.report_free_space(folder):
            dynamic = shapes_lib.save(artifact.dynamic, folder)
    model, description, file_affinity = _apply_placement(artifact)
    description = description._replace(dynamic=dynamic)
    notes = {"decision": artifact.decision, **artifact.notes}
    description_lib.write(model, description, notes)
    file = folder / MODEL_FILE
    with serialization.report_free_space(folder):
        # By default `save_model` would round weights to f16.
        ov.save_model(model, file, compress_to_fp16=False)
        # The program in C++ reads this file; the loader of this package reads the rt_info.
        text = json.dumps(file_affinity, indent=1) + "\n"
        files.write_bytes(folder / AFFINITIES_FILE, text.encode())
        files.write_bytes(folder / LOADER_FILE, _LOADER.read_bytes())
    # For viewers only; the loader uses the runtime information.
    xml = files.read_bytes(file, remedy=REMEDY)
    files.write_bytes(file, netron.annotate(xml, file_affinity))
    description_lib.seal(file)

    core = devices_lib.open_core(description.devices)
    compiled = _compile(core, core.read_model(file), description)
    cannot_export = [
        device.name
        for device in description.serial_devices
        if "EXPORT_IMPORT" not in core.get_property(device.name, "OPTIMIZATION_CAPABILITIES")
    ]
    if cannot_export:
        return f"{quote_names(cannot_export)} cannot export a compiled model"
    try:
        files.write_bytes(folder / BLOB_FILE, compiled.export_model().getvalue())
    except RuntimeError as error:
        return summarise_error(error)
    import_arguments = {
        "file": BLOB_FILE,
        "form": description.serial_form,
        "device": description.device,
        "config": description.config,
        "register": description_lib.host_device_names(description.serial_devices),
        "openvino": ov.get_version(),
        **notes,
    }
    files.write_bytes(folder / IMPORT_FILE, json.dumps(import_arguments, indent=2).encode() + b"\n")
    return ""


def _apply_placement(artifact: Artifact) -> tuple[ov.Model, Description, dict[str, str]]:
    """Returns the model of the file, its description, and the device of each of its operations."""
    devices, affinity, form = artifact.devices, dict(artifact.affinity), artifact.form
    constants = operations.constant_names(artifact.model)
    segments = tuple(
        Segment(segment.device, tuple(name for name in segment.ops if name not in constants))
        for segment in artifact.segments
    )
    used = [device for device in devices if device.name in affinity.values()]
    coarse = mixed_precision.find_coarse_device(used)
    if coarse is not None and form == HETERO:
        (precise,) = (device.name for device in used if device != coarse)
        kept = [op for op, name in affinity.items() if name == precise]
        model = mixed_precision.keep_in_f32(ov.Core(), artifact.model, kept)
        description = Description(MIXED, coarse.name, affinity, (), devices)
        file_affinity = dict.fromkeys(_op_names(model), coarse.name)
        file_affinity |= dict.fromkeys(mixed_precision.list_kept(model), precise)
    elif artifact.single_device is None:
        names = [device.name for device in used]
        model = hetero.label_devices(artifact.model, affinity, names)
        # Copies of a constant share its name, but an affinity needs unique ones: number them.
        occurrences: Counter[str] = Counter()
        for op in model.get_ordered_ops():
            name = op.get_friendly_name()
            occurrences[name] += 1
            if occurrences[name] > 1:
                op.set_friendly_name(f"{name}#{occurrences[name]}")
        file_affinity = {
            op.get_friendly_name(): op.get_rt_info()["affinity"].astype(str)
            for op in model.get_ordered_ops()
        }
        device = f"HETERO:{','.join(names)}"
        description = Description(form, device, file_affinity, segments, devices)
    else:
        model, device = artifact.model.clone(), artifact.single_device
        description = Description(form, device, {}, segments, devices)
        file_affinity = dict.fromkeys(_op_names(model), device)
    return model, description, file_affinity


def _op_names(model: ov.Model) -> list[str]:
    return [op.get_friendly_name() for op in model.get_ordered_ops()]


def load(
    path: str | os.PathLike[str],
    devices: Mapping[str, str] | None = None,
    *,
    concurrent: bool | None = None,
) -> Network:
    """Compiles a deployed model in the form that was chosen, every operation on its device.

    If another process replaces the folder meanwhile, it is read again, so that everything comes
    from one deployment.

    Args:
      path: the folder, or the model.xml in it.
      devices: new names of devices, where this machine has other ones: {'GPU.0': 'GPU.1'}.
      concurrent: True for the placement with its devices at the same time, False for the form that
        OpenVINO runs alone; None for the form that won the measurement.

    Raises:
      UserError: there is no such file or no placement in it, the file is damaged or has changed, a
        device is not present, or there is no concurrent form.
      OSError: a file cannot be read.
    """
    core = ov.Core()
    file, model, description = _read_unchanged(core, Path(path))
    description = _rename_devices(description, devices or {})
    present = core.available_devices
    # Host devices need not be present: they are made on any machine with a CPU.
    absent = [d.name for d in description.devices if d.name not in present and not d.host]
    if absent:
        raise UserError(
            f"device {quote_names(absent)} is not present; here are {', '.join(present)}: rename "
            f"it, such as devices={{{absent[0]!r}: {present[-1]!r}}}, or deploy on this machine"
        )
    description = description._replace(
        devices=tuple(map(devices_lib.adapt_to_process, description.devices))
    )
    devices_lib.register_devices(core, description.devices)
    form = {None: description.form, True: CONCURRENT, False: description.serial_form}[concurrent]
    if form == CONCURRENT and not description.segments:
        decision = description_lib.decision(model)
        # Only if the placement itself was deployed does placing it again help.
        advice = ", or place it with backend='concurrent' and deploy it again"
        raise UserError(
            f"{str(file)!r} has no concurrent form: it was deployed on the verdict {decision!r}; "
            "load it without concurrent=True"
            f"{advice if description.form == HETERO else ''}"
        )
    try:
        if form == CONCURRENT:
            return _load_concurrent(core, model, description, file.parent)
        variants = _read_variants(
            file.parent, description, lambda variant: _compile_variant(core, variant, description)
        )
        return Network(
            model,
            lambda: service.wrap(_compile(core, model, description)),
            form=form,
            variants=variants,
        )
    except RuntimeError as error:
        raise UserError(
            f"{str(file)!r} cannot be compiled for {description.device}: {summarise_error(error)}; "
            "deploy it again on this machine"
        ) from error


def import_blob(folder: Path) -> ov.CompiledModel:
    """Imports the blob of a folder with the arguments in compiled.json, in a new `ov.Core`."""
    arguments = files.read_json(folder / IMPORT_FILE, {"register": [str]}, remedy=REMEDY)
    core = ov.Core()
    for name in arguments["register"]:
        core.register_plugin(devices_lib.CPU_PLUGIN, name)
    blob = files.read_bytes(folder / arguments["file"], remedy=REMEDY)
    # OpenVINO needs the devices' properties again: the blob does not hold them.
    return core.import_model(blob, arguments["device"], arguments["config"])


def _rename_devices(description: Description, names: Mapping[str, str]) -> Description:
    """Renames devices. A renamed host device becomes one that has to be present."""
    old_names = [device.name for device in description.devices]
    unknown_names = [name for name in names if name not in old_names]
    if unknown_names:
        raise UserError(
            f"devices= renames {quote_names(unknown_names)}; the file uses {', '.join(old_names)}"
        )
    new_names = {name: names.get(name, name) for name in old_names}
    if len(set(new_names.values())) < len(new_names):
        raise UserError(
            f"devices= gives two devices one name: {dict(new_names)}; give each its own"
        )
    prefix, colon, listed = description.device.rpartition(":")
    return description._replace(
        device=prefix + colon + ",".join(new_names[name] for name in listed.split(",")),
        affinity={op: new_names[name] for op, name in description.affinity.items()},
        segments=tuple(Segment(new_names[name], ops) for name, ops in description.segments),
        devices=tuple(
            dataclasses.replace(d, name=new_names[d.name], host=d.host and d.name not in names)
            for d in description.devices
        ),
    )


def _read_unchanged(core: ov.Core, path: Path) -> tuple[Path, ov.Model, Description]:
    """Reads the model's file, the model and its description while the files stay the same."""
    begin_s = time.monotonic()
    while True:
        file = path / MODEL_FILE if path.is_dir() else path
        identity = _file_identity(file)
        failure: Exception | None = None
        try:
            model = _read_model(core, file)
            description = description_lib.read(model, file)
        except (UserError, OSError) as error:
            failure = error
        is_replaced = _file_identity(file) != identity
        if failure is None and not is_replaced:
            return file, model, description
        failure = failure or UserError(f"{str(file)!r} changes all the time; load it later")
        is_absent = not file.exists() and file.with_suffix(".bin").exists()
        limit_s = _REPLACED_S if is_replaced else _ABSENT_S * is_absent
        if time.monotonic() - begin_s >= limit_s:
            raise failure
        time.sleep(_PAUSE_S)


def _file_identity(file: Path) -> tuple[tuple[int, ...], ...] | None:
    """Returns a value that changes when a model's files are replaced; None without files."""
    try:
        stats = [os.stat(path) for path in (file, file.with_suffix(".bin"))]
    except (OSError, ValueError):  # ValueError: no file can have such a name
        return None
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def _read_model(core: ov.Core, file: Path) -> ov.Model:
    if not file.is_file():
        raise UserError(
            f"no {str(file)!r}; pass a deployed folder, or deploy again if it was interrupted"
        )
    if file.suffix != ".xml":
        raise UserError(f"{str(file)!r} is not a {MODEL_FILE}; pass a deployed folder")
    description_lib.check_seal(file)
    try:
        with silent_stderr():
            return core.read_model(file)
    except RuntimeError as error:
        reason = find_reason(error, "it is not complete")
        raise UserError(f"{str(file)!r} cannot be read: {reason}; {REMEDY}") from error


def _compile(core: ov.Core, model: ov.Model, description: Description) -> ov.CompiledModel:
    """Compiles the form that OpenVINO runs alone."""
    labelled = model.clone()
    if description.serial_form == HETERO:
        for op in labelled.get_ops():
            op.get_rt_info()["affinity"] = description.affinity[op.get_friendly_name()]
    return core.compile_model(labelled, description.device, description.config)


def _read_variants(
    folder: Path, description: Description, compile_model: Callable[[ov.Model], Any]
) -> shapes_lib.Variants | None:
    """Reads the dynamic model of a folder; None if the model is static."""
    if not description.dynamic:
        return None

    def compile_or_refuse(model: ov.Model) -> Any:
        try:
            return compile_model(model)
        except UserError as error:
            raise UserError(f"the placement does not fit these shapes: {error}") from error

    return shapes_lib.Variants(folder, description.dynamic, compile_or_refuse)


def _compile_variant(core: ov.Core, model: ov.Model, description: Description) -> ov.CompiledModel:
    """Compiles a static variant of the model, in the form that OpenVINO runs alone.

    Raises:
      UserError: the variant has other operations than the model that was placed.
    """
    form, device = description.serial_form, description.device
    names = operations.ops_by_name(model).keys() - operations.constant_names(model)
    affinity = {op: name for op, name in description.affinity.items() if op in names}
    if form == HETERO:
        used = [device.name for device in description.serial_devices]
        model = hetero.label_devices(model, affinity, used)
    elif form == MIXED:
        kept = [op for op, name in affinity.items() if name != device]
        model = mixed_precision.keep_in_f32(core, model, kept)
    return core.compile_model(model, device, description.config)


def _load_concurrent(
    core: ov.Core, model: ov.Model, description: Description, folder: Path
) -> Network:
    """Compiles the form whose devices work at the same time."""
    used_devices = {segment.device for segment in description.segments}
    usable_cores = processors.list_allowed_cores()
    devices = []
    for i, device in enumerate(description.devices):
        if device.name not in used_devices:
            continue
        if not processors.CAN_BIND_THREADS:
            device = dataclasses.replace(device, core=None)
        elif device.core is not None and device.core not in usable_cores:  # of another machine
            device = dataclasses.replace(device, core=usable_cores[i % len(usable_cores)])
        devices.append(device)
    workers = Workers()

    def compile_variant(variant: ov.Model) -> Executor:
        return Executor(Submodels(core, variant), description.segments, devices, workers)

    def compile_model() -> service.Compiled:
        submodels, count = Submodels(core, model), service.REQUESTS_PER_DEVICE * len(devices)
        compile_executor = functools.partial(
            Executor, submodels, description.segments, devices, workers
        )
        return service.Compiled(
            compile_executor(), count, lambda: compile_executor(num_requests=count).requests
        )

    try:
        return Network(
            model,
            compile_model,
            form=CONCURRENT,
            workers=workers,
            variants=_read_variants(folder, description, compile_variant),
        )
    except BaseException:
        workers.close()
        raise
