"""The run directory: files that are whole or absent, and a log of whole lines.

A run may be killed at any moment, and another process may read the directory at any moment. So a
file is written beside its place, flushed to the disk and renamed over it, which POSIX makes atomic.
A log grows by one write a record; what a killed run left unfinished at its end is no record. What
it left beside a file goes when the directory is next prepared. A write that fails, as on a full
disk, raises an `OSError` that names the file, and leaves the file as it was.

JSON has no NaN and no infinity: both are written as null, which reads as "there is no number".
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    "versus_interval": files.Maybe(([files.NUMBER], None)),
    **dict.fromkeys(("bound_s", "gap"), files.Maybe(files.NUMBER)),
    "search_s": float,
    "evaluations": int,
    "num_devices": files.Maybe(int),
    "status": str,
    "reference": files.Maybe(bool),
    "graph": files.Maybe(str),
    "seed": files.Maybe(int),
}
_SUMMARY = {
    "graph": {"name": str, "num_ops": int, "num_edges": int},
    "devices": [str],
    "objective": str,
    "seed": int,
    "rows": [_ROW],
    "best": (str, None),
    **dict.fromkeys(("compute_s", "wall_s"), files.Maybe(files.NUMBER)),
}
_UNFIT = r"[^\w.=-]+"
_LONGEST_NAME = 100  # characters, which leaves room for what is added to it


def prepare_workdir(path: StrPath) -> Path:
    """Creates a run directory, with its parents, unless it is there; clears what kills left there.

    Args:
        path: The directory.

    Returns:
        The directory.

    Raises:
        UserError: The path is a file, or the directory cannot be created or written to.
    """
    workdir = Path(path)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if workdir.is_file() else error.strerror
        raise UserError(f"workdir {str(path)!r} cannot be created: {reason}") from error
    if not os.access(workdir, os.W_OK | os.X_OK):
        raise UserError(f"workdir {str(path)!r} cannot be written to: permission denied")
    for left in (*workdir.glob(".*.tmp"), *workdir.glob("*/.*.tmp")):
        if _is_abandoned(left):
            left.unlink(missing_ok=True)
    return workdir


def make_folder(path: StrPath) -> Path:
    """Creates a folder in a run directory unless it is there.

    Returns:
        The folder.

    Raises:
        UserError: A symbolic link is there, which would lead out of the run directory.
        OSError: It cannot be created.
    """
    folder = Path(path)
    files.refuse_link(folder)
    folder.mkdir(exist_ok=True)
    return folder


def write_bytes(path: StrPath, data: bytes) -> None:
    """Writes a file whole or not at all; an earlier one stays until the new one is complete.

    Args:
        path: The file; its directory exists.
        data: The whole content.

    Raises:
        OSError: It cannot be written; the error names the file.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with naming(target):
            with files.open_regular(beside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: StrPath, text: str) -> None:
    """Writes a text file in UTF-8, whole or not at all; half a surrogate pair as in Python."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: StrPath, data: Any, *, indent: int | None = 2) -> None:
    """Writes JSON whole or not at all.

    Args:
        path: The file; its directory exists.
        data: What `json` accepts, where tuples and arrays (NumPy's and JAX's) become lists, their
            scalars numbers, paths strings, and NaN and infinities null.
        indent: None writes one line, which is a third as long and takes a tenth of the time.

    Raises:
        TypeError: The data holds something else; the file is then as it was.
    """
    write_text(path, json.dumps(_plain(data), indent=indent, allow_nan=False) + "\n")


def append_jsonl(path: StrPath, record: Mapping[str, Any]) -> None:
    """Appends one record as one whole line, in one write; converts as `write_json` does.

    What a killed run left unfinished at the end of the log is removed first.

    Args:
        path: The log, created when missing.
        record: The fields of the record.

    Raises:
        OSError: It cannot be written; the error names the log.
    """
    line = json.dumps(_plain(record), allow_nan=False).encode() + b"\n"
    with naming(Path(path)), files.open_regular(path, "ab+") as file:
        files.drop_unfinished_line(file)
        file.write(line)
        file.flush()


def read_summary(workdir: StrPath) -> dict[str, Any]:
    """Reads a run directory's summary.json.

    Raises:
        UserError: There is none, or it is none.
    """
    path = Path(workdir) / SUMMARY
    if not path.exists():
        raise UserError(
            f"no {SUMMARY} in {str(workdir)!r}; run --task=place with this --workdir first"
        )
    remedy = "run the task with this --workdir again"
    return files.read_json(path, _SUMMARY, _with_rows, remedy=remedy)


def _with_rows(summary: dict[str, Any]) -> dict[str, Any]:
    rows = summary["rows"]
    if not rows:
        raise ValueError("it has no rows")
    if len({"graph" in row and "seed" in row for row in rows}) > 1:
        raise ValueError("some of its rows have a graph and a seed, and others do not")
    return summary


def set_aside(path: StrPath) -> Path:
    """Renames what is at a path to NAME.corrupt, or NAME.corrupt-2 and so on; returns its place.

    Raises:
        OSError: It cannot be renamed; the error names it.
    """
    taken = Path(path)
    names = (f"{taken.name}.corrupt{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
    free = next(p for p in map(taken.with_name, names) if not p.exists())
    with naming(taken):
        os.rename(taken, free)
    return free


def file_names(texts: Sequence[str]) -> list[str]:
    """Returns names of files for texts: as `file_name`, but without digests if all differ so."""
    plain = [re.sub(_UNFIT, "_", text)[-_LONGEST_NAME:] for text in texts]
    return plain if len(set(plain)) == len(plain) else [file_name(text) for text in texts]


def file_name(text: str) -> str:
    """Returns a name of a file for any text; those of different texts differ."""
    plain = re.sub(_UNFIT, "_", text)
    if plain == text and len(plain) <= _LONGEST_NAME and text.strip("."):
        return plain
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[-_LONGEST_NAME:]}-{digest[:8]}"


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has an `OSError` name the file, as that of a full disk does not by itself."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_abandoned(beside: Path) -> bool:
    """Whether this is a `.NAME.PID.tmp` that no other process can be writing any more."""
    pid = beside.name.split(".")[-2]
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return int(pid) == os.getpid()  # of an earlier process with this number


def _plain(data: Any) -> Any:
    """Returns the same data in the types of JSON; what is unknown is left for `json` to refuse."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, np.generic) or hasattr(data, "__array__"):
        array = np.asarray(data)
        whole = array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.isfinite(array).all())
        return array.tolist() if whole else _plain(array.tolist())
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return os.fspath(data) if isinstance(data, os.PathLike) else data
