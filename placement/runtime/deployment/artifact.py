"""Writing and loading of a deployed folder; `placement.runtime.deployment.manifest` describes it.

OpenVINO discards the devices of operations when it writes a model, and a later compilation for
HETERO would then silently put everything on one device. But it keeps the names of operations. So
the manifest has the device of every operation of the file, constants included: a constant that
several devices read is copied for each. A loader only has to copy labels; docs/DEPLOY.md shows one
without this package.
"""

import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime.deployment import manifest as manifest_lib
from placement.runtime.deployment.manifest import CONCURRENT, HETERO, MIXED, SINGLE, Manifest
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

_REQUESTS_PER_DEVICE = 2  # so that one is ready when the other has ended
AFFINITIES_FILE, LOADER_FILE = "affinities.json", "loader.cpp"


class Artifact(NamedTuple):
    """A model with its placement, to be deployed."""

    model: ov.Model  # from `frontend.prepare`
    form: str  # 'single', 'hetero' or 'concurrent'
    devices: tuple[Device, ...]  # that run the model, in HETERO's order of preference
    affinity: hetero.Affinity = MappingProxyType({})  # the placement; not used in form 'single'
    segments: tuple[Segment, ...] = ()  # of the placement, for form 'concurrent'
    dynamic: ov.Model | None = None  # the model with its dynamic inputs; None if it has none


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
        # Copies of a constant share its name, but an affinity needs unique ones: number them.
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
    file_digests: dict[str, str] = {}
    model_file = _save_model(model, folder, "model", file_digests)
    dynamic_file = None
    if artifact.dynamic is not None:
        dynamic_file = _save_model(artifact.dynamic, folder, "dynamic", file_digests)
    loader = Path(__file__).with_name(LOADER_FILE).read_bytes()
    affinities = json.dumps(file_affinity, indent=1).encode() + b"\n"
    for name, data in ((AFFINITIES_FILE, affinities), (LOADER_FILE, loader)):
        files.write_bytes(folder / name, data)
        file_digests[name] = manifest_lib.compute_digest(folder / name)
    manifest = Manifest(
        form, artifact.devices, affinity, segments, model_file, dynamic_file, file_digests
    )
    files.write_bytes(folder / manifest_lib.FILE, json.dumps(manifest.to_json()).encode())
    return manifest


def _save_model(model: ov.Model, folder: Path, prefix: str, digests: dict[str, str]) -> str:
    """Writes a model under a name with its digest, adds its files' digests, returns the name."""
    written = folder / f"{prefix}.xml"
    with serialization.report_free_space(folder):
        # By default `save_model` would round weights to f16.
        ov.save_model(model, written, compress_to_fp16=False)
    paths = written, written.with_suffix(".bin")
    both = [manifest_lib.compute_digest(path) for path in paths]
    stem = f"{prefix}-{hashlib.sha256(''.join(both).encode()).hexdigest()[:16]}"
    for path, digest in zip(paths, both, strict=True):
        path.rename(folder / f"{stem}{path.suffix}")
        digests[f"{stem}{path.suffix}"] = digest
    return f"{stem}.xml"


def load(path: str | os.PathLike[str], *, concurrent: bool | None = None) -> Network:
    """Compiles a deployed model in the form that was chosen, every operation on its device.

    Args:
      path: the folder.
      concurrent: True for the placement with its devices at the same time, False for the form that
        OpenVINO runs alone; None for the form that won the measurement.

    Raises:
      UserError: the folder has no deployed model, a file is damaged or has changed, a device is not
        present, or the concurrent form is missing.
      OSError: a file cannot be read.
    """
    folder, core = Path(path), ov.Core()
    manifest, model, dynamic = _read(core, folder)
    form = {None: manifest.form, True: CONCURRENT, False: manifest.serial_form}[concurrent]
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

    def compile_variant(variant: ov.Model) -> Compiled:
        if workers is not None:
            make_executor = functools.partial(
                Executor, Submodels(core, variant), manifest.segments, devices, workers
            )
            count = _REQUESTS_PER_DEVICE * len(devices)
            return Compiled(
                make_executor(), count, lambda: [*make_executor(num_requests=count).requests]
            )
        if variant is model:  # it has labels, copies of constants and marks of precisions
            compiled = core.compile_model(model, manifest.device, manifest.config)
        else:
            ops = operations.ops_by_name(variant).keys() - operations.constant_names(variant)
            affinity = {op: name for op, name in manifest.affinity.items() if op in ops}
            compiled = hetero.compile_placement(core, variant, affinity or None, devices)
        count = max(_REQUESTS_PER_DEVICE, compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        create: Callable[[], Request] = compiled.create_infer_request
        return Compiled(create(), count, lambda: [create() for _ in range(count)], compiled)

    def compile_for_shapes(shapes: Shapes) -> Compiled:
        try:
            if shapes == placed_shapes or dynamic is None:
                return compile_variant(model)
            return compile_variant(make_static(dynamic, shapes))
        except (UserError, RuntimeError) as error:
            raise UserError(
                f"{str(folder)!r} cannot be compiled for inputs of the shapes "
                f"{', '.join(str(list(shape)) for shape in shapes)}: {summarise_error(error)}; "
                "pass other shapes, or deploy it again on this machine"
            ) from error

    allowed = [port.get_partial_shape() for port in (dynamic or model).inputs]
    return Network(model, compile_for_shapes, form=form, shapes=allowed, workers=workers)


def make_static(dynamic: ov.Model, shapes: Shapes) -> ov.Model:
    """Returns a model with dynamic inputs for one shape of each input, in order.

    Raises:
      UserError: the model does not accept these shapes.
    """
    shape_by_name = {
        frontend.input_names(port.get_node())[0]: shape
        for port, shape in zip(dynamic.inputs, shapes, strict=True)
        if port.get_partial_shape().is_dynamic
    }
    return frontend.prepare(dynamic, frontend.format_shapes(shape_by_name))


def _read(core: ov.Core, folder: Path) -> tuple[Manifest, ov.Model, ov.Model | None]:
    """Reads the manifest, the model, and the model with dynamic inputs.

    A deployment that ends meanwhile removes the earlier models. Then its own manifest counts.
    """
    while True:
        manifest, models = manifest_lib.read(folder), list[ov.Model]()
        try:
            for name in filter(None, (manifest.model, manifest.dynamic)):
                file = folder / name
                for path in (file, file.with_suffix(".bin")):
                    if manifest_lib.compute_digest(path) != manifest.files[path.name]:
                        raise UserError(
                            f"{str(path)!r} has changed since it was written; {manifest_lib.REMEDY}"
                        )
                models.append(core.read_model(file))
        except (FileNotFoundError, PermissionError, RuntimeError) as error:
            if manifest_lib.read(folder) != manifest:
                continue
            if isinstance(error, RuntimeError):
                raise
            cause = f"{error.filename!r} cannot be read: {error.strerror}"
            raise UserError(f"{cause}; {manifest_lib.REMEDY}") from error
        return manifest, models[0], models[1] if manifest.dynamic else None
