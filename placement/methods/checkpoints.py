"""States of learning as msgpack files, read only into arrays of the same shapes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import flax.serialization
import jax
import numpy as np

from placement import files

T = TypeVar("T")


def read(path: Path, make: Callable[[Any], T], *, remedy: str) -> T:
    """Reads a pytree that `flax.serialization.to_bytes` made.

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

    def describe(leaf: Any) -> str:
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        return f"{tuple(array.shape)} of {np.dtype(array.dtype).kind}"

    def check(path: Any, expected: Any, actual: Any) -> None:
        if describe(expected) != describe(actual):
            name = jax.tree_util.keystr(path)
            raise ValueError(f"{name} is {describe(actual)} and should be {describe(expected)}")

    tree = flax.serialization.from_state_dict(template, content)
    jax.tree_util.tree_map_with_path(check, template, tree)
    return tree
