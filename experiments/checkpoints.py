"""States of learning as files of msgpack: written whole, read only into shapes that fit.

What a task made itself and cannot read any more it sets aside, says so, and makes anew.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import flax.serialization
import jax
import numpy as np

from experiments.console import progress
from placement import files
from placement.reporting import runs

T = TypeVar("T")


def readable(path: Path, read: Callable[[Path], T], display: progress.Display) -> T | None:
    """What is read from a file of a task's own making; None of one set aside as it is corrupt."""
    try:
        return read(path)
    except files.CorruptFileError as error:
        aside = runs.set_aside(path)
        display.warn(f"{path} cannot be read: {error.wrong}; set aside as {aside.name}, made anew")
        return None


def save(path: Path, content: Any) -> None:
    """Writes a pytree."""
    content = flax.serialization.to_state_dict(jax.device_get(content))
    runs.write_bytes(path, flax.serialization.msgpack_serialize(content))


def read(path: Path, make: Callable[[Any], T], *, remedy: str) -> T:
    """Reads what `save` wrote.

    Args:
      path: of the file.
      make: what to make of it; it gets dictionaries of arrays, and raises as `restored` does.
      remedy: how the user mends what is wrong with the file, for errors.

    Raises:
      UserError: there is no such file, or it may not be read.
      files.CorruptFileError: it holds something else.
    """
    data = files.read_bytes(path, remedy=remedy)
    content = files.made(flax.serialization.msgpack_restore, data, path, remedy=remedy)
    return files.made(make, content, path, remedy=remedy)


def restored(like: T, content: Any) -> T:
    """The pytree that was saved.

    Args:
      like: a pytree of the same structure, shapes and kinds of numbers.
      content: from `read`.

    Raises:
      ValueError: it has others.
    """
    found = flax.serialization.from_state_dict(like, content)
    for (path, wanted), given in zip(
        jax.tree_util.tree_leaves_with_path(like), jax.tree.leaves(found), strict=True
    ):
        if _told(wanted) != _told(given):
            where = jax.tree_util.keystr(path)
            raise ValueError(f"{where} is {_told(given)} and should be {_told(wanted)}")
    return found


def _told(leaf: Any) -> str:
    """Shape and kind of an array or number."""
    array = np.asarray(leaf) if not hasattr(leaf, "dtype") else leaf
    return f"{tuple(array.shape)} of {np.dtype(array.dtype).kind}"
