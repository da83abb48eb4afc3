"""What a model is run with: arrays that are drawn, given by value, or read from a file.

A device is right where its outputs are right on all of them. Of one kind of input alone that is
seen badly: what is lost in a lower precision of a detector's scores depends on what it looks at.
"""

import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.errors import UserError
from placement.runtime.models import frontend

MOST = 8  # samples of a file that are looked at: each candidate is checked on all

_RANGE = re.compile(r"(.+?)\.\.(.+)")


class Inputs(NamedTuple):
    """Inputs of one model, of which the first are timed and all are checked."""

    samples: tuple[list[np.ndarray], ...]  # an array for each of the model's inputs
    told: str  # what they are, for people
    key: str  # tells given ones apart; '' of those that are drawn


class _Value(NamedTuple):
    """Reads what input_values says of an input."""

    name: str
    values: tuple[str, ...]  # one for all elements, or one each; or the ends of a range
    is_range: bool


def find(model: ov.Model, *, seed: int = 0, values: str = "", file: str = "") -> Inputs:
    """The inputs to time and check a model with.

    Args:
      model: with static inputs.
      seed: of those that are drawn (`frontend.example_inputs`): one sample of each of its kinds.
      values: such as 'rate:16000;lengths:5,3;image:0..255', of inputs that are not to be drawn so:
        one value for all elements, one each, or a range, ends included, to draw from. The name of
        an only input may be left out.
      file: an .npz of real ones: an array for each input, of its shape or with an axis of samples
        before, the first `MOST` of which are used. Inputs in `values` need not be there.

    Raises:
      UserError: `values` is malformed or names no input, the file is none or has other arrays, or
        an input has a type that NumPy lacks.
    """
    given = _parsed(values, model)
    samples = [frontend.example_inputs(model, seed, kind) for kind in frontend.FLOATS]
    told = f"{len(samples)} draws of seed {seed}: floats {', '.join(frontend.FLOATS)}"
    if file:
        samples = _read(file, model, samples[0], given)
        told = f"{len(samples)} of {file}"
    generator = np.random.default_rng(seed)
    for arrays in samples:
        for i, value in given.items():
            arrays[i] = _filled(arrays[i], value, generator)
    told += f"; input_values {values.strip()}" if given else ""
    return Inputs(tuple(samples), told, _digest(samples) if file or given else "")


def _digest(samples: list[list[np.ndarray]]) -> str:
    digest = hashlib.sha256()
    for array in (array for arrays in samples for array in arrays):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read(
    file: str, model: ov.Model, drawn: list[np.ndarray], given: Mapping[int, _Value]
) -> list[list[np.ndarray]]:
    """Samples of a file, of the shapes and types of those `drawn`, which stand for those given."""
    parameters = model.get_parameters()
    stored: dict[int, np.ndarray] = {}
    for name, array in _arrays(file).items():
        i = frontend.index("inputs", name, parameters)
        stored[i] = _checked(file, name, array, drawn[i])
    absent = [p for i, p in enumerate(parameters) if i not in stored and i not in given]
    if absent:
        raise UserError(f"inputs={file!r} lacks {frontend.listed(absent)}; add their arrays to it")
    counts = {len(array) for array in stored.values()} - {1}
    if len(counts) > 1:
        raise UserError(
            f"inputs={file!r} has {' and '.join(map(str, sorted(counts)))} samples of different "
            "inputs; give as many of each, or one"
        )
    count = min(max(counts, default=1), MOST)
    one = {i: np.resize(a, (count, *a.shape[1:])) for i, a in stored.items()}
    return [[one[i][k] if i in one else a for i, a in enumerate(drawn)] for k in range(count)]


def _arrays(file: str) -> dict[str, np.ndarray]:
    if not Path(file).is_file():
        raise UserError(f"no inputs={file!r}; give an .npz with an array for each input")
    try:
        with np.load(file) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(
            f"inputs={file!r} is no .npz of arrays; write one with numpy.savez(FILE, NAME=array)"
        ) from error


def _checked(file: str, name: str, array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The samples [K, ...] in an array of the file, K = 1 where it has no axis of them."""
    samples = array[None] if array.shape == like.shape else array
    is_text = like.dtype.kind == "U"
    same = array.dtype.kind == "U" if is_text else np.can_cast(array.dtype, like.dtype, "same_kind")
    if samples.shape[1:] != like.shape or not len(samples) or not same:
        raise UserError(
            f"inputs={file!r} has {name!r} as {array.dtype} {list(array.shape)}; the model takes "
            f"{like.dtype.type.__name__} {list(like.shape)}, or samples of that"
        )
    return samples.astype(like.dtype.type)


def _parsed(text: str, model: ov.Model) -> dict[int, _Value]:
    """'rate:16000;lengths:5,3' as {input's index: value}."""
    parameters = model.get_parameters()
    given: dict[int, _Value] = {}
    for entry in text.split(";") if text.strip() else ():
        name, colon, listed = entry.strip().rpartition(":")
        if not colon and len(parameters) > 1:
            raise UserError(
                f"input_values has the malformed entry {entry.strip()!r}; write NAME:VALUE,... or "
                f"NAME:LOW..HIGH with ';' between inputs; the model's are "
                f"{frontend.listed(parameters)}"
            )
        index = frontend.index("input_values", name.strip(), parameters) if colon else 0
        name = name.strip() or frontend.names(parameters[index])[0]
        ends = _RANGE.fullmatch(listed.strip())
        values = ends.groups() if ends else listed.split(",")
        given[index] = _Value(name, tuple(v.strip() for v in values), bool(ends))
    return given


def _filled(like: np.ndarray, value: _Value, generator: np.random.Generator) -> np.ndarray:
    """An array like another of what is said of its input."""
    try:
        array = np.array(value.values).astype(like.dtype.type)
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"input_values gives {value.name!r} {','.join(value.values)!r}, not of its type "
            f"{like.dtype}; give one value for all of its elements, one each, or LOW..HIGH"
        ) from error
    if value.is_range:
        return _within(array, value, like, generator)
    if len(array) not in (1, like.size):
        raise UserError(
            f"input_values gives {value.name!r} {len(array)} values, but its shape is "
            f"{list(like.shape)}; give one for all, or {like.size}"
        )
    return array.reshape(like.shape) if len(array) == like.size else np.full_like(like, array[0])


def _within(
    ends: np.ndarray, value: _Value, like: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Uniform between two ends."""
    if like.dtype.kind not in "fiu" or not ends[0] <= ends[1]:
        raise UserError(
            f"input_values gives {value.name!r} the range {'..'.join(value.values)}; a range is of "
            "numbers, the lower first, such as 0..255"
        )
    if like.dtype.kind == "f":
        return generator.uniform(ends[0], ends[1], like.shape).astype(like.dtype)
    return generator.integers(ends[0], ends[1], like.shape, endpoint=True).astype(like.dtype)
