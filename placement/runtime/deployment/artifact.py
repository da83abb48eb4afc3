"""A deployed folder: its manifest, writing it, and loading it. The folder holds

    placement.json                the manifest, with the measurements and checks of the deployment
    model-DIGEST.xml, .bin        the model
    dynamic-DIGEST.xml, .bin      the model with its dynamic inputs, if it has any
    affinities.json               the device of each operation of the model, for other programs
    loader.cpp                    a program in C++ that runs the model
    deploy.md                     the measurements and checks, for people

The manifest is replaced last, in one step, so a reader that begins with it finds the model that
belongs to it. Nothing is loaded that differs from the manifest's digests. They are not a signature:
the folder may come from others, so only properties that this package writes reach OpenVINO.

The forms are 'single': one device runs everything; 'hetero': HETERO runs the placement; 'mixed
precision': one CPU runs it, and the model's file marks the operations that keep f32; 'concurrent':
this package runs it, with its devices at the same time, and HETERO can run it, too.

OpenVINO discards the devices of operations when it writes a model, but keeps the names. So the
manifest has the device of every operation of the file, and a loader only has to copy labels.
"""

import dataclasses
import functools
import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime.deployment.network import Compiled, Network, Request, Shapes
from placement.runtime.devices import Device
from placement.runtime.errors import summarise_error
from placement.runtime.execution import hetero, mixed_precision
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.models import frontend, operations, serialization
from placement.runtime.models.fingerprint import quote_names

MANIFEST, AFFINITIES, LOADER = "placement.json", "affinities.json", "loader.cpp"
SINGLE, HETERO, MIXED, CONCURRENT = "single", "hetero", "mixed precision", "concurrent"
FILE_NAME = re.compile(
    r"(model|dynamic)-[0-9a-f]{16}\.(xml|bin)|affinities\.json|loader\.cpp|deploy\.md"
)

_REMEDY = "pass a folder that `deploy` wrote, or deploy the placement again"
_REQUESTS_PER_DEVICE = 2  # so that one is ready when the other has ended


class Artifact(NamedTuple):
    """A model with its placement, to be deployed."""

    model: ov.Model  # from `frontend.prepare`
    form: str  # 'single', 'hetero' or 'concurrent'
    devices: tuple[Device, ...]  # that run the model, in HETERO's order of preference
    affinity: hetero.Affinity = MappingProxyType({})  # the placement; not used in form 'single'
    segments: tuple[Segment, ...] = ()  # of the placement, for form 'concurrent'
    dynamic: ov.Model | None = None  # the model with its dynamic inputs; None if it has none


class Manifest(NamedTuple):
    """The devices, placement and form of a deployed model."""

    form: str  # the form that `load` chooses by default
    devices: tuple[Device, ...]  # in HETERO's order of preference; one in form 'single'
    # Of every operation of the file under HETERO; of the operations that were placed in mixed
    # precision; empty if one device runs all.
    affinity: Mapping[str, str]
    segments: tuple[Segment, ...]  # of form 'concurrent'
    model: str  # the name of the model's file; its weights end in .bin
    dynamic: str | None  # the same of the model with dynamic inputs; None if the model is static
    files: Mapping[str, str]  # the name of each file of the deployment -> its SHA-256

    @property
    def target(self) -> tuple[str, dict[str, Any]]:
        """The device and the properties that `compile_model` takes if OpenVINO runs it alone."""
        if self.form in (HETERO, CONCURRENT):
            # Properties outside DEVICE_PROPERTIES would be overridden by HETERO.
            properties = {device.name: dict(device.properties) for device in self.devices}
            return f"HETERO:{','.join(properties)}", {"DEVICE_PROPERTIES": properties}
        device = mixed_precision.find_coarse_device(self.devices) or self.devices[0]
        return device.name, dict(device.properties)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file: what `read` reads, its digest, and parts for recipes."""
        loaded = {
            "form": self.form,
            "model": self.model,
            "dynamic": self.dynamic,
            "affinity": dict(self.affinity),
            "segments": [segment._asdict() for segment in self.segments],
            # Limits of memory belong to the machine that deploys.
            "devices": [
                dataclasses.asdict(dataclasses.replace(device, capacity_bytes=None))
                for device in self.devices
            ],
            "files": dict(self.files),
        }
        device, config = self.target
        return loaded | {
            "digest": hashlib.sha256(json.dumps(loaded, sort_keys=True).encode()).hexdigest(),
            "openvino": ov.get_version(),
            "device": device,
            "config": config,
            # These devices exist only after the CPU plug-in is registered under their names.
            "register": [device.name for device in self.devices if device.host],
        }


def read(folder: Path, *, remedy: str = _REMEDY) -> Manifest:
    """Reads and checks a folder's manifest; a UserError says what is wrong with it."""

    def parse(data: Mapping[str, Any]) -> Manifest:
        for name in data["files"]:
            if not FILE_NAME.fullmatch(name):
                raise ValueError(f"it names the file {name[:40]!r}")
        manifest = Manifest(
            data["form"],
            tuple(map(devices_lib.from_record, data["devices"])),
            data["affinity"],
            tuple(Segment(s["device"], tuple(s["ops"])) for s in data["segments"]),
            data["model"],
            data["dynamic"],
            data["files"],
        )
        if manifest.to_json()["digest"] != data["digest"]:
            raise ValueError("it has changed since it was written")
        return manifest

    return files.read_json(folder / MANIFEST, {"form": str}, parse, remedy=remedy)


def compute_digest(path: Path) -> str:
    """Returns the SHA-256 of a file; a UserError says that it cannot be read."""
    with files.open_to_read(path, remedy=_REMEDY) as file:
        return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()


def save(artifact: Artifact, folder: Path) -> Manifest:
    """Writes the files of a deployment into an existing folder, and returns the manifest.

    Raises:
      UserError: the placement does not fit the model.
      OSError: the folder cannot hold the model.
      RuntimeError: OpenVINO cannot transform the model.
    """
    form, model, affinity = artifact.form, artifact.model, dict(artifact.affinity)
    names = [device.name for device in artifact.devices]
    coarse = mixed_precision.find_coarse_device(artifact.devices)
    if form == SINGLE:
        affinity, file_affinity = {}, dict.fromkeys(operations.ops_by_name(model), names[0])
    elif form == HETERO and coarse is not None:
        form = MIXED
        (precise,) = (name for name in names if name != coarse.name)
        kept = [op for op, name in affinity.items() if name == precise]
        model = mixed_precision.keep_in_f32(ov.Core(), model, kept)
        file_affinity = {op.get_friendly_name(): coarse.name for op in model.get_ops()}
        file_affinity |= dict.fromkeys(mixed_precision.list_kept(model), precise)
    else:
        model = hetero.label_devices(model, affinity, names)
        # A constant that several devices read was copied for each. The copies share its name, but
        # an affinity needs unique ones: number them.
        occurrences: Counter[str] = Counter()
        for op in model.get_ordered_ops():
            name = op.get_friendly_name()
            occurrences[name] += 1
            if occurrences[name] > 1:
                op.set_friendly_name(f"{name}#{occurrences[name]}")
        affinity = file_affinity = {
            op.get_friendly_name(): op.get_rt_info()["affinity"].astype(str)
            for op in model.get_ordered_ops()
        }
    constants = operations.constant_names(artifact.model)
    segments = tuple(
        Segment(segment.device, tuple(op for op in segment.ops if op not in constants))
        for segment in artifact.segments
    )

    digests: dict[str, str] = {}
    model_files: dict[str, str] = {}
    for prefix, written in (("model", model), ("dynamic", artifact.dynamic)):
        if written is None:
            continue
        xml = folder / f"{prefix}.xml"
        with serialization.report_free_space(folder):
            # By default `save_model` would round weights to f16.
            ov.save_model(written, xml, compress_to_fp16=False)
        both = {path: compute_digest(path) for path in (xml, xml.with_suffix(".bin"))}
        stem = f"{prefix}-{hashlib.sha256(''.join(both.values()).encode()).hexdigest()[:16]}"
        for path, digest in both.items():
            digests[path.rename(folder / f"{stem}{path.suffix}").name] = digest
        model_files[prefix] = f"{stem}.xml"
    loader = Path(__file__).with_name(LOADER).read_bytes()
    affinities = json.dumps(file_affinity, indent=1).encode() + b"\n"
    for name, data in ((AFFINITIES, affinities), (LOADER, loader)):
        files.write_bytes(folder / name, data)
        digests[name] = hashlib.sha256(data).hexdigest()
    dynamic_file = model_files.get("dynamic")
    manifest = Manifest(
        form, artifact.devices, affinity, segments, model_files["model"], dynamic_file, digests
    )
    files.write_bytes(folder / MANIFEST, json.dumps(manifest.to_json()).encode())
    return manifest


def load(path: str | os.PathLike[str], *, concurrent: bool | None = None) -> Network:
    """Compiles a deployed model in the form that was chosen, every operation on its device.

    Args:
      path: the folder.
      concurrent: True for the placement with its devices at the same time, False for the form that
        OpenVINO runs alone; None for the form that won the measurement.

    Raises:
      UserError: the folder has no deployed model, a file is damaged or has changed, a device is not
        present, or the concurrent form is missing.
    """
    folder, core = Path(path), ov.Core()
    manifest, model, dynamic = _read_models(core, folder)
    serial_form = HETERO if manifest.form == CONCURRENT else manifest.form
    form = {None: manifest.form, True: CONCURRENT, False: serial_form}[concurrent]
    if form == CONCURRENT and not manifest.segments:
        raise UserError(
            f"{str(folder)!r} was deployed in form {manifest.form!r} and has no concurrent form; "
            "load it without concurrent=True"
        )
    present = core.available_devices
    # Host devices need not be present: they are made on any machine with a CPU.
    absent = [d.name for d in manifest.devices if d.name not in present and not d.host]
    if absent:
        raise UserError(
            f"device {quote_names(absent)} is not present; here are {', '.join(present)}; deploy "
            "the model again on this machine"
        )
    devices = tuple(map(devices_lib.adapt_to_process, manifest.devices))
    manifest = manifest._replace(devices=devices)
    devices_lib.register_devices(core, devices)
    if form == HETERO:
        for op in model.get_ops():
            op.get_rt_info()["affinity"] = manifest.affinity[op.get_friendly_name()]
    placed_shapes = tuple(tuple(port.get_shape()) for port in model.inputs)
    workers = Workers() if form == CONCURRENT else None

    def compile_for_shapes(shapes: Shapes) -> Compiled:
        try:
            variant = model
            if dynamic is not None and shapes != placed_shapes:
                variant = make_static(dynamic, shapes)
            if workers is not None:
                make_executor = functools.partial(
                    Executor, Submodels(core, variant), manifest.segments, devices, workers
                )
                count = _REQUESTS_PER_DEVICE * len(devices)
                create_all = functools.cache(
                    lambda: list[Request](make_executor(num_requests=count).requests)
                )
                return Compiled(make_executor().requests[0], count, create_all)
            if variant is model:  # it has labels, copies of constants and marks of precisions
                compiled = core.compile_model(model, *manifest.target)
            else:
                ops = operations.ops_by_name(variant).keys() - operations.constant_names(variant)
                affinity = {op: name for op, name in manifest.affinity.items() if op in ops}
                compiled = hetero.compile_placement(core, variant, affinity or None, devices)
            optimal = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
            count = max(_REQUESTS_PER_DEVICE, optimal)
            create: Callable[[], Request] = compiled.create_infer_request
            create_all = functools.cache(lambda: [create() for _ in range(count)])
            return Compiled(create(), count, create_all, compiled)
        except (UserError, RuntimeError) as error:
            raise UserError(
                f"{str(folder)!r} cannot be compiled for inputs of the shapes "
                f"{', '.join(str(list(shape)) for shape in shapes)}: {summarise_error(error)}; "
                "pass other shapes, or deploy it again on this machine"
            ) from error

    allowed = [port.get_partial_shape() for port in (dynamic or model).inputs]
    return Network(model, compile_for_shapes, form=form, shapes=allowed, workers=workers)


def make_static(dynamic: ov.Model, shapes: Shapes) -> ov.Model:
    """Makes a model with dynamic inputs static; a UserError says that it refuses the shapes."""
    shape_by_name = {
        frontend.input_names(port.get_node())[0]: shape
        for port, shape in zip(dynamic.inputs, shapes, strict=True)
        if port.get_partial_shape().is_dynamic
    }
    return frontend.prepare(dynamic, frontend.format_shapes(shape_by_name))


def _read_models(core: ov.Core, folder: Path) -> tuple[Manifest, ov.Model, ov.Model | None]:
    """Reads the manifest, the model, and the model with dynamic inputs.

    A deployment that ends meanwhile removes the earlier models. Then its own manifest counts.
    """
    while True:
        manifest, models = read(folder), list[ov.Model]()
        try:
            for file in (folder / name for name in (manifest.model, manifest.dynamic) if name):
                for path in (file, file.with_suffix(".bin")):
                    if compute_digest(path) != manifest.files[path.name]:
                        raise UserError(
                            f"{str(path)!r} has changed since it was written; {_REMEDY}"
                        )
                models.append(core.read_model(file))
        except (UserError, RuntimeError):
            if read(folder) == manifest:
                raise
            continue
        return manifest, models[0], models[1] if manifest.dynamic else None
