"""The best known solution of every problem of the suite."""

import io
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from placement import files
from placement.suite import problem_file

_VALUES, _SOLUTIONS = "values.json", "solutions.npz"
_SCHEMA = {str: {"value_s": float, "bound_s": files.OptionalField(float), "method": str}}


class Best(NamedTuple):
    """The best known solution of a problem."""

    value_s: float  # of the problem's simulator
    bound_s: float  # no placement, in any order of priority, is faster; nan if none is proven
    method: str  # that found it
    placement: np.ndarray  # int32 [K]
    order: np.ndarray | None  # int32 [N]: of priority; None: by HEFT's upward rank


def read(version: int) -> dict[str, Best]:
    """Returns the best known solutions of a version of the suite, by problem.

    Raises:
      UserError: the files are missing or damaged.
    """
    folder = problem_file.find_folder(version)
    values: dict[str, dict[str, Any]] = files.read_json(
        folder / _VALUES, _SCHEMA, remedy=problem_file.REMEDY
    )
    content = files.read_bytes(folder / _SOLUTIONS, remedy=problem_file.REMEDY)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {
            name: Best(
                record["value_s"],
                record.get("bound_s", math.nan),
                record["method"],
                arrays[f"{name}.placement"].astype(np.int32),
                arrays.get(f"{name}.order"),
            )
            for name, record in values.items()
        }


def write(known: Mapping[str, Best], version: int) -> None:
    """Writes the best known solutions, in place of earlier ones."""
    folder = problem_file.find_folder(version)
    values, arrays = {}, {}
    for name, best in sorted(known.items()):
        values[name] = {"value_s": best.value_s, "method": best.method}
        if not math.isnan(best.bound_s):
            values[name]["bound_s"] = best.bound_s
        arrays[f"{name}.placement"] = best.placement.astype(np.int8)
        if best.order is not None:
            arrays[f"{name}.order"] = best.order.astype(np.int32)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    files.write_bytes(folder / _SOLUTIONS, buffer.getvalue())
    files.write_bytes(folder / _VALUES, json.dumps(values, indent=1).encode() + b"\n")
