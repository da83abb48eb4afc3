"""What devices cost, as profile.json has it: the one of a run directory, or one that is given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placement import files
from placement.costs import calibrate, tables

FILE = "profile.json"
_MATRIX = [[float]]
_BETWEEN = {"latency_s": _MATRIX, "s_per_byte": _MATRIX}
_PROFILE = {"device": str, "latency_s": float, "kernels": [[object]], "unsupported": [str]}
_TRANSFER = {"devices": [str], **dict.fromkeys(("latency_s", "s_per_byte"), float)}
_TRANSFER |= dict.fromkeys(("median_error", "p90_error"), files.NUMBER)
_SCHEMA = {
    "profiles": [_PROFILE],
    "crossings": _BETWEEN,
    "key": files.Maybe(str),
    "handovers": files.Maybe(
        {
            "groups": [[str]],
            "alone_s": [[files.NUMBER]],
            "slowdown": files.Maybe([[files.NUMBER]]),
        }
        | _BETWEEN
    ),
    "transfers": files.Maybe([_TRANSFER]),
    "conditions": files.Maybe({"limit_s": float, "left_out": [str], "busy": (str, None)}),
    "calibration": files.Maybe(
        {"compute": [float], "cut": float, "fusion_loss_s": float} | _BETWEEN
    ),
}


def read(path: Path) -> dict[str, Any]:
    """Reads the costs of D devices.

    Raises:
      UserError: there are none.
      files.CorruptFileError: it is another file, or is not of D devices throughout.
    """
    return files.read_json(path, _SCHEMA, _checked, remedy=f"give the {FILE} of a run")


def _checked(saved: dict[str, Any]) -> dict[str, Any]:
    profiles, crossings = tables.from_json(saved)
    if not profiles:
        raise ValueError("it is of no device")
    for profile in profiles:
        for names, seconds in profile.kernels:
            files.check(list(names), [str], "names of a kernel")
            files.check(seconds, float, "seconds of a kernel")
    num_devices = len(profiles)
    _check_shapes(crossings, num_devices, "crossings")
    if "handovers" in saved:
        submodels = tables.submodels_from_json(saved["handovers"])
        _check_shapes(submodels.transfers, num_devices, "handovers")
        of_groups = len(submodels.groups), num_devices
        _check_shape(submodels.alone_s, of_groups, "handovers.alone_s")
        _check_shape(submodels.slowdown, of_groups, "handovers.slowdown")
    if "calibration" in saved:
        calibration = calibrate.from_json(saved["calibration"])
        between = [calibration.latency_s, calibration.s_per_byte]
        _check_shapes(between, num_devices, "calibration")
        _check_shape(calibration.compute, (num_devices,), "calibration.compute")
    return saved


def _check_shapes(matrices: Sequence[np.ndarray], num_devices: int, what: str) -> None:
    for matrix in matrices:
        _check_shape(matrix, (num_devices, num_devices), what)


def _check_shape(array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape}, where that of its devices is {shape}")
