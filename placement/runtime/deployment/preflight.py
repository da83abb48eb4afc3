"""Checks of a placement on the target machine, before it is measured there.

The checks are: the devices are present, the model is the one that was placed, and every device
supports its operations. A failed check is refused in one line. Then
`placement.runtime.deployment.decision` measures. Finally the written folder is loaded again as its
users will load it (`compare_outputs`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact, service
from placement.runtime.deployment.network import Network
from placement.runtime.devices import Device
from placement.runtime.execution import hetero
from placement.runtime.execution.split import Segment
from placement.runtime.models import fingerprint, operations, outputs, support
from placement.runtime.models.fingerprint import quote_names

_SCHEMA = {
    "method": str,
    "placement": {str: str},
    "segments": files.OptionalField(([[object]], None)),
    "order": files.OptionalField([str]),  # of all operations; segments are in this order
    "provenance": {
        "devices": {str: {"label": str, "properties": {str: object}}},
        "graph": {"name": str},
        "memory": files.OptionalField(
            {str: {"placement_bytes": float, "model_bytes": float, "capacity_bytes": files.NUMBER}}
        ),
        "model": files.OptionalField(({"ops": {str: str}, "weights": {str: object}}, None)),
    },
}


class PlacementFile(NamedTuple):
    """The content of a placement.json."""

    method: str
    affinity: Mapping[str, str]
    segments: tuple[Segment, ...]  # empty if the placement has no concurrent form
    devices: tuple[str, ...]  # the devices that the method could choose from
    host: str  # the host devices among them as `devices.resolve` takes them; '' if there are none
    graph: str  # its name
    model: fingerprint.Fingerprint | None  # None in a file of an earlier version
    f32: frozenset[str] = frozenset()  # devices that computed in f32, whatever they choose
    # By device: the memory that the placement needs on it, that the whole model needs there, and
    # that it had. Empty in a file of an earlier version.
    memory: Mapping[str, Mapping[str, float | None]] = MappingProxyType({})

    @property
    def used_devices(self) -> frozenset[str]:
        """The devices that run an operation."""
        return frozenset(self.affinity.values())


def read(path: Path) -> PlacementFile:
    """Reads a placement.json.

    Raises:
      UserError: the file is missing, or is not a placement.
    """
    if not path.exists():
        raise UserError(
            f"no placement.json in {str(path.parent)!r}; place the model with this workdir first"
        )

    def parse(data: Mapping[str, Any]) -> PlacementFile:
        if sorted(data.get("order", data["placement"])) != sorted(data["placement"]):
            raise ValueError("its order does not have every operation of the placement once")
        provenance = data["provenance"]
        precisions = {  # '' for a device that was described, not present
            name: record["properties"].get("INFERENCE_PRECISION_HINT", "")
            for name, record in provenance["devices"].items()
        }
        labels = {name: record["label"] for name, record in provenance["devices"].items()}
        host_precisions = [precisions[name] for name in labels if "[host" in labels[name]]
        host = f"host:{','.join(host_precisions)}" if host_precisions else ""
        if any(f"[{devices.PRECISIONS}," in label for label in labels.values()):
            host = devices.PRECISIONS
        return PlacementFile(
            data["method"],
            data["placement"],
            tuple(Segment(device, tuple(ops)) for device, ops in data.get("segments") or ()),
            tuple(provenance["devices"]),
            host,
            provenance["graph"]["name"],
            provenance.get("model"),
            frozenset(name for name, precision in precisions.items() if precision == "f32"),
            provenance.get("memory", {}),
        )

    remedy = "place the model with this workdir again"
    return files.read_json(path, _SCHEMA, parse, remedy=remedy)


def find_devices(placed: PlacementFile, spec: str) -> tuple[Device, ...]:
    """Returns the devices to measure on.

    A device that had to compute in f32 for right outputs does so here, too.

    Args:
      placed: the placement.
      spec: see `devices.resolve`; but 'auto' selects the devices that the placement could choose
        from and that are present, with the limits of memory that they had.

    Raises:
      UserError: a device that the placement uses is not among them.
    """
    present = ov.Core().available_devices
    if spec == "auto":
        host_devices = devices.resolve(placed.host) if placed.host else ()
        host = {device.name: device for device in host_devices}
        names = [name for name in placed.devices if name in present or name in host]
        resolved = [host[n] if n in host else devices.resolve(n)[0] for n in names]
        selected = tuple(_with_recorded_capacity(placed, device) for device in resolved)
        problem = f"not present: here are {', '.join([*present, *host])}"
    else:
        selected = devices.resolve(spec)
        listed = ", ".join(device.name for device in selected)
        problem = f"not among devices={spec!r}: {listed}"
    # Names of host devices contain their precision, such as 'CPU_BF16', so these are matched with
    # the devices of the placement by position.
    is_host = all(device.host for device in selected) and len(selected) == len(placed.devices)
    placed_names = placed.devices if is_host else tuple(device.name for device in selected)
    f32_names = [
        device.name
        for device, placed_name in zip(selected, placed_names, strict=True)
        if placed_name in placed.f32 and device.precision != "f32"
    ]
    selected = devices.replace_with_f32(selected, f32_names)
    absent = sorted(placed.used_devices - {device.name for device in selected})
    if absent:
        raise UserError(
            f"the placement uses {quote_names(absent)}, {problem}; place the model on devices of "
            "this machine"
        )
    return selected


def _with_recorded_capacity(placed: PlacementFile, device: Device) -> Device:
    capacity_bytes = placed.memory.get(device.name, {}).get("capacity_bytes")
    if capacity_bytes is None:
        return device
    return dataclasses.replace(device, capacity_bytes=int(capacity_bytes))


def describe_excess(placed: PlacementFile, device: Device, *, whole_model: bool) -> str:
    """Says how much memory a device lacks, such as 'needs 8.1 MB of 6.0 MB'; '' if it has enough.

    Args:
      placed: the placement.
      device: its name is that of the placement.
      whole_model: whether the device is to run everything, or what the placement gives it.
    """
    if device.capacity_bytes is None:
        return ""
    needs = placed.memory.get(device.name)
    if needs is None:
        return f"has {device.capacity_bytes} bytes, and placement.json does not say what it needs"
    needed_bytes = needs["model_bytes" if whole_model else "placement_bytes"]
    assert needed_bytes is not None
    if needed_bytes <= device.capacity_bytes:
        return ""
    return f"needs {needed_bytes / 1e6:.1f} MB of {device.capacity_bytes / 1e6:.1f} MB"


def check_memory(placed: PlacementFile, used_devices: Sequence[Device]) -> None:
    """Refuses a placement that needs more memory than a device has.

    Raises:
      UserError: it does.
    """
    for device in used_devices:
        if excess := describe_excess(placed, device, whole_model=False):
            raise UserError(
                f"the placement is out of memory: {device.name} {excess}; place the model on these "
                "devices again"
            )


def check_model(placed: PlacementFile, model: ov.Model, name: str) -> None:
    """Refuses a model that is not the one that was placed, and states the differences.

    Raises:
      UserError: it is another model.
    """
    if placed.model is not None:
        differences = fingerprint.describe_differences(
            placed.model, fingerprint.compute_fingerprint(model)
        )
    else:
        constant = operations.constant_names(model)
        ops = {op.get_friendly_name(): op.get_type_name() for op in model.get_ordered_ops()}
        # A placement need not name the devices of constants and Results.
        optional = [name for name, kind in ops.items() if name in constant or kind == "Result"]
        differences = fingerprint.describe_name_differences([*placed.affinity, *optional], ops)
    if differences:
        raise UserError(
            f"the model {name!r} is not the one that was placed ({placed.graph!r}): "
            f"{'; '.join(differences)}; deploy that one, or place this one"
        )


def check_support(
    core: Any, model: ov.Model, affinity: hetero.Affinity, used_devices: Sequence[Device]
) -> None:
    """Refuses operations that their device does not support.

    Args:
      core: an `ov.Core` that knows the devices.
      model: the model that was placed.
      affinity: the placement.
      used_devices: the devices of the placement.

    Raises:
      UserError: a device does not support an operation that is placed on it.
    """
    constant = operations.constant_names(model)
    for device in used_devices:
        supported = core.query_model(model, device.name, dict(device.properties))
        unsupported = [
            op
            for op in model.get_ordered_ops()
            if affinity.get(op.get_friendly_name()) == device.name
            and op.get_friendly_name() not in constant
            and op.get_type_name() not in ("Parameter", "Result")
            and op.get_friendly_name() not in supported
        ]
        if unsupported:
            names = [f"{op.get_friendly_name()} ({op.get_type_name()})" for op in unsupported]
            first_name = unsupported[0].get_friendly_name()
            (first,) = support.explain(core, model, device.name, [first_name])
            raise UserError(
                f"{device.label} does not support {quote_names(names)} of the placement "
                f"({first_name} with {first.inputs}: {first.reason}); place the model on this "
                "machine"
            )


def compare_outputs(
    folder: Path, model: ov.Model, samples: Sequence[Sequence[np.ndarray]]
) -> dict[str, outputs.Comparison]:
    """Runs a written folder as its users will, and compares outputs with the reference device's.

    Args:
      folder: written by `artifact.save`.
      model: the model that was deployed.
      samples: the inputs to compare outputs for, an array for each of the model's inputs.

    Returns:
      The comparison of 'load', and of 'import' if there is a blob.

    Raises:
      UserError: the folder cannot be loaded, or all outputs of the reference device are NaN.
    """

    def infer_all(network: Network) -> list[np.ndarray]:
        """Infers each sample twice: a state that is not carried over shows in the second time."""
        return [a for arrays in samples for _ in range(2) for a in network.infer(list(arrays))]

    def compile_reference() -> service.Compiled:
        reference_device = devices.reference_device()
        compiled = hetero.compile_placement(ov.Core(), model, None, [reference_device])
        return service.wrap(compiled)

    reference = infer_all(Network(model, compile_reference, form=artifact.SINGLE))
    nonempty = [array for array in reference if array.size]
    if nonempty and all(array.dtype.kind == "f" and np.isnan(array).all() for array in nonempty):
        raise UserError(
            "all outputs of the model are NaN, so they cannot be checked; use a model without NaN "
            "in its weights, or inputs that it was made for: inputs='FILE.npz'"
        )
    with artifact.load(folder) as network:
        comparisons = {"load": outputs.compare(reference, infer_all(network))}
    if (folder / artifact.BLOB_FILE).exists():
        network = Network(
            model, lambda: service.wrap(artifact.import_blob(folder)), form="imported"
        )
        comparisons["import"] = outputs.compare(reference, infer_all(network))
    return comparisons
