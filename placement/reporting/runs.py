"""The run directory: atomically written files, and a log of complete lines.

A run may be killed at any moment, and another process may read the directory at any moment. So a
file is written under a temporary name, flushed to the disk and renamed, which POSIX makes atomic.
A log grows by one write for each record; an unfinished line at its end is not a record. A write
that fails, as on a full disk, raises an `OSError` that names the file, and leaves it unchanged.

JSON has neither NaN nor infinity: both are written as null, which means "no number".
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placement import files
from placement.errors import UserError

SUMMARY, PLACEMENT = "summary.json", "placement.json"

# The rest of a summary is as this program wrote it.
_SUMMARY = {
    "graph": {"name": str, "num_ops": int, "num_edges": int},
    "devices": [str],
    "objective": str,
    "rows": [{"method": str, "predicted_s": files.NUMBER, "status": str}],
    "complete": bool,
}
_UNFIT = r"[^\w.=-]+"
_LONGEST_NAME = 100  # characters; suffixes are added to it


def prepare_workdir(workdir: Path) -> None:
    """Creates a run directory with its parents; a UserError if it cannot be written to."""
    reason: str | None = ""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        if not os.access(workdir, os.W_OK | os.X_OK):
            reason = "permission denied"
    except OSError as error:
        reason = "it is a file" if workdir.is_file() else error.strerror
    if reason:
        raise UserError(f"workdir {str(workdir)!r} cannot be written to: {reason}")


def make_folder(folder: Path) -> Path:
    """Creates a folder in a run directory unless it exists.

    A symbolic link, which would lead out of the run directory, is a UserError.
    """
    files.refuse_link(folder)
    folder.mkdir(exist_ok=True)
    return folder


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file atomically; half a surrogate pair is written as in Python."""
    files.write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, data: Any, *, indent: int | None = 2) -> None:
    """Writes a JSON file as `files.write_bytes` does.

    Tuples and arrays (NumPy's and JAX's) become lists, their scalars numbers, paths strings, NaN
    and infinities null. `indent=None` writes one line: a third as long, in a tenth of the time.
    """
    write_text(path, json.dumps(_plain(data), indent=indent, allow_nan=False) + "\n")


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Appends one record to a log as `files.append_line` does; converts as `write_json` does."""
    files.append_line(path, json.dumps(_plain(record), allow_nan=False).encode())


def read_summary(workdir: Path) -> dict[str, Any]:
    """Reads a run directory's summary.json; a UserError if it is missing or not valid."""
    path = workdir / SUMMARY
    if not path.exists():
        raise UserError(
            f"no {SUMMARY} in {str(workdir)!r}; place the model with this workdir first"
        )
    remedy = "run the task with this workdir again"
    return files.read_json(path, _SUMMARY, remedy=remedy)


def set_aside(path: Path) -> Path:
    """Renames a file to NAME.corrupt, or NAME.corrupt-2 and so on; returns the new path."""
    free, number = path.with_name(f"{path.name}.corrupt"), 1
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.corrupt-{number}")
    with files.naming(path):
        path.rename(free)
    return free


def file_name(text: str) -> str:
    """Returns a file name for any text; different texts have different names."""
    plain = re.sub(_UNFIT, "_", text)
    if plain == text and len(plain) <= _LONGEST_NAME and text.strip("."):
        return plain
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[-_LONGEST_NAME:]}-{digest[:8]}"


def _plain(data: Any) -> Any:
    """Returns the data in JSON types; `json` refuses objects of unknown types later."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if hasattr(data, "tolist"):  # arrays and their scalars
        data = data.tolist()
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return os.fspath(data) if isinstance(data, os.PathLike) else data
