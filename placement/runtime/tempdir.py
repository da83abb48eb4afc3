"""A temporary folder that outlives a kill of its owner only until the next one is made.

A living owner holds a lock on it, which the kernel releases however the owner ends. What another
process may still be setting up, what is another user's, and anything that is not of this project,
is left alone: anyone may put anything under such a name, a pipe that blocks who opens it included.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_PREFIX = "placement-worker-"
_LOCK = "lock"
_MODEL = "model.xml"
_FILES = {_LOCK, _MODEL, "model.bin", "inputs.npz", "beat"}


class TempDir:
    """The folder, for the files named above."""

    def __init__(self) -> None:
        """Makes it, and removes those whose owners were killed."""
        _clear_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._folder.name)
        self._lock = open(self.path / _LOCK, "w")  # noqa: SIM115
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Removes it."""
        self._folder.cleanup()
        self._lock.close()


def _clear_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _opened(folder / _LOCK) as lock:
            own = _is_own(folder.lstat(), stat.S_ISDIR) and _is_own(os.fstat(lock), stat.S_ISREG)
            if not own:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner has had the lock since before it wrote the model.
            if (folder / _MODEL).exists() and {path.name for path in folder.iterdir()} <= _FILES:
                shutil.rmtree(folder)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The descriptor of a file, to read; what is a pipe, or a link, holds nobody up."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Whether it is of that kind, and this user's."""
    return is_kind(found.st_mode) and found.st_uid == os.geteuid()
