"""A run directory while a task works in it: locked by one process, with readable files.

A process that works in a directory holds a lock on a file in it; the system releases the lock
however the process ends. A file of the program's own that cannot be read is set aside with a
warning and made again. An unreadable file of the user's is refused where it is read.
"""

import contextlib
import errno
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import filelock

from placement import files
from placement.errors import UserError
from placement.pipeline import graph_labels, saved_costs
from placement.pipeline.console import metrics, progress
from placement.pipeline.results import bounds
from placement.reporting import runs
from placement.runtime.measurement import evaluate

LOCK = ".lock"
# The folders that tasks write to, and the outputs whose names a graph's file could have.
_FOLDERS = ("cells", "checkpoint", "figures", "interrupted", "policies", "tensorboard")
OUTPUTS = (
    *("advice.json", "asked.json", "bounds.json", "cells.json", "config.json", "details.json"),
    *("environment.json", "placed.xml", "placement.json"),
    *("pretraining.json", "profile.json", "summary.json", "trace.json"),
)
# The errors of a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_LOGS = {
    metrics.FILE: metrics.RECORD,
    "measurements.jsonl": evaluate.RECORD_SCHEMA,
}
_JSON: dict[str, Callable[[Path], Any]] = {
    bounds.FILE: bounds.read,
    saved_costs.FILE: saved_costs.read,
}
T = TypeVar("T")
_locks: dict[Path, filelock.BaseFileLock] = {}  # by resolved directory; held until `release`


def claim(
    workdir: Path,
    display: progress.Display,
    graphs: Sequence[str] = (),
    *,
    outputs: Sequence[str] = (),
) -> None:
    """Creates a run directory if necessary, locks it for this process, and checks its files.

    A directory that this process has locked already stays locked.

    Args:
      workdir, display: the run directory; shows which files are set aside.
      graphs: graphs that the task reads and therefore must not overwrite.
      outputs: further files that only this task writes, relative to the directory.

    Raises:
      UserError: it cannot be created or written to, another process works there, the task would
        overwrite a graph's file, or a folder or log is a symbolic link.
    """
    written = {(workdir / name).resolve() for name in (*OUTPUTS, *outputs)}
    for graph in graphs:
        model = graph_labels.file(graph)
        paths = [model, model.with_suffix(".bin")] if model else []  # .bin: its weights
        if written.intersection(path.resolve() for path in paths):
            raise UserError(
                f"graph={graph!r} is a file that this task writes; move the model, or set another "
                "workdir"
            )
    runs.prepare_workdir(workdir)
    for name in (*_FOLDERS, *_LOGS):
        files.refuse_link(workdir / name)
    if workdir.resolve() not in _locks:
        _locks[workdir.resolve()] = _lock(workdir, display)
        for pattern in (".*.[0-9]*.tmp", "*/.*.[0-9]*.tmp"):  # temporary files of killed runs
            for temporary in workdir.glob(pattern):
                temporary.unlink(missing_ok=True)
    for name, read in _JSON.items():
        if (workdir / name).exists():
            readable(workdir / name, read, display)
    for name, schema in _LOGS.items():
        path = workdir / name
        try:
            files.read_jsonl(path, schema, remedy="")
        except files.CorruptFileError as error:
            records = [] if path.is_dir() else files.read_valid_lines(path, schema)[0]
            aside = runs.set_aside(path)
            runs.write_text(path, "".join(json.dumps(record) + "\n" for record in records))
            display.warn(
                f"{path} cannot be read: {error.problem}; its valid lines are kept, and the whole "
                f"file is set aside as {aside.name}"
            )


def readable(path: Path, read: Callable[[Path], T], display: progress.Display) -> T | None:
    """Reads a file that a task made; sets a corrupt one aside with a warning and returns None."""
    try:
        return read(path)
    except files.CorruptFileError as error:
        aside = runs.set_aside(path)
        display.warn(
            f"{path} cannot be read: {error.problem}; set aside as {aside.name}; a new one is made"
        )
        return None


def release(workdir: Path) -> None:
    """Unlocks a directory if this process has locked it."""
    lock = _locks.pop(workdir.resolve(), None)
    if lock is not None:
        lock.release()


def _lock(workdir: Path, display: progress.Display) -> filelock.BaseFileLock:
    """Returns the lock, held until it is released."""
    path = workdir / LOCK
    files.open_regular(path, "ab+").close()  # refuses a link or a pipe
    lock = filelock.FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        owner = ""
        with contextlib.suppress(OSError):  # Windows lets nobody else read a locked file
            owner = path.read_bytes().decode(errors="replace").strip()
        raise UserError(
            f"workdir {str(workdir)!r} is in use{f' by {owner}' if owner else ''}; wait until that "
            "has ended, or set another workdir"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path)) from error
        display.warn(f"the file system of {workdir} has no locks: run one task at a time there")
        return lock
    # Written in place, since the lock is on this file and not on its name. A full disk does not
    # affect the lock itself, and Windows refuses to write here.
    with contextlib.suppress(OSError), files.open_regular(path, "wb") as file:
        file.write(f"process {os.getpid()} on {platform.node()}".encode())
    return lock
