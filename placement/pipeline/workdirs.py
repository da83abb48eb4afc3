"""A run directory while a task works in it: of one process, without files that cannot be read.

A process that works in a directory holds a lock on a file in it, which the kernel releases however
the process ends. What a task finds there of its own making and cannot read it sets aside, says so,
and makes anew; what the user gave it is refused instead, where it is read.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from placement import files
from placement.errors import UserError
from placement.pipeline import checkpoints, saved_costs
from placement.pipeline.console import metrics, progress
from placement.pipeline.results import bounds
from placement.reporting import runs
from placement.runtime.measurement import evaluate

LOCK = ".lock"
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


def claim(workdir: Path, display: progress.Display) -> None:
    """Creates a run directory unless it is there, for this process alone, and looks through it.

    A directory that this process has claimed already stays its own.

    Raises:
      UserError: it cannot be created or written to, or another process works there: one line.
    """
    runs.prepare_workdir(workdir)
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
