"""What a deployed model says of how it runs, and what of that is believed.

It stands in the runtime information of model.xml, under 'placement'. Whoever reads it takes nothing
on trust: every value is checked, and of the properties that OpenVINO knows only those are passed
on that this package writes, as others write files or load them. A digest of both files tells
that they are as they were written; it is no signature.
"""

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices as devices_lib
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment
from placement.runtime.models.fingerprint import few

SINGLE, HETERO, CONCURRENT = "single", "hetero", "concurrent"
FORMS = (SINGLE, HETERO, CONCURRENT)

_SECTION = "placement"
_VERSION = 3  # of what is written; another is refused
_UNSEALED = "0" * 64  # in the place of the digest, while it is taken
_SEAL = re.compile(rb'<digest value="([0-9a-f]{64})" />')
_REMEDY = "deploy it again"
_FIELDS = {field.name for field in dataclasses.fields(Device)}


class Description(NamedTuple):
    """How a deployed model runs."""

    form: str  # what is loaded unless something else is asked for
    device: str  # for `compile_model`: a device, or 'HETERO:' and several
    affinity: Mapping[str, str]  # of every operation of the file; none where one device has all
    segments: tuple[Segment, ...]  # of form 'concurrent'
    devices: tuple[Device, ...]

    @property
    def serial_form(self) -> str:
        """The form that OpenVINO runs alone."""
        return HETERO if self.device.startswith("HETERO:") else SINGLE

    @property
    def serial_devices(self) -> tuple[Device, ...]:
        """The devices of that form."""
        names = self.device.rpartition(":")[2].split(",")
        return tuple(device for device in self.devices if device.name in names)

    @property
    def config(self) -> dict[str, Any]:
        """The properties that `compile_model` takes for `device`."""
        properties = {device.name: dict(device.properties) for device in self.serial_devices}
        if self.serial_form == HETERO:
            return {"DEVICE_PROPERTIES": properties}
        return properties[self.device]


def write(model: ov.Model, description: Description, notes: Mapping[str, str]) -> None:
    """Writes a description, and notes for people, into a model; `seal` its file once it is saved.

    Args:
      model: changed.
      description: what it is to say.
      notes: under names that the description does not use.
    """
    content = {
        "version": str(_VERSION),
        "openvino": ov.get_version(),
        **notes,
        "form": description.form,
        "device": description.device,
        "config": json.dumps(description.config),
        "register": json.dumps(registered(description.devices)),
        "affinity": json.dumps(description.affinity),
        "segments": json.dumps(description.segments),
        "devices": json.dumps([dataclasses.asdict(device) for device in description.devices]),
        "digest": _UNSEALED,
    }
    for key, text in content.items():
        # OpenVINO takes no text that UTF-8 cannot hold, such as the name of some file.
        model.set_rt_info(text.encode("utf-8", "backslashreplace").decode(), [_SECTION, key])


def registered(devices: Iterable[Device]) -> list[str]:
    """Names of the devices that have to be made of the CPU's plug-in before they are there."""
    return [device.name for device in devices if device.host]


def seal(file: Path) -> None:
    """Writes the digest of a model.xml, and of the weights beside it, into it."""
    text = _unsealed(files.read_bytes(file, remedy=_REMEDY))
    digest = _digest(text, file)
    sealed = _SEAL.sub(b'<digest value="%s" />' % digest.encode(), text, count=1)
    files.write_bytes(file, sealed)


def check_seal(file: Path) -> None:
    """Refuses a model.xml that is not as it was written, or has other weights.

    One without a digest is for `read` to refuse, which knows whether it is of another version.

    Raises:
      UserError: it is not, or has no weights.
      OSError: it cannot be read.
    """
    weights = file.with_suffix(".bin")
    if not weights.is_file():
        raise UserError(f"{str(file)!r} has no weights beside it; copy {str(weights)!r} there too")
    text = files.read_bytes(file, remedy=_REMEDY)
    found = _SEAL.search(text)
    if found is not None and found[1].decode() != _digest(_unsealed(text), file):
        raise UserError(
            f"{str(file)!r}, or the weights beside it, is not as it was written; deploy it again"
        )


def read(model: ov.Model, file: Path) -> Description:
    """The description of a model, checked against its operations.

    Args:
      model: as read.
      file: that it was read from, which messages name.

    Raises:
      UserError: there is none, it is of another version, or it cannot be believed.
    """
    if not model.has_rt_info([_SECTION, "version"]):
        raise UserError(
            f"{str(file)!r} carries no placement; give the folder that --task=deploy wrote"
        )
    version = _text(model, "version")
    if version != str(_VERSION):
        raise UserError(
            f"{str(file)!r} is of version {version[:20]}, but this package reads {_VERSION}; "
            "deploy it again"
        )
    try:
        # Not that of the model: OpenVINO reads it in other spellings too, which nobody has checked.
        text = files.read_bytes(file, remedy=_REMEDY)
        _require(_SEAL.search(text) is not None, "it has no digest")
        return _checked(model)
    except (_UnbelievableError, UnicodeDecodeError) as error:
        raise UserError(f"{str(file)!r} is damaged: {error}; deploy it again") from error


def decision(model: ov.Model) -> str:
    """Why it has the form that it has, for people."""
    return _text(model, "decision")


class _UnbelievableError(Exception):
    """Says what of a description is not as this package writes it."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise _UnbelievableError(what)


def _unsealed(text: bytes) -> bytes:
    return _SEAL.sub(b'<digest value="%s" />' % _UNSEALED.encode(), text, count=1)


def _digest(text: bytes, file: Path) -> str:
    with files.open_regular(file.with_suffix(".bin"), "rb", follow_links=True) as weights:
        found = hashlib.file_digest(cast(io.BufferedReader, weights), "sha256")
    found.update(text)
    return found.hexdigest()


def _text(model: ov.Model, key: str) -> str:
    path = [_SECTION, key]
    return model.get_rt_info(path).astype(str) if model.has_rt_info(path) else ""


def _json(model: ov.Model, key: str) -> Any:
    try:
        return json.loads(_text(model, key))
    except (ValueError, RecursionError) as error:
        raise _UnbelievableError(f"{key!r} is no JSON") from error


def _checked(model: ov.Model) -> Description:
    form, device = _text(model, "form"), _text(model, "device")
    _require(form in FORMS, f"form {form[:20]!r} is none of {', '.join(FORMS)}")
    devices = _devices(_json(model, "devices"))
    names = [device.name for device in devices]
    prefix, colon, listed = device.rpartition(":")
    used = listed.split(",")
    _require(prefix in ("", "HETERO") and bool(prefix) == bool(colon), "'device' is of no form")
    _require(set(used) <= set(names) and len(set(used)) == len(used), "'device' names others")
    _require(bool(prefix) or len(used) == 1, "'device' names several")
    affinity = _affinity(_json(model, "affinity"), model, used if prefix else [])
    segments = _segments(_json(model, "segments"), names)
    found = Description(form, device, affinity, segments, devices)
    _require(form in (CONCURRENT, found.serial_form), f"form {form!r} is not that of {device!r}")
    _require(form != CONCURRENT or bool(segments), "it is concurrent without any segments")
    _require(not any(p.partial_shape.is_dynamic for p in model.inputs), "its inputs are dynamic")
    return found


def _devices(told: Any) -> tuple[Device, ...]:
    _require(isinstance(told, list) and bool(told), "'devices' lists none")
    for fields in told:
        _require(isinstance(fields, dict) and set(fields) == _FIELDS, "'devices' has other fields")
        wrong = devices_lib.what_is_wrong(Device(**fields))
        _require(not wrong, f"a device has {wrong}")
    names = {fields["name"] for fields in told}
    _require(len(names) == len(told), "'devices' names one twice")
    return tuple(Device(**fields) for fields in told)


def _affinity(told: Any, model: ov.Model, used: Collection[str]) -> dict[str, str]:
    _require(isinstance(told, dict), "'affinity' is no mapping")
    _require(all(name in used for name in told.values()), "'affinity' names other devices")
    names = {op.get_friendly_name() for op in model.get_ops()}
    differ = names ^ set(told) if used else set[str]()
    _require(not differ, f"its operations are not those it was written with: {few(sorted(differ))}")
    return told


def _segments(told: Any, names: Collection[str]) -> tuple[Segment, ...]:
    _require(isinstance(told, list), "'segments' is no list")
    for segment in told:
        _require(isinstance(segment, list) and len(segment) == 2, "a segment is no pair")
        device, ops = segment
        _require(isinstance(device, str) and device in names, "a segment is of another device")
        named = isinstance(ops, list) and all(isinstance(op, str) for op in ops)
        _require(named, "a segment has other things than operations")
    return tuple(Segment(device, tuple(ops)) for device, ops in told)
