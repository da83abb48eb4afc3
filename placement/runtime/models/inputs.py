"""Inputs that a model is timed and checked with: drawn at random, given by value, or from a file.

A device counts as correct if its outputs are correct for all samples. One kind of random input
alone would not show this: how much of a detector's scores a lower precision loses, for example,
depends on the image.
"""

import hashlib
import re
import zipfile
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement.errors import parsing
from placement.runtime.errors import find_reason
from placement.runtime.models import frontend

MAX_SAMPLES = 8  # of a file; every candidate is checked on all samples

_RANGE = re.compile(r"(.+?)\.\.(.+)")
_BOOLEANS = {"0": False, "false": False, "1": True, "true": True}


class Inputs(NamedTuple):
    """Input samples of one model; the first is timed, all are checked."""

    samples: tuple[list[np.ndarray], ...]  # each has one array for each of the model's inputs
    description: str  # a description for people
    # A digest of the values and of `max_error`; '' if all are drawn at random and it is 0.
    key: str
    max_error: float = 0.0  # the largest accepted output error; 0: that of `outputs.TOLERANCES`


@parsing()
def load_inputs(
    model: ov.Model, *, seed: int = 0, values: str = "", file: str = "", max_error: float = 0.0
) -> Inputs:
    """Returns the inputs to time and check a model with.

    Args:
      model: a model with static inputs.
      seed: the seed of random inputs (`frontend.example_inputs`); there is one sample for each kind
        of random floats.
      values: values of some inputs, such as 'rate:16000;lengths:5,3;image:0..255': one value for
        all elements, one for each, or a range to draw from, ends included. The name may be left out
        if the model has only one input.
      file: an .npz file of real inputs, with one array for each input: of the input's shape, or
        with an additional first axis of samples, of which the first `MAX_SAMPLES` are used. Inputs
        in `values` may be missing.
      max_error: as `Inputs.max_error`.

    Raises:
      UserError: `values` is malformed or names no input; the file cannot be read or does not fit
        the model; or an input has a type that NumPy lacks.
    """
    parameters = model.get_parameters()
    value_texts: dict[int, str] = {}  # index of an input -> the text of its value
    for entry in values.split(";") if values.strip() else ():
        name, colon, text = entry.strip().rpartition(":")
        if not colon and len(parameters) > 1:
            raise ValueError(
                f"input_values has the malformed entry {entry.strip()!r}; write NAME:VALUE,... or "
                f"NAME:LOW..HIGH with ';' between inputs; the model's are "
                f"{frontend.describe_inputs(parameters)}; a file suits every name: "
                "inputs='FILE.npz'"
            )
        index = frontend.find_input("input_values", name.strip(), parameters) if colon else 0
        value_texts[index] = text.strip()
    samples = [frontend.example_inputs(model, seed, kind) for kind in frontend.FLOATS]
    description = f"{len(samples)} draws of seed {seed}: floats {', '.join(frontend.FLOATS)}"
    if file:
        samples = _read_samples(file, model, samples[0], value_texts)
        description = f"{len(samples)} of {file}"
    generator = np.random.default_rng(seed)
    for arrays in samples:
        for i, text in value_texts.items():
            name = frontend.input_names(parameters[i])[0]
            arrays[i] = _make_array(arrays[i], name, text, generator)
    if value_texts:
        description += f"; input_values {values.strip()}"
    key = ""
    if file or value_texts:
        digest = hashlib.sha256()
        for arrays in samples:
            for array in arrays:
                digest.update(array.tobytes())
        key = digest.hexdigest()
    if max_error:
        key += f" max_error={max_error!r}"
    return Inputs(tuple(samples), description, key, max_error)


def convert(value: Any, element_type: ov.Type, subject: str) -> np.ndarray:
    """Returns a value, that NumPy makes an array of, as an array of the type of an input.

    If it does not fit the type, or has a mask, it raises a UserError that calls it `subject`.
    """
    is_string = element_type == ov.Type.string
    dtype = np.dtype(str if is_string else element_type.to_dtype())
    valid = "strings" if is_string else dtype.name
    with parsing(subject):
        if isinstance(value, np.ma.MaskedArray):
            raise ValueError(f"is a masked array; pass an array of {valid} without a mask")
        try:
            array = np.asarray(value)
        except Exception as error:  # code of the value's class runs, which may raise anything
            reason = find_reason(error, type(error).__name__)
            raise ValueError(f"is not an array ({reason}); pass an array of {valid}") from error
        if not array.size and not isinstance(value, np.ndarray):  # an empty list is float64
            array = array.astype(dtype)

        if is_string:  # as an array of str or bytes: OpenVINO crashes on other kinds of text
            if array.dtype.kind not in "US" or not array.dtype.isnative:
                items = array.ravel().tolist()
                kinds = [kind for kind in (str, bytes) if all(isinstance(x, kind) for x in items)]
                if not kinds:
                    raise ValueError(f"is {array.dtype}; pass an array of strings")
                array = np.array(items, kinds[0]).reshape(array.shape)
            try:
                if array.dtype.kind == "U":
                    np.char.encode(array, "utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"contains {error.object!r}, which UTF-8 cannot encode; pass valid text"
                ) from error
            return np.asarray(array, order="C")

        if array.dtype.kind in "iu" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            for number in (int(array.min()), int(array.max())) if array.size else ():
                if not limits.min <= number <= limits.max:
                    raise ValueError(
                        f"contains {number}; pass {valid}, from {limits.min} to {limits.max}"
                    )
        elif not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ValueError(f"is {array.dtype}; pass an array of {valid}")
        try:
            with np.errstate(over="raise"):
                # Not `ascontiguousarray`, which would give a scalar an axis.
                return np.asarray(array, dtype=dtype, order="C")
        except FloatingPointError as error:
            limit = np.finfo(dtype).max
            raise ValueError(f"has numbers beyond {limit}, the largest {valid}") from error


def _read_samples(
    file: str, model: ov.Model, examples: list[np.ndarray], values: Collection[int]
) -> list[list[np.ndarray]]:
    """Reads the samples in an .npz file.

    The examples have the right shapes and types. They stand for inputs that the file lacks, which
    only those with the indices `values` may be.
    """
    try:
        with np.load(file) as arrays:
            array_by_name = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"inputs={file!r} is not an .npz of arrays; write one with "
            "numpy.savez(FILE, NAME=array), with an array for each input"
        ) from error
    parameters = model.get_parameters()
    stored: dict[int, np.ndarray] = {}  # index of an input -> its samples [K, ...]
    for name, array in array_by_name.items():
        i = frontend.find_input("inputs", name, parameters)
        example = examples[i]
        input_samples = array[None] if array.shape == example.shape else array
        if input_samples.shape[1:] != example.shape or not len(input_samples):
            raise ValueError(
                f"inputs={file!r} has {name!r} with the shape {list(array.shape)}; the model takes "
                f"{list(example.shape)}, or samples of that"
            )
        element_type = parameters[i].get_output_element_type(0)
        stored[i] = convert(input_samples, element_type, f"inputs={file!r}: {name!r}")
    missing = [p for i, p in enumerate(parameters) if i not in stored and i not in values]
    if missing:
        raise ValueError(
            f"inputs={file!r} lacks {frontend.describe_inputs(missing)}; add their arrays to it"
        )
    counts = {len(array) for array in stored.values()} - {1}
    if len(counts) > 1:
        raise ValueError(
            f"inputs={file!r} has {' and '.join(map(str, sorted(counts)))} samples of different "
            "inputs; store as many of each, or one"
        )
    num_samples = min(max(counts, default=1), MAX_SAMPLES)
    # An input with one sample has it in all samples.
    stored = {i: np.resize(array, (num_samples, *array.shape[1:])) for i, array in stored.items()}
    return [
        [stored[i][k] if i in stored else example for i, example in enumerate(examples)]
        for k in range(num_samples)
    ]


def _make_array(
    example: np.ndarray, name: str, text: str, generator: np.random.Generator
) -> np.ndarray:
    """Returns an array of the example's shape and type with the values '5', '5,3' or '0..9'."""
    shape, dtype, ends = example.shape, example.dtype, _RANGE.fullmatch(text)
    texts = [part.strip() for part in (ends.groups() if ends else text.split(","))]
    try:
        if dtype.kind == "b":  # NumPy takes every text for True
            array = np.array([_BOOLEANS[value.lower()] for value in texts])
        else:
            array = np.array(texts).astype(dtype.type)
    except (KeyError, ValueError, OverflowError) as error:
        raise ValueError(
            f"input_values gives {name!r} {','.join(texts)!r}, not of its type {dtype}; set one "
            "value for all of its elements, one each, or LOW..HIGH"
        ) from error
    if ends:
        low, high = array
        if dtype.kind not in "fiu" or not low <= high:
            raise ValueError(
                f"input_values gives {name!r} the range {text}; a range is of numbers, the lower "
                "first, such as 0..255"
            )
        if dtype.kind == "f":
            return generator.uniform(low, high, shape).astype(dtype)
        return generator.integers(low, high, shape, endpoint=True).astype(dtype)
    if len(array) not in (1, example.size):
        raise ValueError(
            f"input_values gives {name!r} {len(array)} values, but its shape is {list(shape)}; "
            f"set one for all, or {example.size}"
        )
    return array.reshape(shape) if len(array) == example.size else np.full_like(example, array[0])
