"""Temporary folders of worker processes, which are removed even if their owners are killed.

The owner holds a lock on its folder, which the system releases however the owner ends. The next
owner removes every folder without a lock. It leaves alone a folder that another process may still
be setting up, that belongs to another user, or that this program did not make. Anyone can put
anything under such a name, for example a pipe that blocks a process that opens it.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

_PREFIX = "placement-worker-"
_LOCK = "lock"
_MODEL = "model.xml"
_FILES = {_LOCK, _MODEL, "model.bin", "inputs.pickle", "beat"}


class TempDir:
    """A temporary folder for the files listed above."""

    def __init__(self) -> None:
        """Makes the folder, and removes the folders of owners that were killed."""
        user = getattr(os, "geteuid", int)()  # on Windows every file belongs to user 0
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError, Timeout):
                # A link is not followed, and a pipe, which may block, is not opened. Nobody else
                # can put one into a folder of this user after the test.
                folder_status, lock_status = folder.lstat(), (folder / _LOCK).lstat()
                is_regular = stat.S_ISDIR(folder_status.st_mode) and stat.S_ISREG(
                    lock_status.st_mode
                )
                if not is_regular or not folder_status.st_uid == lock_status.st_uid == user:
                    continue
                with FileLock(folder / _LOCK, blocking=False):  # Timeout: the owner is alive
                    # An owner takes the lock before it writes the model: a folder without a model
                    # may be one whose owner is about to take it.
                    names = {path.name for path in folder.iterdir()}
                    is_abandoned = _MODEL in names and names <= _FILES
                if is_abandoned:
                    shutil.rmtree(folder)
        # Windows does not remove a file that is open; then the next owner removes the folder.
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self._lock = FileLock(self.path / _LOCK, thread_local=False)
        self._lock.acquire()

    def close(self) -> None:
        """Removes the folder."""
        # Released first, because Windows does not remove a locked file.
        self._lock.release()
        self._folder.cleanup()
