"""A run directory while a task works in it: of one process, without files that cannot be read.

A process that works in a directory holds a lock on a file in it, which the kernel releases however
the process ends. What a task finds there of its own making and cannot read it sets aside, says so,
and makes anew; what the user gave it is refused instead, where it is read.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from placement import files
from placement.errors import UserError
from placement.pipeline import checkpoints, graph_labels, saved_costs
from placement.pipeline.console import metrics, progress
from placement.pipeline.results import bounds
from placement.reporting import runs
from placement.runtime.measurement import evaluate

LOCK = ".lock"
# The folders that tasks write to, and the files of a run directory that could be a graph's.
_FOLDERS = ("cells", "checkpoint", "figures", "front", "interrupted", "tensorboard")
OUTPUTS = (
    *("advice.json", "asked.json", "bounds.json", "cells.json", "config.json", "details.json"),
    *("environment.json", "fidelity.json", "front.json", "placed.xml", "placement.json"),
    *("pretraining.json", "profile.json", "summary.json", "trace.json"),
)
# What a file system answers that has no such locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_LOGS = {
    metrics.FILE: metrics.RECORD,
    **dict.fromkeys(("measurements.jsonl", "calibration.jsonl"), evaluate.RECORD),
}
_JSON: dict[str, Callable[[Path], Any]] = {
    bounds.FILE: bounds.read,
    saved_costs.FILE: saved_costs.read,
}
_held: dict[Path, IO[bytes]] = {}  # by resolved directory, until `release` or the process's end


def claim(
    workdir: Path,
    display: progress.Display,
    graphs: Sequence[str] = (),
    *,
    outputs: Sequence[str] = (),
) -> None:
    """Creates a run directory unless it is there, for this process alone, and looks through it.

    A directory that this process has claimed already stays its own.

    Args:
      workdir: the run directory.
      display: where to say what is set aside.
      graphs: that the task reads, which it must not overwrite.
      outputs: files that this task alone writes, relative to the directory.

    Raises:
      UserError: it cannot be created or written to, another process works there, a graph's file is
        one that the task writes, or a folder or log is a symbolic link: one line.
    """
    for graph in graphs:
        _check_is_kept(graph, workdir, (*OUTPUTS, *outputs))
    runs.prepare_workdir(workdir)
    for name in (*_FOLDERS, *_LOGS):
        files.refuse_link(workdir / name)
    if workdir.resolve() not in _held:
        _held[workdir.resolve()] = _locked(workdir, display)
    for name, read in _JSON.items():
        if (workdir / name).exists():
            checkpoints.readable(workdir / name, read, display)
    for name, schema in _LOGS.items():
        _mend_log(workdir / name, schema, display)


def release(workdir: Path) -> None:
    """Lets other processes work in a directory, if this one has claimed it."""
    lock = _held.pop(workdir.resolve(), None)
    if lock is not None:
        lock.close()


def _check_is_kept(graph: str, workdir: Path, outputs: Sequence[str]) -> None:
    """Refuses a graph whose file, or the weights beside it, the task would overwrite."""
    file = graph_labels.file(graph)
    for path in (file, file.with_suffix(".bin")) if file else ():
        for output in (workdir / name for name in outputs):
            if path.exists() and output.exists() and path.samefile(output):
                raise UserError(
                    f"graph={graph!r} is {str(output)!r}, which this task writes; move the model, "
                    "or give another --workdir"
                )


def _mend_log(path: Path, schema: files.Schema, display: progress.Display) -> None:
    """Keeps the sound lines of a log, and sets the log aside where there are others."""
    try:
        files.read_jsonl(path, schema, remedy="")
    except files.CorruptFileError as error:
        sound = b"" if path.is_dir() else files.sound_lines(path, schema)
        aside = runs.set_aside(path)
        runs.write_bytes(path, sound)
        display.warn(f"{path} cannot be read: {error.wrong}; the rest is kept, all is {aside.name}")


def _locked(workdir: Path, display: progress.Display) -> IO[bytes]:
    """The lock's file, open."""
    path = workdir / LOCK
    file = files.open_regular(path, "ab+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        by = file.read().decode(errors="replace").strip()
        file.close()
        raise UserError(
            f"workdir {str(workdir)!r} is in use{f' by {by}' if by else ''}; wait until that has "
            "ended, or give another --workdir"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path)) from error
        display.warn(f"the file system of {workdir} has no locks: run one task at a time there")
        return file
    with contextlib.suppress(OSError):  # of a full disk: it is the lock that counts
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"process {os.getpid()} on {os.uname().nodename}".encode())
    return file
