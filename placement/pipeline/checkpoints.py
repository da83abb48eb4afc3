"""States that tasks save, written completely; an unreadable file is set aside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from placement import files
from placement.pipeline.console import progress
from placement.reporting import runs

T = TypeVar("T")


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


def restore(path: Path, make: Callable[[Any], T], display: progress.Display) -> T | None:
    """Reads a file that `save` wrote, as `readable` does; None where the file does not exist."""
    if not path.exists():
        return None
    from placement.methods import checkpoints

    return readable(path, lambda file: checkpoints.read(file, make, remedy="remove it"), display)


def save(path: Path, content: Any) -> None:
    """Writes a pytree; makes the file's directory."""
    from placement.methods import checkpoints

    runs.make_folder(path.parent)
    files.write_bytes(path, checkpoints.to_bytes(content))
