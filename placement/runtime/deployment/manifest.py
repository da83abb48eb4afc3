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

The manifest has the digests of all other files and one of what it says itself, so that nothing that
has changed since it was written is loaded. Digests are not a signature: the folder may come from
others, so only those properties that this package writes are passed on to OpenVINO.
"""

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import openvino as ov

from placement import files
from placement.runtime import devices as devices_lib
from placement.runtime.devices import Device
from placement.runtime.execution import mixed_precision
from placement.runtime.execution.split import Segment

FILE = "placement.json"
SINGLE, HETERO, MIXED, CONCURRENT = "single", "hetero", "mixed precision", "concurrent"
REMEDY = "pass a folder that `deploy` wrote, or deploy the placement again"

_VERSION = 7  # manifests of another version are refused
FILE_NAME = re.compile(
    r"(model|dynamic)-[0-9a-f]{16}\.(xml|bin)|affinities\.json|loader\.cpp|deploy\.md"
)


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
        """Returns the content of the file: what `read` reads, its digest, and parts for recipes."""
        loaded = {
            "version": _VERSION,
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
        return loaded | {
            "digest": hashlib.sha256(json.dumps(loaded, sort_keys=True).encode()).hexdigest(),
            "openvino": ov.get_version(),
            "device": self.device,
            "config": self.config,
            # These devices exist only after the CPU plug-in is registered under their names.
            "register": [device.name for device in self.devices if device.host],
        }


def read(folder: Path, *, remedy: str = REMEDY) -> Manifest:
    """Reads and checks a folder's manifest; a UserError says what is wrong with it."""
    return cast(Manifest, files.read_json(folder / FILE, {"version": int}, _parse, remedy=remedy))


def compute_digest(path: Path) -> str:
    """Returns the SHA-256 of a file; raises the errors of `files.open_regular`."""
    with files.open_regular(path, "rb", follow_links=True) as file:
        return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()


def make_devices(records: Iterable[Mapping[str, Any]]) -> tuple[Device, ...]:
    """Makes the devices that a file describes; a ValueError says that a record is not valid."""
    devices = tuple(Device(**record) for record in records)
    for problem in filter(None, map(devices_lib.describe_invalid_device, devices)):
        raise ValueError(f"a device has {problem}")
    return devices


def _parse(data: Mapping[str, Any]) -> Manifest:
    if data["version"] != _VERSION:
        raise ValueError(f"it has version {data['version']}, but this package reads {_VERSION}")
    for name in data["files"]:
        if not FILE_NAME.fullmatch(name):
            raise ValueError(f"it names the file {name[:40]!r}")
    manifest = Manifest(
        data["form"],
        make_devices(data["devices"]),
        data["affinity"],
        tuple(Segment(segment["device"], tuple(segment["ops"])) for segment in data["segments"]),
        data["model"],
        data["dynamic"],
        data["files"],
    )
    if manifest.to_json()["digest"] != data["digest"]:
        raise ValueError("it has changed since it was written")
    return manifest
