"""States of learning as files of msgpack, read only into shapes that fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import flax.serialization
import jax
import numpy as np

from placement import files

T = TypeVar("T")


def to_bytes(content: Any) -> bytes:
    """Serialises a pytree."""
    return flax.serialization.msgpack_serialize(
        flax.serialization.to_state_dict(jax.device_get(content))
    )


def read(path: Path, make: Callable[[Any], T], *, remedy: str) -> T:
    """Reads a file of what `to_bytes` made.

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
    """Returns the pytree that was saved.

    Args:
      like: a pytree of the same structure, shapes and kinds of numbers.
      content: from `read`.

    Raises:
      ValueError: it has others.
    """
    tree = flax.serialization.from_state_dict(like, content)
    for (path, wanted), given in zip(
        jax.tree_util.tree_leaves_with_path(like), jax.tree.leaves(tree), strict=True
    ):
        if _shape_and_kind(wanted) != _shape_and_kind(given):
            raise ValueError(
                f"{jax.tree_util.keystr(path)} is {_shape_and_kind(given)} and should be "
                f"{_shape_and_kind(wanted)}"
            )
    return tree


def _shape_and_kind(leaf: Any) -> str:
    array = np.asarray(leaf) if not hasattr(leaf, "dtype") else leaf
    return f"{tuple(array.shape)} of {np.dtype(array.dtype).kind}"
