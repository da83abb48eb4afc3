"""From a model file to an `ov.Model` that can be placed: static inputs, folded, uniquely named.

Also inputs to run it with. A mistake in the file or in the shapes asked for is a `UserError` of
one line.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import passes

from placement.errors import UserError
from placement.runtime.errors import raise_if_exhausted, silent_stderr, why
from placement.runtime.models.operations import all_ops

_FORMATS = {
    ".xml": "OpenVINO IR",
    ".onnx": "ONNX",
    ".tflite": "TensorFlow Lite",
    ".pb": "a frozen TensorFlow graph",
}

_SAVED_MODEL = "saved_model.pb"  # in a folder, with its variables beside it

# How ov::pass::DisableConstantFolding is filed in an operation's runtime information.
NO_FOLDING = "DisableConstantFolding_0"

# Operations whose first output holds values of their first input, and nothing else.
_VALUE_KEEPING = frozenset(
    {
        *("Broadcast", "Concat", "Convert", "Gather", "Identity", "Reshape", "Slice", "Split"),
        *("Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit"),
    }
)

# Where operations read how long each of their sequences is.
_LENGTHS = {"LSTMSequence": 3, "GRUSequence": 2, "RNNSequence": 2, "ReverseSequence": 1}

_MAX_ELEMENTS = 2**40  # of an input: terabytes
_MOST_STEPS = 9  # of a Range whose end is an input

_Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

# How floating-point inputs are drawn: standardised ones, images, and those on both sides of 0.
FLOATS: Mapping[str, _Draw] = {
    "normal": lambda generator, shape: generator.standard_normal(shape),
    "uniform in [0, 1)": lambda generator, shape: generator.random(shape),
    "uniform in [-1, 1)": lambda generator, shape: generator.uniform(-1.0, 1.0, shape),
}

_WORDS = ("placement", "of", "a", "neural", "network", "on", "two", "devices")


def load(path: str) -> ov.Model:
    """Reads a model: a file whose format its suffix tells, or a TensorFlow SavedModel's folder.

    Files are .xml (with .bin), .onnx, .tflite and .pb.

    Raises:
      UserError: no such file, an unknown suffix, an .xml without its .bin, a folder of something
        else, a model that OpenVINO cannot read, one that leaves out what an operation needs, or
        names in it that are no UTF-8.
    """
    file, kind = _found(path)
    try:
        with silent_stderr():
            model = ov.Core().read_model(file)
        _check_names(model)
    except UnicodeDecodeError as error:
        raise UserError(
            f"model {path!r} has names that are no UTF-8 ({error.reason}); export it with others"
        ) from error
    except RuntimeError as error:
        reason = why(error, "its content is damaged or of another format")
        raise UserError(
            f"model {path!r} cannot be read as {kind}: {reason}; {_remedy(str(error), file)}"
        ) from error
    for op in all_ops(model):
        if op.get_type_name() == "NullNode":  # an input of ONNX without a name: none was given
            reader, *_ = op.output(0).get_target_inputs()
            name = reader.get_node().get_friendly_name()
            raise UserError(
                f"model {path!r} leaves out an input that {name!r} needs; export it again"
            )
    # An .xml names all operations, of which one may be called as OpenVINO calls one without a name,
    # by a number that goes up with every operation of the process. A copy has other numbers.
    while file.suffix.lower() == ".xml" and _unnamed(model):
        model = model.clone()
    return model


def _remedy(error: str, file: Path) -> str:
    """Returns what helps against an error of OpenVINO's readers."""
    external = re.search(r"externally stored data in file \(([^,]*), ", error)
    if external is not None:
        weights = file.parent / external[1]
        if not weights.is_file():
            return f"the file {str(weights)!r} with its weights is missing: copy it there too"
        return f"the file {str(weights)!r} has not all of its weights: copy it again"
    if re.search(r"rank\b.*\b(known|static)", error):
        return (
            "export it again with the number of dimensions of every input; a single dimension may "
            "stay unknown, and --config.input_shapes then gives its size"
        )
    if "OpConversionFailure" in error:
        return "export it again with operations that OpenVINO knows, or convert it to .xml"
    return f"give it the suffix of its format ({', '.join(_FORMATS)}) or export it again"


def _unnamed(model: ov.Model) -> set[str]:
    """The names that OpenVINO gave operations without one."""
    return {op.get_name() for op in all_ops(model) if op.friendly_name == op.get_name()}


def _found(path: str) -> tuple[Path, str]:
    """Returns what OpenVINO is to read, and its format."""
    file, valid = Path(path), ", ".join(_FORMATS)
    if file.name == _SAVED_MODEL and file.is_file():
        file = file.parent  # it is read with the variables beside it
    if file.is_dir():
        if not (file / _SAVED_MODEL).is_file():
            raise UserError(
                f"folder {path!r} holds no {_SAVED_MODEL}; give the folder of a TensorFlow "
                f"SavedModel, or a model file that is one of {valid}"
            )
        return file, "a TensorFlow SavedModel"
    if file.suffix.lower() not in _FORMATS:
        raise UserError(f"model {path!r} has suffix {file.suffix!r}; convert it to one of {valid}")
    if not file.is_file():
        raise UserError(f"no model file {path!r}; give the path of a file that is one of {valid}")
    weights = file.with_suffix(".bin")
    if file.suffix.lower() == ".xml" and not weights.is_file():
        raise UserError(f"model {path!r} has no weights beside it; copy {str(weights)!r} there too")
    return file, _FORMATS[file.suffix.lower()]


def _check_names(model: ov.Model) -> None:
    """Reads every name.

    Raises:
      UnicodeDecodeError: one is no UTF-8, as OpenVINO accepts.
    """
    model.get_friendly_name()
    for op in all_ops(model):
        op.get_friendly_name()
        for output in op.outputs():
            output.get_names()


def prepare(model: ov.Model, input_shapes: str = "") -> ov.Model:
    """A copy of `model` whose inputs are static, folded, with unique friendly names.

    Chains of operations on constants and static shapes are folded; weights stored in fewer bits
    than they are used in (float16 Constant, then Convert) stay so. Operations that the file does
    not name are named by type and order, the same in every process. Outputs, and operations
    between, can still be dynamic where their shape depends on data.

    Args:
      model: left as it is.
      input_shapes: such as 'images:1,3,224,224;ids:1,128'; an input goes by any of its names.
        Every dynamic input needs a shape; a static one may be given another.

    Raises:
      UserError: a dynamic input has no shape, or `input_shapes` is malformed, names no input, or
        does not fit the model; or the model's constants cannot be computed.
    """
    unnamed = _unnamed(model)
    prepared = model.clone()
    _name_unnamed(prepared, unnamed)
    shapes = _parse(input_shapes, prepared)
    missing = [
        port.get_node()
        for i, port in enumerate(prepared.inputs)
        if i not in shapes and port.get_partial_shape().is_dynamic
    ]
    if missing:
        raise UserError(
            f"the model has dynamic inputs without a shape: {listed(missing)}; "
            f"give them one, such as {_example(missing)}"
        )
    if shapes:
        try:
            prepared.reshape({i: ov.PartialShape(list(shape)) for i, shape in shapes.items()})
        except RuntimeError as error:
            reason = why(error, "its operations refuse them")
            raise UserError(
                f"the model does not work with input_shapes {input_shapes!r}: {reason}; "
                "give shapes that it was made for"
            ) from error
    _fold(prepared)
    _make_names_unique(prepared)
    return prepared


def example_inputs(model: ov.Model, seed: int, floats: str = "normal") -> list[np.ndarray]:
    """One array for each of `model.inputs`, drawn from `seed`.

    Floats are of the kind asked for, booleans fair coins, strings short words. Integers that look
    up rows of a table are uniform over its rows, and those that are lengths of sequences over their
    lengths; a single one that is compared with a constant equals it. Others of 8 bits are uniform
    over all that there are, as pixels and characters come. All others are 0 or 1, which suits masks
    and token types.

    Args:
      model: a model with static inputs.
      seed: equal seeds give equal arrays.
      floats: one of `FLOATS`; integers and the rest differ from one to the other, too.

    Raises:
      UserError: an input has a type that NumPy lacks (bf16, u4, ...).
    """
    kinds = list(FLOATS)
    generator = np.random.default_rng([seed, kinds.index(floats)] if floats != kinds[0] else seed)
    return [_example_input(port, generator, FLOATS[floats]) for port in model.inputs]


def names(parameter: ov.Node) -> list[str]:
    """Names an input goes by, the one to show first."""
    return [*sorted(parameter.output(0).get_names()), parameter.get_friendly_name()]


def listed(parameters: Iterable[ov.Node]) -> str:
    """Inputs with their shapes, for a message."""
    return ", ".join(
        f"{names(parameter)[0]} {parameter.get_output_partial_shape(0)}" for parameter in parameters
    )


def _example(parameters: Iterable[ov.Node]) -> str:
    """The flag that gives `parameters` plausible shapes: one image or sequence each."""
    entries = (
        f"{names(parameter)[0]}:{','.join(map(str, _plausible(parameter)))}"
        for parameter in parameters
    )
    return f"--config.input_shapes='{';'.join(entries)}'"


def _plausible(parameter: ov.Node) -> list[int]:
    """A shape that the input allows."""
    shape = parameter.get_output_partial_shape(0)
    if shape.rank.is_dynamic:
        return [1, 3, 224, 224]
    sizes = [128] * len(shape)
    # The batch: behind what is fixed, as the layers of a recurrent state are.
    batch = next((i for i, d in enumerate(shape) if d.is_dynamic or d.get_length() == 1), 0)
    if sizes:
        sizes[batch] = 1
    if len(shape) == 4:
        channels_last = shape[3].is_static and shape[1].is_dynamic
        sizes = [1, 224, 224, 3] if channels_last else [1, 3, 224, 224]
    return [_nearest(dim, size) for dim, size in zip(shape, sizes, strict=False)]


def _nearest(dim: ov.Dimension, size: int) -> int:
    """The length that `dim` allows nearest to `size`."""
    highest = dim.get_max_length()
    return max(dim.get_min_length(), size if highest < 0 else min(size, highest))


def _parse(text: str, model: ov.Model) -> dict[int, tuple[int, ...]]:
    """'images:1,3,224,224;ids:1,128' as {input's index: shape}."""
    parameters = model.get_parameters()
    shapes: dict[int, tuple[int, ...]] = {}
    for entry in text.split(";") if text.strip() else ():
        name, shape = _parse_entry(entry.strip(), parameters)
        number = index("input_shapes", name, parameters)
        if number in shapes:
            raise UserError(f"input_shapes gives input {name!r} two shapes; keep one")
        if math.prod(shape) > _MAX_ELEMENTS:
            raise UserError(
                f"input_shapes gives {name!r} the shape {list(shape)} of {math.prod(shape):.1e} "
                f"elements; give at most {_MAX_ELEMENTS:.1e}"
            )
        allowed = parameters[number].get_output_partial_shape(0)
        if allowed.is_dynamic and not allowed.compatible(ov.PartialShape(list(shape))):
            raise UserError(
                f"input_shapes gives {name!r} the shape {list(shape)}, which does not fit "
                f"{allowed}; one that fits is {_example([parameters[number]])}"
            )
        shapes[number] = shape
    return shapes


def index(key: str, name: str, parameters: list[ov.Node]) -> int:
    """The index of the input called `name`, which `key` mentions.

    Raises:
      UserError: there is none.
    """
    matches = [i for i, parameter in enumerate(parameters) if name in names(parameter)]
    if not matches:
        raise UserError(
            f"{key} names {name!r}, which is no input of the model; "
            f"its inputs are {listed(parameters)}"
        )
    return matches[0]


def _parse_entry(entry: str, parameters: list[ov.Node]) -> tuple[str, tuple[int, ...]]:
    """'images:1,3,224,224' as a name and a shape."""
    # A TensorFlow tensor is called 'input:0': the shape follows the last colon.
    name, colon, numbers = entry.rpartition(":")
    sizes = [size.strip() for size in numbers.split(",")]
    if not colon or not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise UserError(
            f"input_shapes has the malformed entry {entry!r}; write NAME:SIZE,SIZE,... with "
            f"positive sizes and ';' between inputs, such as {_example(parameters)}"
        )
    return name.strip(), tuple(map(int, sizes))


def _unpacks_weights(op: ov.Node) -> bool:
    """Whether `op` converts stored numbers to a wider floating-point type."""
    if op.get_type_name() != "Convert":
        return False
    stored, used = op.get_input_element_type(0), op.get_output_element_type(0)
    is_constant = op.input_value(0).get_node().get_type_name() == "Constant"
    return is_constant and used.is_real() and stored.bitwidth < used.bitwidth


def _fold(model: ov.Model) -> None:
    """Replaces what can be computed before any request by Constants, except unpacked weights.

    The mark that a plug-in puts on a compressed weight ('decompression') does not protect it from
    this pass, hence the explicit one, taken off again so that plug-ins see the model as it was.
    """
    unpacking = [op for op in all_ops(model) if _unpacks_weights(op)]
    for op in unpacking:
        op.set_rt_info(True, NO_FOLDING)
    manager = passes.Manager()
    manager.register_pass(passes.ConstantFolding())
    try:
        manager.run_passes(model)
    except (RuntimeError, ValueError) as error:  # OpenVINO's std::domain_error is a ValueError
        raise_if_exhausted(error)
        raise UserError(
            f"the model's constants cannot be computed: {why(error, 'OpenVINO refuses them')}; "
            "mend that operation and export the model again"
        ) from error
    for op in unpacking:
        del op.get_rt_info()[NO_FOLDING]


def _name_unnamed(model: ov.Model, unnamed: set[str]) -> None:
    """Renames operations that carry a name made from a counter of this process."""
    numbers: Counter[str] = Counter()
    for op in all_ops(model):
        if op.get_friendly_name() in unnamed:
            kind = op.get_type_name()
            op.set_friendly_name(f"{kind}_{numbers[kind]}")
            numbers[kind] += 1


def _make_names_unique(model: ov.Model) -> None:
    """Appends _1, _2, ... to every repeat of a name, in order."""
    ops = model.get_ordered_ops()
    taken = {op.get_friendly_name() for op in ops}
    seen: set[str] = set()
    repeats: Counter[str] = Counter()
    for op in ops:
        name = base = op.get_friendly_name()
        while name in seen or (name != base and name in taken):
            repeats[base] += 1
            name = f"{base}_{repeats[base]}"
        seen.add(name)
        op.set_friendly_name(name)


def _example_input(port: ov.Output, generator: np.random.Generator, floats: _Draw) -> np.ndarray:
    shape, element_type = tuple(port.get_shape()), port.get_element_type()
    if element_type == ov.Type.string:
        return generator.choice(_WORDS, size=shape)
    dtype = element_type.to_dtype()
    if ov.Type(dtype) != element_type:
        raise UserError(
            f"input {names(port.get_node())[0]!r} has type {element_type.get_type_name()}, which "
            "NumPy lacks; give the model float32 or integer inputs when exporting it"
        )
    within = _range(port)
    if within is None and element_type.is_real():
        return floats(generator, shape).astype(dtype)
    if within is None:
        whole = dtype in (np.int8, np.uint8)
        within = range(np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if whole else range(2)
    return generator.integers(within.start, within.stop, size=shape).astype(dtype)


def _range(port: ov.Output) -> range | None:
    """Returns the smallest range of numbers that a reader of `port` takes; None if all suit.

    Operations that keep values, such as reshapes, are followed to their own readers.
    """
    ranges, pending = [], [port]
    while pending:  # not recursive: chains of such operations may be thousands long
        for reader in pending.pop().get_target_inputs():
            op, index = reader.get_node(), reader.get_index()
            within = _taken(op, index)
            if within is not None:
                ranges.append(within)
            elif op.get_type_name() in _VALUE_KEEPING and index == 0:
                pending.append(op.output(0))
    return min(ranges, key=len, default=None)


def _taken(op: ov.Node, index: int) -> range | None:
    """The numbers that input number `index` of `op` takes, if it is no ordinary one."""
    kind = op.get_type_name()
    if kind.startswith("Embedding") and index == 2 and "Packed" not in kind:
        return range(1)  # offsets and segments must ascend: let them all be 0
    if _LENGTHS.get(kind) == index:
        steps = op.get_attributes()["seq_axis"] if kind == "ReverseSequence" else 1
        return range(1, _size(op, steps) + 1)
    if kind == "Range" and index == 1:
        return range(1, _MOST_STEPS)
    if kind in ("Equal", "NotEqual"):
        return _equal(op.input_value(index), op.input_value(1 - index).get_node())
    axis = _index_axis(op) if index == 1 else None
    return range(_size(op, axis)) if axis is not None and _size(op, axis) else None


def _size(op: ov.Node, axis: int) -> int:
    """The length of an axis of the first input of `op`, 0 where it is unknown."""
    shape = op.get_input_partial_shape(0)
    known = shape.rank.is_static and shape[axis].is_static
    return shape[axis].get_length() if known else 0


def _equal(value: ov.Output, other: ov.Node) -> range | None:
    """The integer that a single `value` is compared with, if that is a constant."""
    single = value.get_partial_shape().is_static and math.prod(value.get_shape()) == 1
    if (
        not single
        or other.get_type_name() != "Constant"
        or not other.get_element_type().is_integral()
    ):
        return None
    number = int(other.get_data().flat[0])
    return range(number, number + 1)


def _index_axis(op: ov.Node) -> int | None:
    """The axis of the first input of `op` that its second input indexes, if it does."""
    kind = op.get_type_name()
    if kind.startswith("Embedding"):
        return 0
    if kind == "GatherElements":
        return op.get_attributes()["axis"]
    if kind == "Gather":
        axis = op.input_value(2).get_node()
        return int(axis.get_data().item()) if axis.get_type_name() == "Constant" else None
    return None
