"""The description of how a deployed model runs: written into the model, and checked when read.

It is in the runtime information of model.xml, under 'placement'. The file may come from others,
so every value is checked, and only those properties that this package writes are passed on to
OpenVINO. A digest of both files shows whether they are as they were written. It is not a signature:
whoever changes the files can also write another digest.
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
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment
from placement.runtime.models.fingerprint import quote_names

SINGLE, HETERO, MIXED, CONCURRENT = "single", "hetero", "mixed precision", "concurrent"
REMEDY = "deploy it again"

_FORMS = (SINGLE, HETERO, MIXED, CONCURRENT)
_SECTION = "placement"
_VERSION = 5  # files of another version are refused
_UNSEALED = "0" * 64  # stands in place of the digest while the digest is computed
_SEAL = re.compile(rb'<digest value="([0-9a-f]{64})" />')
# Limits of memory are those of the machine that deploys, and no part of a deployed model.
_DEVICE_FIELDS = {field.name for field in dataclasses.fields(Device)} - {"capacity_bytes"}


class Description(NamedTuple):
    """The description of how a deployed model runs."""

    form: str  # the form that `load` chooses by default
    device: str  # the argument of `compile_model`: a device, or 'HETERO:' and several
    # Of every operation of the file under HETERO; of the operations that were placed in mixed
    # precision, where the file marks its operations; empty if one device runs all.
    affinity: Mapping[str, str]
    segments: tuple[Segment, ...]  # of form 'concurrent'
    devices: tuple[Device, ...]
    dynamic: str = ""  # digest of the dynamic model's files; '' if the model is static

    @property
    def serial_form(self) -> str:
        """The form that OpenVINO runs alone."""
        if self.device.startswith("HETERO:"):
            return HETERO
        return MIXED if self.affinity else SINGLE

    @property
    def serial_devices(self) -> tuple[Device, ...]:
        """The devices of the form that OpenVINO runs alone."""
        names = self.device.rpartition(":")[2].split(",")
        return tuple(device for device in self.devices if device.name in names)

    @property
    def config(self) -> dict[str, Any]:
        """The properties that `compile_model` takes for `device`."""
        properties = {device.name: dict(device.properties) for device in self.serial_devices}
        if self.serial_form == HETERO:
            # Properties outside DEVICE_PROPERTIES would be overridden by HETERO.
            return {"DEVICE_PROPERTIES": properties}
        return properties[self.device]


def write(model: ov.Model, description: Description, notes: Mapping[str, str]) -> None:
    """Writes a description and notes for people into a model; call `seal` once its file is saved.

    Args:
      model: the function changes it.
      description: the description.
      notes: under keys that the description does not use.
    """
    content = {
        "version": str(_VERSION),
        "openvino": ov.get_version(),
        **notes,
        "form": description.form,
        "device": description.device,
        "config": json.dumps(description.config),
        "register": json.dumps(host_device_names(description.devices)),
        "affinity": json.dumps(description.affinity),
        "segments": json.dumps(description.segments),
        "devices": json.dumps(
            [
                {field: getattr(device, field) for field in sorted(_DEVICE_FIELDS)}
                for device in description.devices
            ]
        ),
        "dynamic": description.dynamic,
        "digest": _UNSEALED,
    }
    for key, text in content.items():
        # OpenVINO accepts only text that UTF-8 can hold; the name of a file, for example, need not.
        model.set_rt_info(text.encode("utf-8", "backslashreplace").decode(), [_SECTION, key])


def host_device_names(devices: Iterable[Device]) -> list[str]:
    """Returns the devices that exist only after the CPU plug-in is registered under their names."""
    return [device.name for device in devices if device.host]


def seal(file: Path) -> None:
    """Writes the digest of a model.xml and of the weights beside it into the model.xml."""
    text, digest = _unsealed_and_digest(files.read_bytes(file, remedy=REMEDY), file)
    sealed = _SEAL.sub(b'<digest value="%s" />' % digest.encode(), text, count=1)
    files.write_bytes(file, sealed)


def check_seal(file: Path) -> None:
    """Refuses a model.xml that has changed since it was written, or has other weights.

    A file without a digest passes: `read` refuses it, and knows whether its version is another one.

    Raises:
      UserError: the file has changed, or there are no weights beside it.
      OSError: the file cannot be read.
    """
    weights = file.with_suffix(".bin")
    if not weights.is_file():
        raise UserError(f"{str(file)!r} has no weights beside it; copy {str(weights)!r} there too")
    text = files.read_bytes(file, remedy=REMEDY)
    written = _SEAL.search(text)
    if written is not None and written[1].decode() != _unsealed_and_digest(text, file)[1]:
        raise UserError(
            f"{str(file)!r} or the weights beside it have changed since they were written; {REMEDY}"
        )


def read(model: ov.Model, file: Path) -> Description:
    """Returns the description of a model, checked against its operations.

    Args:
      model: the model as read from the file.
      file: named in messages.

    Raises:
      UserError: there is no description, it has another version, or it is damaged.
    """
    if not model.has_rt_info([_SECTION, "version"]):
        raise UserError(f"{str(file)!r} carries no placement; pass a deployed folder")
    version = _read_text(model, "version")
    if version != str(_VERSION):
        raise UserError(
            f"{str(file)!r} has version {version[:20]}, but this package reads {_VERSION}; {REMEDY}"
        )
    try:
        # The digest is searched in the text and not taken from the model, because OpenVINO reads it
        # in other spellings too, which `check_seal` would not have checked.
        text = files.read_bytes(file, remedy=REMEDY)
        _require(_SEAL.search(text) is not None, "it has no digest")
        return _parse(model)
    except (_DamagedError, UnicodeDecodeError) as error:
        raise UserError(f"{str(file)!r} is damaged: {error}; {REMEDY}") from error


def decision(model: ov.Model) -> str:
    """Returns the reason for the form of a deployed model, written for people."""
    return _read_text(model, "decision")


class _DamagedError(Exception):
    """States which part of a description is not as this package writes it."""


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise _DamagedError(problem)


def _unsealed_and_digest(text: bytes, file: Path) -> tuple[bytes, str]:
    """Returns a model.xml with zeros in place of its digest, and the digest of both files."""
    text = _SEAL.sub(b'<digest value="%s" />' % _UNSEALED.encode(), text, count=1)
    with files.open_regular(file.with_suffix(".bin"), "rb", follow_links=True) as weights:
        digest = hashlib.file_digest(cast(io.BufferedReader, weights), "sha256")
    digest.update(text)
    return text, digest.hexdigest()


def _read_text(model: ov.Model, key: str) -> str:
    path = [_SECTION, key]
    return model.get_rt_info(path).astype(str) if model.has_rt_info(path) else ""


def _parse(model: ov.Model) -> Description:
    """Reads and checks the description; raises a `_DamagedError` or a `UnicodeDecodeError`."""

    def read_json(key: str) -> Any:
        try:
            return json.loads(_read_text(model, key))
        except (ValueError, RecursionError) as error:
            raise _DamagedError(f"{key!r} is not JSON") from error

    form, device = _read_text(model, "form"), _read_text(model, "device")
    _require(form in _FORMS, f"unknown form {form[:20]!r}; valid are {', '.join(_FORMS)}")

    device_records = read_json("devices")
    _require(isinstance(device_records, list) and bool(device_records), "'devices' is no list")
    for record in device_records:
        has_fields = isinstance(record, dict) and set(record) == _DEVICE_FIELDS
        _require(has_fields, "'devices' has unknown or missing fields")
        problem = devices_lib.describe_invalid_device(Device(**record))
        _require(not problem, f"a device has {problem}")
    devices = tuple(Device(**record) for record in device_records)
    device_names = {device.name for device in devices}
    _require(len(device_names) == len(devices), "'devices' names one device twice")

    prefix, colon, listed = device.rpartition(":")
    serial_names = listed.split(",")
    _require(
        prefix in ("", "HETERO") and bool(prefix) == bool(colon),
        "'device' is neither a device nor HETERO with a list of devices",
    )
    _require(
        set(serial_names) <= device_names and len(set(serial_names)) == len(serial_names),
        "'device' names unknown devices, or one twice",
    )
    _require(bool(prefix) or len(serial_names) == 1, "'device' lists several without HETERO")

    affinity = read_json("affinity")
    _require(isinstance(affinity, dict), "'affinity' is no mapping")
    affinity_names = serial_names if prefix else device_names
    is_known = all(name in affinity_names for name in affinity.values())
    _require(is_known, "'affinity' names unknown devices")
    op_names = {op.get_friendly_name() for op in model.get_ops()}
    different = op_names ^ set(affinity) if prefix else set[str]()
    _require(
        not different,
        f"the model and 'affinity' differ in operations {quote_names(sorted(different))}",
    )

    segments = read_json("segments")
    _require(isinstance(segments, list), "'segments' is no list")
    for segment in segments:
        _require(isinstance(segment, list) and len(segment) == 2, "a segment is no pair")
        name, ops = segment
        _require(isinstance(name, str) and name in device_names, "a segment has an unknown device")
        is_names = isinstance(ops, list) and all(isinstance(op, str) for op in ops)
        _require(is_names, "a segment lists something other than names of operations")

    parsed_segments = tuple(Segment(name, tuple(ops)) for name, ops in segments)
    dynamic = _read_text(model, "dynamic")
    is_digest = bool(re.fullmatch(r"([0-9a-f]{64})?", dynamic))
    _require(is_digest, "'dynamic' is no digest")
    description = Description(form, device, affinity, parsed_segments, devices, dynamic)
    _require(
        form in (CONCURRENT, description.serial_form),
        f"form {form!r} does not fit device {device!r}",
    )
    _require(form != CONCURRENT or bool(segments), "form 'concurrent' has no segments")
    is_static = not any(port.partial_shape.is_dynamic for port in model.inputs)
    _require(is_static, "its inputs are dynamic")
    return description
