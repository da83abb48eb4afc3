"""The manifest of a deployed folder, `placement.json`: how its model runs, and which files it has.

A deployed folder holds

    placement.json                the manifest, with the measurements and checks of the deployment
    model-DIGEST.xml, .bin        the model
    dynamic-DIGEST.xml, .bin      the model with its dynamic inputs, if it has any
    affinities.json               the device of each operation of the model, for other programs
    loader.cpp                    a program in C++ that runs the model
    deploy.md                     the measurements and checks, for people

The manifest is replaced last, in one step. A reader that begins with it therefore finds the model
that belongs to it.

The forms are 'single': one device runs everything; 'hetero': HETERO runs the placement; 'mixed
precision': one CPU runs it, and the model's file marks the operations that keep f32; 'concurrent':
this package runs it, with its devices at the same time, and HETERO can run it, too.

The folder may come from others, so every value is checked, and only those properties that this
package writes are passed on to OpenVINO. The digests detect damage. They are not a signature.
"""

import dataclasses
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime.devices import Device
from placement.runtime.execution import mixed_precision
from placement.runtime.execution.split import Segment

FILE = "placement.json"
SINGLE, HETERO, MIXED, CONCURRENT = "single", "hetero", "mixed precision", "concurrent"
FORMS = (SINGLE, HETERO, MIXED, CONCURRENT)
REMEDY = "pass a folder that `deploy` wrote, or deploy the placement again"

_VERSION = 6  # manifests of another version are refused
FILE_NAME = re.compile(
    r"(model|dynamic)-[0-9a-f]{16}\.(xml|bin)|affinities\.json|loader\.cpp|deploy\.md"
)
# Limits of memory belong to the machine that deploys, not to a deployed model.
_DEVICE_FIELDS = {field.name for field in dataclasses.fields(Device)} - {"capacity_bytes"}
_SCHEMA = {
    "version": int,
    "form": str,
    "model": str,
    "dynamic": (str, None),
    "devices": [{str: object}],
    "affinity": {str: str},
    "segments": [{"device": str, "ops": [str]}],
    "files": {str: str},
}


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
    def serial_form(self) -> str:
        """The form that OpenVINO runs alone."""
        return HETERO if self.form == CONCURRENT else self.form

    @property
    def device(self) -> str:
        """The argument of `compile_model` for the form that OpenVINO runs alone."""
        if self.serial_form == HETERO:
            return f"HETERO:{','.join(device.name for device in self.devices)}"
        coarse = mixed_precision.find_coarse_device(self.devices)
        return coarse.name if self.form == MIXED and coarse else self.devices[0].name

    @property
    def config(self) -> dict[str, Any]:
        """The properties that `compile_model` takes for `device`."""
        properties = {device.name: dict(device.properties) for device in self.devices}
        # Properties outside DEVICE_PROPERTIES would be overridden by HETERO.
        is_hetero = self.serial_form == HETERO
        return {"DEVICE_PROPERTIES": properties} if is_hetero else properties[self.device]

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file; `device`, `config` and `register` are for recipes."""
        return {
            "version": _VERSION,
            "openvino": ov.get_version(),
            "form": self.form,
            "model": self.model,
            "dynamic": self.dynamic,
            "device": self.device,
            "config": self.config,
            # These devices exist only after the CPU plug-in is registered under their names.
            "register": [device.name for device in self.devices if device.host],
            "affinity": dict(self.affinity),
            "segments": [segment._asdict() for segment in self.segments],
            "devices": [
                {field: getattr(device, field) for field in sorted(_DEVICE_FIELDS)}
                for device in self.devices
            ],
            "files": dict(self.files),
        }


def read(folder: Path, *, remedy: str = REMEDY) -> Manifest:
    """Reads and checks a folder's manifest; a UserError says what is wrong with it."""
    return cast(Manifest, files.read_json(folder / FILE, _SCHEMA, _parse, remedy=remedy))


def compute_digest(path: Path) -> str:
    """Returns the SHA-256 of a file.

    Raises:
      FileNotFoundError: it does not exist.
      UserError: it cannot be read.
    """
    try:
        with files.open_regular(path, "rb", follow_links=True) as file:
            return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()
    except (IsADirectoryError, PermissionError) as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}; {REMEDY}") from error


def make_devices(records: Iterable[Mapping[str, Any]]) -> tuple[Device, ...]:
    """Makes the devices that a file describes; a ValueError says that a record is not valid."""
    devices = []
    for record in records:
        if not _DEVICE_FIELDS <= set(record) <= _DEVICE_FIELDS | {"capacity_bytes"}:
            raise ValueError("'devices' has unknown or missing fields")
        if problem := devices_lib.describe_invalid_device(Device(**record)):
            raise ValueError(f"a device has {problem}")
        devices.append(Device(**record))
    return tuple(devices)


def _parse(data: Mapping[str, Any]) -> Manifest:
    """Makes a manifest of data that fit the schema; raises a ValueError that names a problem."""

    def require(condition: object, problem: str) -> None:
        if not condition:
            raise ValueError(problem)

    version, form, affinity = data["version"], data["form"], data["affinity"]
    require(version == _VERSION, f"it has version {version}, but this package reads {_VERSION}")
    require(form in FORMS, f"unknown form {form[:20]!r}; valid are {', '.join(FORMS)}")
    devices = make_devices(data["devices"])
    names = {device.name for device in devices}
    require(0 < len(names) == len(devices), "'devices' is empty, or names one device twice")
    require({*affinity.values()} <= names, "'affinity' names unknown devices")
    segments = tuple(Segment(s["device"], tuple(s["ops"])) for s in data["segments"])
    require({s.device for s in segments} <= names, "a segment has an unknown device")
    fits = {
        SINGLE: len(devices) == 1,
        HETERO: True,
        MIXED: mixed_precision.find_coarse_device(devices) is not None,
        CONCURRENT: bool(segments),
    }
    require(fits[form], f"form {form!r} does not fit its devices and segments")
    for name in data["files"]:
        require(FILE_NAME.fullmatch(name), f"it names the file {name[:40]!r}")
    for name in filter(None, (data["model"], data["dynamic"])):
        weights = f"{name.removesuffix('.xml')}.bin"
        require({name, weights} <= set(data["files"]), f"'files' lacks {name[:40]!r}")
    return Manifest(
        form, devices, affinity, segments, data["model"], data["dynamic"], data["files"]
    )
