"""States that tasks save, written completely; an unreadable file is set aside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import flax.serialization
import jax

from placement import files
from placement.methods import checkpoints
from placement.pipeline import workdirs
from placement.pipeline.console import progress
from placement.reporting import runs

T = TypeVar("T")


def restore(path: Path, make: Callable[[Any], T], display: progress.Display) -> T | None:
    """Reads a file that `save` wrote, as `workdirs.readable` does; None where it does not exist."""
    if not path.exists():
        return None
    return workdirs.readable(
        path, lambda file: checkpoints.read(file, make, remedy="remove it"), display
    )


def save(path: Path, content: Any) -> None:
    """Writes a pytree; makes the file's directory."""
    runs.make_folder(path.parent)
    files.write_bytes(path, flax.serialization.to_bytes(jax.device_get(content)))
