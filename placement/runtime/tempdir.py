"""Temporary folders of worker processes, which are removed even if their owners are killed.

The owner holds a lock on its folder, which the kernel releases however the owner ends. The next
owner removes every folder without a lock. It leaves alone a folder that another process may still
be setting up, that belongs to another user, or that this program did not make. Anyone can put
anything under such a name, for example a pipe that blocks a process that opens it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

_PREFIX = "placement-worker-"
_LOCK = "lock"
_MODEL = "model.xml"
_FILES = {_LOCK, _MODEL, "model.bin", "inputs.npz", "beat"}


class TempDir:
    """A temporary folder for the files listed above."""

    def __init__(self) -> None:
        """Makes the folder, and removes the folders of owners that were killed."""
        _remove_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._folder.name)
        self._lock = open(self.path / _LOCK, "w")  # noqa: SIM115
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Removes the folder."""
        self._folder.cleanup()
        self._lock.close()


def _remove_abandoned() -> None:
    user = os.geteuid()
    # Opening a pipe or following a link must not block this process.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, flags)
            try:
                folder_status, lock_status = folder.lstat(), os.fstat(lock)
                is_made_here = stat.S_ISDIR(folder_status.st_mode) and stat.S_ISREG(
                    lock_status.st_mode
                )
                if not is_made_here or not folder_status.st_uid == lock_status.st_uid == user:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the owner is alive
                # An owner takes the lock before it writes the model: a folder without a model may
                # be one whose owner is about to take it.
                names = {path.name for path in folder.iterdir()}
                if (folder / _MODEL).exists() and names <= _FILES:
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
