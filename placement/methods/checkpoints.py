"""States of learning as msgpack files, read only into arrays of the same shapes."""

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
    """Reads a file that `to_bytes` made.

    Args:
      path: of the file.
      make: converts the content, dictionaries of arrays; it raises as `restored` does.
      remedy: how the user can repair the file, for errors.

    Raises:
      UserError: the file does not exist, or it may not be read.
      files.CorruptFileError: it holds something else.
    """
    data = files.read_bytes(path, remedy=remedy)
    content = files.convert(flax.serialization.msgpack_restore, data, path, remedy=remedy)
    return files.convert(make, content, path, remedy=remedy)


def restored(template: T, content: Any) -> T:
    """Returns the pytree that was saved.

    Args:
      template: a pytree of the same structure, shapes and kinds of numbers.
      content: from `read`.

    Raises:
      ValueError: it has others.
    """
    tree = flax.serialization.from_state_dict(template, content)
    for (path, expected), actual in zip(
        jax.tree_util.tree_leaves_with_path(template), jax.tree.leaves(tree), strict=True
    ):
        if _shape_and_kind(expected) != _shape_and_kind(actual):
            raise ValueError(
                f"{jax.tree_util.keystr(path)} is {_shape_and_kind(actual)} and should be "
                f"{_shape_and_kind(expected)}"
            )
    return tree


def _shape_and_kind(leaf: Any) -> str:
    array = np.asarray(leaf) if not hasattr(leaf, "dtype") else leaf
    return f"{tuple(array.shape)} of {np.dtype(array.dtype).kind}"
