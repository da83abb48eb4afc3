"""What is checked of a placement on the machine that is to run it, before it is measured there.

The devices are present, the model is the one that was placed, and every device supports what it is
given. What fails is refused in one line. `placement.runtime.deployment.decision` then measures, and
what was written is loaded once more (`compare_outputs`), as its users will.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.deployment.network import Network
from placement.runtime.devices import Device
from placement.runtime.execution import hetero
from placement.runtime.execution.split import Segment
from placement.runtime.models import fingerprint, operations, outputs
from placement.runtime.models.fingerprint import few

_SCHEMA = {
    "method": str,
    "placement": {str: str},
    "segments": files.Maybe(([[object]], None)),
    "provenance": {
        "devices": {str: {"label": str, "properties": {str: object}}},
        "graph": {"name": str},
        "model": files.Maybe(({"ops": {str: str}, "weights": {str: object}}, None)),
    },
}


class Placed(NamedTuple):
    """What placement.json says."""

    method: str
    affinity: Mapping[str, str]
    segments: tuple[Segment, ...]  # none: it has no concurrent form
    devices: tuple[str, ...]  # that it could choose from
    host: str  # those of them that are made of the CPU, as `devices.resolve` takes it; '' for none
    graph: str
    model: fingerprint.Fingerprint | None  # None in a file of an earlier version
    f32: frozenset[str] = frozenset()  # devices that computed in f32, whatever they choose

    @property
    def used(self) -> frozenset[str]:
        """The devices that have something to run."""
        return frozenset(self.affinity.values())


def read(path: Path) -> Placed:
    """Reads a placement.json.

    Raises:
      UserError: there is none, or it is none.
    """
    if not path.exists():
        raise UserError(
            f"no placement.json in {str(path.parent)!r}; run --task=place with this --workdir first"
        )
    remedy = "run --task=place with this --workdir again"
    return files.read_json(path, _SCHEMA, _placed, remedy=remedy)


def _placed(data: Mapping[str, Any]) -> Placed:
    provenance = data["provenance"]
    return Placed(
        data["method"],
        data["placement"],
        tuple(Segment(device, tuple(ops)) for device, ops in data.get("segments") or ()),
        tuple(provenance["devices"]),
        _host(provenance["devices"]),
        provenance["graph"]["name"],
        provenance.get("model"),
        frozenset(n for n, told in provenance["devices"].items() if _precision(told) == "f32"),
    )


def _host(told: Mapping[str, Any]) -> str:
    precisions = [_precision(device) for device in told.values() if "[host" in device["label"]]
    return f"host:{','.join(precisions)}" if precisions else ""


def _precision(told: Mapping[str, Any]) -> str:
    """Of a device of placement.json; '' of one that was not present."""
    return told["properties"].get("INFERENCE_PRECISION_HINT", "")


def find_devices(placed: Placed, spec: str) -> tuple[Device, ...]:
    """The devices to measure on: those of `spec`, or with 'auto' those placed on that are here.

    One that had to compute in f32 for right outputs does so here, too.

    Raises:
      UserError: a device that the placement uses is not among them.
    """
    here = ov.Core().available_devices
    if spec == "auto":
        made = devices.resolve(placed.host) if placed.host else ()
        host = {device.name: device for device in made}
        wanted = [name for name in placed.devices if name in here or name in host]
        found = tuple(host[n] if n in host else devices.resolve(n)[0] for n in wanted)
        where = f"not present: here are {', '.join([*here, *host])}"
    else:
        found = devices.resolve(spec)
        where = f"not among devices={spec!r}: {', '.join(device.name for device in found)}"
    found = _as_placed(found, placed)
    absent = sorted(placed.used - {device.name for device in found})
    if absent:
        raise UserError(
            f"the placement uses {few(absent)}, {where}; place the model on devices that are here: "
            "--task=place"
        )
    return found


def _as_placed(found: tuple[Device, ...], placed: Placed) -> tuple[Device, ...]:
    """Devices in the precisions of the placement, by name; host devices, whose names these are, by
    order.
    """
    alike = all(device.host for device in found) and len(found) == len(placed.devices)
    names = placed.devices if alike else [device.name for device in found]
    pairs = zip(found, names, strict=True)
    return devices.in_f32(
        found, [d.name for d, name in pairs if name in placed.f32 and d.precision != "f32"]
    )


def check_model(placed: Placed, model: ov.Model, name: str) -> None:
    """Refuses a model that is not the one that was placed, saying in what it differs.

    Raises:
      UserError: it is not.
    """
    if placed.model is not None:
        found = fingerprint.differences(placed.model, fingerprint.of(model))
    else:
        constant = operations.constant_names(model)
        ops = {op.get_friendly_name(): op.get_type_name() for op in model.get_ordered_ops()}
        # Of constants and Results a placement need not have a device.
        free = [name for name, kind in ops.items() if name in constant or kind == "Result"]
        found = fingerprint.other_names([*placed.affinity, *free], ops)
    if found:
        raise UserError(
            f"the model {name!r} is not the one that was placed ({placed.graph!r}): "
            f"{'; '.join(found)}; give that one, or run --task=place on this one"
        )


def check_support(
    core: Any, model: ov.Model, affinity: hetero.Affinity, devices_: Sequence[Device]
) -> None:
    """Refuses operations that their device does not support.

    Args:
      core: an `ov.Core` that knows the devices.
      model: as placed.
      affinity: the placement.
      devices_: that it uses.

    Raises:
      UserError: a device does not support an operation that is placed on it.
    """
    constant = operations.constant_names(model)
    for device in devices_:
        supported = core.query_model(model, device.name, dict(device.properties))
        lacking = [
            f"{op.get_friendly_name()} ({op.get_type_name()})"
            for op in model.get_ordered_ops()
            if affinity.get(op.get_friendly_name()) == device.name
            and op.get_friendly_name() not in constant
            and op.get_type_name() not in ("Parameter", "Result")
            and op.get_friendly_name() not in supported
        ]
        if lacking:
            raise UserError(
                f"{device.label} does not support {few(lacking)} of the placement; "
                "place the model on this machine: --task=place"
            )


def compare_outputs(
    folder: Path, model: ov.Model, samples: Sequence[Sequence[np.ndarray]]
) -> dict[str, outputs.Comparison]:
    """Runs what was written as its users will, and compares outputs with the reference device's.

    Args:
      folder: that `deploy.save` wrote.
      model: that was deployed.
      samples: to compare outputs for, each with an array for each of the model's inputs.

    Returns:
      The comparison of 'load', and of 'import' where there is a blob.

    Raises:
      UserError: it cannot be loaded, or all outputs of the reference device are NaN.
    """
    device = devices.reference_device()
    compiled = hetero.compile_placement(ov.Core(), model, None, [device])
    reference = _all_twice(Network(model, compiled, form=artifact.SINGLE), samples)
    values = [array for array in reference if array.size]
    if values and all(array.dtype.kind == "f" and np.isnan(array).all() for array in values):
        raise UserError(
            "all outputs of the model are NaN, so nothing of them can be checked; give a model "
            "without NaN in its weights, or inputs that it was made for: --config.inputs=FILE.npz"
        )
    with artifact.load(folder) as network:
        comparisons = {"load": outputs.compare(reference, _all_twice(network, samples))}
    if (folder / artifact.BLOB).exists():
        imported = Network(model, artifact.import_blob(folder), form="imported")
        comparisons["import"] = outputs.compare(reference, _all_twice(imported, samples))
    return comparisons


def _all_twice(network: Network, samples: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Outputs of two inferences each: a state that is not carried over shows in the second."""
    return [a for arrays in samples for _ in range(2) for a in network.infer(list(arrays))]
