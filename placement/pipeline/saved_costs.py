"""Costs of devices in a profile.json: of the run directory, or of another run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placement import files
from placement.costs import correction, tables
from placement.runtime.devices import Device
from placement.runtime.models import support
from placement.types import CostModel, OpGraph

FILE = "profile.json"
_MATRIX = [[float]]
_TRANSFER_MATRICES = {"latency_s": _MATRIX, "s_per_byte": _MATRIX}
_PROFILE = {"device": str, "latency_s": float, "kernels": [[object]], "unsupported": [str]}
_TRANSFER = {"devices": [str], **dict.fromkeys(("latency_s", "s_per_byte"), float)}
_TRANSFER |= dict.fromkeys(("median_error", "p90_error"), files.NUMBER)
_SCHEMA = {
    "profiles": [_PROFILE],
    "crossings": _TRANSFER_MATRICES,
    "key": str,  # of the model, the machine and the devices
    "handovers": files.OptionalField(
        {"groups": [[str]], "alone_s": [[files.NUMBER]]} | _TRANSFER_MATRICES
    ),
    "reasons": files.OptionalField([support.SCHEMA]),
    "transfers": [_TRANSFER],
    # Of the memory of each device, where any has a limit.
    "capacity_bytes": files.OptionalField([files.NUMBER]),
    "conditions": {"busy": (str, None)},
    "correction": files.OptionalField({"factors": [files.NUMBER]}),
}


def read(path: Path) -> dict[str, Any]:
    """Reads the costs of D devices; a UserError without the file, or if it is not one of costs."""
    return files.read_json(path, _SCHEMA, _validate, remedy=f"pass the {FILE} of a run")


def _validate(saved: dict[str, Any]) -> dict[str, Any]:
    """Returns the data unless an array has a shape that does not fit the devices."""
    profiles, crossings = tables.from_json(saved)
    if not profiles:
        raise ValueError("it is of no device")
    for profile in profiles:
        for names, seconds in profile.kernels:
            files.check(list(names), [str], "names of a kernel")
            files.check(seconds, float, "seconds of a kernel")
    num_devices = len(profiles)
    device_pairs = num_devices, num_devices
    shapes: list[tuple[str, Any, tuple[int, ...]]] = []
    shapes += [("crossings", matrix, device_pairs) for matrix in crossings]
    if "handovers" in saved:
        submodels = tables.submodels_from_json(saved["handovers"])
        shapes += [("handovers", matrix, device_pairs) for matrix in submodels.transfers]
        shapes += [("handovers.alone_s", submodels.alone_s, (len(submodels.groups), num_devices))]
    if "correction" in saved:
        factors_shape = (correction.num_factors(num_devices),)
        shapes += [("correction.factors", saved["correction"]["factors"], factors_shape)]
    if len(saved.get("capacity_bytes", profiles)) != num_devices:
        raise ValueError("capacity_bytes does not have one number for each device")
    for name, array, shape in shapes:
        if np.shape(array) != shape:
            raise ValueError(
                f"{name} has shape {np.shape(array)}, where that of its devices is {shape}"
            )
    return saved


def device_labels(saved: dict[str, Any]) -> tuple[str, ...]:
    """Returns the labels of the profiled devices."""
    return tuple(profile["device"] for profile in saved["profiles"])


def with_capacities(saved: dict[str, Any], devices: Sequence[Device]) -> dict[str, Any]:
    """Returns the costs with the limits of the devices' memory, instead of those they have."""
    saved = {key: value for key, value in saved.items() if key != "capacity_bytes"}
    if any(device.capacity_bytes is not None for device in devices):
        saved["capacity_bytes"] = [device.capacity_bytes for device in devices]
    return saved


def cost_model(graph: OpGraph, saved: dict[str, Any]) -> CostModel:
    """Makes the cost model of a profile, with its correction."""
    profiles, crossings = tables.from_json(saved)
    costs = tables.cost_model(graph, profiles, crossings)
    costs = tables.limit_memory(costs, graph, saved.get("capacity_bytes", ()))
    if "handovers" in saved:
        costs = tables.make_concurrent(graph, costs, tables.submodels_from_json(saved["handovers"]))
    if "correction" not in saved:
        return costs
    return correction.apply(graph, costs, saved["correction"]["factors"])
