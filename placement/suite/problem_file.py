"""Files of placement problems: NumPy archives that any program can read.

The arrays of `placement.types.OpGraph` are under `graph.FIELD`, and those of `CostModel` under
`costs.FIELD`, or `costs.FIELD.PART` for a field with parts. All texts and the lists of each
operation are under `text`: the bytes of a JSON object. Fields without a value are missing.
"""

import hashlib
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from placement import files
from placement.errors import UserError
from placement.graphs import opgraph
from placement.problem import Problem
from placement.types import CostModel, SegmentCosts, TensorBytes

FOLDER = Path(__file__).parent  # has a folder for each version
INDEX = "index.json"
_NESTED: dict[str, Any] = {"tensor_bytes": TensorBytes, "segment_costs": SegmentCosts}
REMEDY = "install the package again"


def find_folder(version: int) -> Path:
    """Returns the folder of a version of the suite."""
    return FOLDER / f"version_{version}"


def locate(name: str, version: int) -> Path:
    """Returns the file of a problem of the suite."""
    return find_folder(version) / f"{name}.npz"


def save(problem: Problem, path: Path) -> str:
    """Writes a problem, which must have no order.

    Returns:
      The SHA-256 of the file.
    """
    if problem.order is not None:
        raise ValueError("files of problems have no order of priority")
    arrays: dict[str, np.ndarray] = {}
    text: dict[str, Any] = {"devices": problem.devices, "objective": problem.objective}
    for name, value in vars(problem.graph).items():
        if isinstance(value, np.ndarray):
            arrays[f"graph.{name}"] = value
        else:
            text[name] = value
    for name, value in problem.costs._asdict().items():
        if name in _NESTED:
            parts = value._asdict() if value is not None else {}
            arrays |= {f"costs.{name}.{part}": np.asarray(a) for part, a in parts.items()}
        elif value is not None:
            arrays[f"costs.{name}"] = np.asarray(value)
    arrays["text"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    files.write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def load(path: Path, sha256: str) -> Problem:
    """Reads a problem.

    Args:
      path: from `save`.
      sha256: of the file.

    Raises:
      UserError: the file is missing, or not the one that was saved.
    """
    content = files.read_bytes(path, remedy=REMEDY)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError(f"{str(path)!r} is not the file that the index names; {REMEDY}")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    text = json.loads(arrays.pop("text").tobytes())
    devices, objective = tuple(text.pop("devices")), text.pop("objective")
    fields: defaultdict[str, dict[str, Any]] = defaultdict(dict)  # by what comes before the name
    for name, array in arrays.items():
        prefix, _, field = name.rpartition(".")
        fields[prefix][field] = array
    graph = opgraph.make_graph(**text, **fields["graph"])
    for field, make in _NESTED.items():
        if parts := fields[f"costs.{field}"]:
            fields["costs"][field] = make(**parts)
    return Problem(graph, CostModel(**fields["costs"]), objective, devices)
