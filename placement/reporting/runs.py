"""The run directory: files that are whole or absent, and a log of whole lines.

A run may be killed at any moment, and another process may read the directory at any moment. So a
file is written beside its place, flushed to the disk and renamed over it, which POSIX makes atomic.
A log grows by one write a record; what a killed run left unfinished at its end is no record. What
it left beside a file goes when the directory is next prepared. A write that fails, as on a full
disk, raises an `OSError` that names the file, and leaves the file as it was.

JSON has no NaN and no infinity: both are written as null, which reads as "there is no number".
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from placement.errors import UserError

StrPath = str | os.PathLike[str]


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
            with open(beside, "wb") as file:
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
    with naming(Path(path)):
        _drop_unfinished_line(Path(path))
        with open(path, "ab") as file:
            file.write(line)
            file.flush()


def read_jsonl(path: StrPath) -> list[dict[str, Any]]:
    """Reads the records of a log, ignoring an unfinished last line.

    Args:
        path: The log; a missing one has no records.

    Returns:
        The records, in their order.

    Raises:
        UserError: A finished line is not JSON.
    """
    log = Path(path)
    if not log.exists():
        return []
    lines = log.read_bytes().split(b"\n")[:-1]  # after the last newline: nothing, or half a line
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{log}, line {number} is not JSON: {error}") from error
    return records


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within it an `OSError` names the file, as that of a full disk does not by itself."""
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


def _drop_unfinished_line(log: Path) -> None:
    """Truncates a log after its last newline."""
    if not log.exists():
        return
    with open(log, "rb+") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def _plain(data: Any) -> Any:
    """The same data in the types of JSON; what is unknown is left for `json` to refuse."""
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
