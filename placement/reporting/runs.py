"""The run directory: atomically written files, and a log of complete lines.

A run may be killed at any moment, and another process may read the directory at any moment. So a
file is written under a temporary name, flushed to the disk and renamed, which POSIX makes atomic.
A log grows by one write for each record; an unfinished line at its end is not a record. Temporary
files of a killed run are removed when the directory is prepared again. A write that fails, as on a
full disk, raises an `OSError` that names the file, and leaves the file unchanged.

JSON has neither NaN nor infinity: both are written as null, which means "no number".
"""

import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from placement import files
from placement.errors import UserError

StrPath = str | os.PathLike[str]

SUMMARY, PLACEMENT = "summary.json", "placement.json"

_INTERVAL = {"median": files.NUMBER, "low": files.NUMBER, "high": files.NUMBER}
_ROW = {
    "method": str,
    "predicted_s": files.NUMBER,
    "measured_s": (_INTERVAL, None),
    "versus_best_single_device": files.NUMBER,
    "versus_interval": files.OptionalField(([files.NUMBER], None)),
    **dict.fromkeys(("bound_s", "gap"), files.OptionalField(files.NUMBER)),
    "search_s": float,
    "compile_s": files.OptionalField(float),
    "evaluations": int,
    "num_devices": files.OptionalField(int),
    "output_error": files.OptionalField(files.NUMBER),
    "status": str,
    "reference": files.OptionalField(bool),
    "graph": files.OptionalField(str),
    "seed": files.OptionalField(int),
}
# A division of `placement.pipeline.accuracy`; an error that is not finite is null.
_DIVISION = {
    **dict.fromkeys(("device", "label"), str),
    **dict.fromkeys(("max_error", "error"), float),
    "whole_error": files.NUMBER,
    "culprits": [{"ops": [str], "error": files.NUMBER, "run_on": [str]}],
}
_SUMMARY = {
    "graph": {
        **{"name": str, "num_ops": int, "num_edges": int},
        "optimum_s": files.OptionalField(files.NUMBER),  # of graphs whose optimum is known
    },
    "devices": [str],
    "objective": str,
    "seed": int,
    "rows": [_ROW],
    "best": (str, None),
    "divisions": files.OptionalField([_DIVISION]),
    "unsupported": files.OptionalField(
        [dict.fromkeys(("device", "name", "op_type", "inputs", "reason"), str)]
    ),
    # By device, where any has a limit of memory.
    "memory": files.OptionalField(
        {str: {"placement_bytes": float, "model_bytes": float, "capacity_bytes": files.NUMBER}}
    ),
    **dict.fromkeys(("compute_s", "wall_s"), files.OptionalField(files.NUMBER)),
}
_UNFIT = r"[^\w.=-]+"
_LONGEST_NAME = 100  # characters; suffixes are added to it


def prepare_workdir(path: StrPath) -> None:
    """Creates a run directory with its parents, and removes temporary files of killed runs.

    Raises:
      UserError: the path is a file, or the directory cannot be created or written to.
    """
    workdir = Path(path)
    reason: str | None = ""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        if not os.access(workdir, os.W_OK | os.X_OK):
            reason = "permission denied"
    except OSError as error:
        reason = "it is a file" if workdir.is_file() else error.strerror
    if reason:
        raise UserError(f"workdir {str(path)!r} cannot be written to: {reason}")
    for temporary in (*workdir.glob(".*.tmp"), *workdir.glob("*/.*.tmp")):
        if _is_abandoned(temporary):
            temporary.unlink(missing_ok=True)


def make_folder(path: StrPath) -> Path:
    """Creates a folder in a run directory unless it exists.

    Raises:
      UserError: the path is a symbolic link, which would lead out of the run directory.
      OSError: the folder cannot be created.
    """
    folder = Path(path)
    files.refuse_link(folder)
    folder.mkdir(exist_ok=True)
    return folder


def write_text(path: StrPath, text: str) -> None:
    """Writes a UTF-8 text file atomically; half a surrogate pair is written as in Python."""
    files.write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: StrPath, data: Any, *, indent: int | None = 2) -> None:
    """Writes a JSON file as `files.write_bytes` does.

    Args:
      path: the file.
      data: any data that `json` accepts. Tuples and arrays (NumPy's and JAX's) become lists, their
        scalars numbers, paths strings, and NaN and infinities null.
      indent: None writes one line, which is a third as long and takes a tenth of the time.

    Raises:
      TypeError: the data holds an object of another type; the file is unchanged.
    """
    write_text(path, json.dumps(_plain(data), indent=indent, allow_nan=False) + "\n")


def append_jsonl(path: StrPath, record: Mapping[str, Any]) -> None:
    """Appends one record to a log as `files.append_line` does; converts as `write_json` does."""
    files.append_line(path, json.dumps(_plain(record), allow_nan=False).encode())


def read_divisions(placement_file: StrPath) -> list[dict[str, Any]]:
    """Reads the divisions in a placement.json; none if it has none.

    Raises:
      UserError: the file is not a valid placement.
    """
    schema = {"divisions": files.OptionalField([_DIVISION])}
    remedy = "place the model with this workdir again"
    data = files.read_json(Path(placement_file), schema, remedy=remedy)
    divisions: list[dict[str, Any]] = data.get("divisions", [])
    return divisions


def read_summary(workdir: StrPath) -> dict[str, Any]:
    """Reads a run directory's summary.json.

    Raises:
      UserError: the file is missing or is not a valid summary.
    """
    path = Path(workdir) / SUMMARY
    if not path.exists():
        raise UserError(
            f"no {SUMMARY} in {str(workdir)!r}; place the model with this workdir first"
        )
    remedy = "run the task with this workdir again"
    return files.read_json(path, _SUMMARY, _with_rows, remedy=remedy)


def _with_rows(summary: dict[str, Any]) -> dict[str, Any]:
    rows = summary["rows"]
    if not rows:
        raise ValueError("it has no rows")
    if len({"graph" in row and "seed" in row for row in rows}) > 1:
        raise ValueError("some of its rows have a graph and a seed, and others do not")
    return summary


def set_aside(path: StrPath) -> Path:
    """Renames a file to NAME.corrupt, or NAME.corrupt-2 and so on; returns the new path.

    Raises:
      OSError: it cannot be renamed; the error names it.
    """
    original = Path(path)
    names = (f"{original.name}.corrupt{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
    free = next(p for p in map(original.with_name, names) if not p.exists())
    with files.naming(original):
        os.rename(original, free)
    return free


def file_name(text: str) -> str:
    """Returns a file name for any text; different texts have different names."""
    plain = re.sub(_UNFIT, "_", text)
    if plain == text and len(plain) <= _LONGEST_NAME and text.strip("."):
        return plain
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[-_LONGEST_NAME:]}-{digest[:8]}"


def _is_abandoned(temporary: Path) -> bool:
    """Returns whether no running process can be writing this `.NAME.PID.tmp` any more."""
    pid = temporary.name.split(".")[-2]
    if not pid.isdecimal():
        return False
    # This process's number: written by an earlier process that had it.
    return int(pid) == os.getpid() or not psutil.pid_exists(int(pid))


def _plain(data: Any) -> Any:
    """Returns the data in JSON types; `json` refuses objects of unknown types later."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, np.generic) or hasattr(data, "__array__"):
        array = np.asarray(data)
        is_plain = array.dtype.kind in "biu" or (
            array.dtype.kind == "f" and np.isfinite(array).all()
        )
        return array.tolist() if is_plain else _plain(array.tolist())
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return os.fspath(data) if isinstance(data, os.PathLike) else data
