"""Reading and preparing of models: static inputs, folded constants, unique names.

This module also draws random inputs to run a model with.
"""

import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import passes

from placement import files
from placement.errors import UserError, parsing
from placement.runtime.errors import find_reason, raise_if_exhausted, silent_stderr
from placement.runtime.models.operations import all_ops

_FORMATS = {
    ".xml": "OpenVINO IR",
    ".onnx": "ONNX",
    ".tflite": "TensorFlow Lite",
    ".pb": "a frozen TensorFlow graph",
}

_SAVED_MODEL = "saved_model.pb"  # in a folder with its variables

# The key of the mark ov::pass::DisableConstantFolding in an operation's runtime information.
NO_FOLDING = "DisableConstantFolding_0"

# Operations whose first output contains only values of their first input.
_VALUE_KEEPING_TYPES = frozenset(
    {
        *("Broadcast", "Concat", "Convert", "Gather", "Identity", "Reshape", "Slice", "Split"),
        *("Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit"),
    }
)

# Operation type -> index of the input that holds the length of each sequence.
_LENGTHS_INPUT = {"LSTMSequence": 3, "GRUSequence": 2, "RNNSequence": 2, "ReverseSequence": 1}

_SHAPES_SCHEMA = {str: [int]}  # of `input_shapes` in JSON: the sizes by any name of each input

_MAX_ELEMENTS = 2**40  # of an input: terabytes
_MAX_STEPS = 9  # of a Range whose end is an input

# Kinds of random floats: standardised features, images, and values on both sides of 0.
FLOATS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda generator, shape: generator.standard_normal(shape),
    "uniform in [0, 1)": lambda generator, shape: generator.random(shape),
    "uniform in [-1, 1)": lambda generator, shape: generator.uniform(-1.0, 1.0, shape),
}

_WORDS = ("placement", "of", "a", "neural", "network", "on", "two", "devices")


def load(path: str) -> ov.Model:
    """Reads a model from a file, whose suffix gives its format, or from a SavedModel folder.

    Args:
      path: an .xml file (with its .bin), an .onnx, .tflite or .pb file, or the folder of
        a TensorFlow SavedModel.

    Raises:
      UserError: there is no such model; OpenVINO cannot read it; an operation lacks an input that
        it needs; or a name is not UTF-8.
    """
    file, valid = Path(path), ", ".join(_FORMATS)
    if file.name == _SAVED_MODEL and file.is_file():
        file = file.parent  # OpenVINO reads the folder, with the variables
    suffix, file_format = file.suffix.lower(), _FORMATS.get(file.suffix.lower(), "")
    weights = file.with_suffix(".bin")
    if file.is_dir():
        file_format = "a TensorFlow SavedModel"
        if not (file / _SAVED_MODEL).is_file():
            raise UserError(
                f"folder {path!r} holds no {_SAVED_MODEL}; set the folder of a TensorFlow "
                f"SavedModel, or a model file that is one of {valid}"
            )
    elif not file_format:
        raise UserError(f"model {path!r} has suffix {file.suffix!r}; convert it to one of {valid}")
    elif not file.is_file():
        raise UserError(f"no model file {path!r}; set the path of a file that is one of {valid}")
    elif suffix == ".xml" and not weights.is_file():
        raise UserError(f"model {path!r} has no weights; copy {str(weights)!r} there too")
    try:
        with silent_stderr():
            model = ov.Core().read_model(file)
        # Read every name: OpenVINO accepts names that are not UTF-8, Python does not.
        model.get_friendly_name()
        for op in all_ops(model):
            op.get_friendly_name()
            for output in op.outputs():
                output.get_names()
    except UnicodeDecodeError as error:
        raise UserError(
            f"model {path!r} has names that are not UTF-8 ({error.reason}); export it with others"
        ) from error
    except RuntimeError as error:
        text, advice = str(error), f"use the suffix of its format ({valid}) or export it again"
        if external := re.search(r"externally stored data in file \(([^,]*), ", text):
            external_file = file.parent / external[1]
            is_cut = external_file.is_file()
            problem = "has not all of its weights" if is_cut else "with its weights is missing"
            advice = f"the file {str(external_file)!r} {problem}: copy it again"
        elif re.search(r"rank\b.*\b(known|static)", text):
            advice = "export it again with the number of dimensions of every input"
        elif "OpConversionFailure" in text:
            advice = "export it again with operations that OpenVINO knows, or convert it to .xml"
        reason = find_reason(error, "its content is damaged or of another format")
        raise UserError(
            f"model {path!r} cannot be read as {file_format}: {reason}; {advice}"
        ) from error
    for op in all_ops(model):
        # A NullNode stands for an ONNX input without a name, for which the file has no tensor.
        if op.get_type_name() == "NullNode":
            reader, *_ = op.output(0).get_target_inputs()
            name = reader.get_node().get_friendly_name()
            raise UserError(
                f"model {path!r} leaves out an input that {name!r} needs; export it again"
            )
    # An .xml file names all its operations. One of these names can equal the name that OpenVINO
    # gives an operation without a name: its type and a counter of the process. In a copy of the
    # model the counter has other values.
    while suffix == ".xml" and _unnamed_ops(model):
        model = model.clone()
    return model


def _unnamed_ops(model: ov.Model) -> set[str]:
    """Returns the names that OpenVINO gave to operations without a name."""
    return {op.get_name() for op in all_ops(model) if op.friendly_name == op.get_name()}


def name_operations(model: ov.Model) -> ov.Model:
    """Returns a copy of a model whose operations all have names, the same in every process."""
    unnamed = _unnamed_ops(model)
    named = model.clone()
    # The names that OpenVINO gave contain a counter of this process.
    counts: Counter[str] = Counter()
    for op in all_ops(named):
        if op.get_friendly_name() in unnamed:
            op_type = op.get_type_name()
            op.set_friendly_name(f"{op_type}_{counts[op_type]}")
            counts[op_type] += 1
    return named


def prepare(model: ov.Model, input_shapes: str = "") -> ov.Model:
    """Returns a folded copy of `model` with static inputs and unique friendly names.

    Operations on constants and on static shapes are folded. Weights that are stored in fewer bits
    than they are used in (a float16 Constant, then a Convert) stay so. Operations without a name in
    the file are named by type and order, the same in every process. Outputs and intermediate
    tensors can still be dynamic if their shape depends on data.

    Args:
      model: a model. It is not changed.
      input_shapes: shapes such as 'images:1,3,224,224;ids:1,128', a JSON object of shapes by name
        (`format_shapes`), or the path of a .json file with one; any name of an input may be used.
        Every dynamic input needs a shape; a static input may be given another one.

    Raises:
      UserError: a dynamic input has no shape; `input_shapes` is malformed, names no input, or does
        not fit the model; or the model's constants cannot be computed.
    """
    prepared = name_operations(model)
    shapes = _parse_shapes(input_shapes, prepared)
    missing = [
        port.get_node()
        for i, port in enumerate(prepared.inputs)
        if i not in shapes and port.get_partial_shape().is_dynamic
    ]
    if missing:
        raise UserError(
            f"the model has dynamic inputs without a shape: {describe_inputs(missing)}; "
            f"set it, such as {_example_flag(missing)}"
        )
    if shapes:
        try:
            prepared.reshape({i: ov.PartialShape(shape) for i, shape in shapes.items()})
        except RuntimeError as error:
            reason = find_reason(error, "its operations refuse them")
            raise UserError(
                f"the model does not work with input_shapes {input_shapes!r}: {reason}; "
                "set shapes that it was made for"
            ) from error
        # OpenVINO computes the target of a Reshape before a MatMul with new operations.
        prepared = name_operations(prepared)

    # Fold constants, except the unpacking of stored weights. The mark 'decompression' of such a
    # weight does not protect it from folding. An explicit mark does, and is removed again so that
    # plug-ins see the model as it was.
    unpacking_ops = []
    for op in all_ops(prepared):
        if op.get_type_name() != "Convert":
            continue
        stored_type, used_type = op.get_input_element_type(0), op.get_output_element_type(0)
        is_constant = op.input_value(0).get_node().get_type_name() == "Constant"
        if is_constant and used_type.is_real() and stored_type.bitwidth < used_type.bitwidth:
            op.set_rt_info(True, NO_FOLDING)
            unpacking_ops.append(op)
    manager = passes.Manager()
    manager.register_pass(passes.ConstantFolding())
    try:
        manager.run_passes(prepared)
    except (RuntimeError, ValueError) as error:  # OpenVINO's std::domain_error is a ValueError
        raise_if_exhausted(error)
        raise UserError(
            "the model's constants cannot be computed: "
            f"{find_reason(error, 'OpenVINO refuses them')}; "
            "correct that operation and export the model again"
        ) from error
    for op in unpacking_ops:
        del op.get_rt_info()[NO_FOLDING]

    # Append _1, _2, ... to every repeat of a name, in order.
    ops = prepared.get_ordered_ops()
    original_names = {op.get_friendly_name() for op in ops}
    used_names: set[str] = set()
    repeats: Counter[str] = Counter()
    for op in ops:
        name = base = op.get_friendly_name()
        while name in used_names or (name != base and name in original_names):
            repeats[base] += 1
            name = f"{base}_{repeats[base]}"
        used_names.add(name)
        op.set_friendly_name(name)
    return prepared


def input_names(parameter: ov.Node) -> list[str]:
    """Returns the names of an input, the one to show first."""
    return [*sorted(parameter.output(0).get_names()), parameter.get_friendly_name()]


def describe_inputs(parameters: Iterable[ov.Node]) -> str:
    """Lists inputs with their shapes, for a message."""
    return ", ".join(
        f"{name if _is_plain(name) else repr(name)} {parameter.get_output_partial_shape(0)}"
        for parameter in parameters
        for name in input_names(parameter)[:1]
    )


def find_input(key: str, name: str, parameters: list[ov.Node]) -> int:
    """Returns the index of the input that has this name; a UserError mentions the setting `key`."""
    matches = [i for i, parameter in enumerate(parameters) if name in input_names(parameter)]
    if not matches:
        raise UserError(
            f"{key} names {name!r}, which is not an input of the model; "
            f"its inputs are {describe_inputs(parameters)}"
        )
    return matches[0]


def format_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """Returns shapes by name as `prepare` takes them, such as 'images:1,3,224,224;ids:1,128'.

    It is a JSON object instead if a name contains a separator or an input is a scalar.
    """
    sizes_by_name = {name: list(map(operator.index, sizes)) for name, sizes in shapes.items()}
    if all(_is_plain(name) and sizes for name, sizes in sizes_by_name.items()):
        pairs = ((name, ",".join(map(str, sizes))) for name, sizes in sizes_by_name.items())
        return ";".join(f"{name}:{sizes}" for name, sizes in pairs)
    text = json.dumps(sizes_by_name, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(sizes_by_name)


def _is_plain(name: str) -> bool:
    """Returns whether a name needs no JSON: the separators of `input_shapes` do not end it."""
    is_ended = name[:1] == "{" or not {*";'"}.isdisjoint(name)
    return name == " ".join(name.split()) and name.isprintable() and not is_ended


@parsing()
def _parse_shapes(text: str, model: ov.Model) -> dict[int, list[int]]:
    """Parses `input_shapes`, as `prepare` takes it, to {index of the input: shape}."""
    parameters = model.get_parameters()
    pairs: list[tuple[str, list[int]]] = []
    setting, is_file = text, text.endswith(".json")
    if is_file:
        content = files.read_bytes(text, remedy="set input_shapes to the path of a JSON file")
        text = content.decode(errors="replace")
    if is_file or text.startswith("{"):
        try:
            sizes_by_name = json.loads(text)
            files.check(sizes_by_name, _SHAPES_SCHEMA, "")
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"input_shapes={setting!r} cannot be read as JSON: {error}; write shapes by name, "
                'such as {"images": [1, 3, 224, 224]}'
            ) from error
        pairs = list(sizes_by_name.items())
    elif text.strip():
        for entry in map(str.strip, text.split(";")):
            # A TensorFlow tensor is called 'input:0', so the shape follows the last colon.
            name, colon, numbers = entry.rpartition(":")
            sizes = [size.strip() for size in numbers.split(",")]
            if not colon or not all(map(str.isdecimal, sizes)):
                raise ValueError(
                    f"input_shapes has the malformed entry {entry!r}; write NAME:SIZE,SIZE,... "
                    f"with ';' between inputs, such as {_example_flag(parameters)}"
                )
            pairs.append((name.strip(), list(map(int, sizes))))
    shapes: dict[int, list[int]] = {}
    for name, shape in pairs:
        index = find_input("input_shapes", name, parameters)
        allowed = parameters[index].get_output_partial_shape(0)
        problem = ""
        if index in shapes:
            problem = " twice; keep one of them"
        elif min(shape, default=0) < 0:
            problem = "; set sizes from 0 upwards"
        elif math.prod(shape) > _MAX_ELEMENTS:
            problem = f" of {math.prod(shape):.1e} elements; set at most {_MAX_ELEMENTS:.1e}"
        elif allowed.is_dynamic and not allowed.compatible(ov.PartialShape(shape)):
            example = _example_flag([parameters[index]])
            problem = f", which does not fit {allowed}; one that fits is {example}"
        if problem:
            raise ValueError(f"input_shapes gives {name!r} the shape {shape}{problem}")
        shapes[index] = shape
    return shapes


def _example_flag(parameters: Iterable[ov.Node]) -> str:
    """Returns a flag that gives inputs plausible shapes: one image or sequence each."""
    shapes = {}
    for parameter in parameters:
        allowed = parameter.get_output_partial_shape(0)
        shape = [1, 3, 224, 224]
        if allowed.rank.is_static:
            if len(allowed) != 4:
                # The first axis that is dynamic or has length 1 is the batch. It can come after
                # fixed axes, such as the layers of a recurrent state.
                batch_axes = (i for i, d in enumerate(allowed) if d.get_min_length() < 2)
                batch_axis = next(batch_axes, 0)
                shape = [1 if axis == batch_axis else 128 for axis in range(len(allowed))]
            elif allowed[3].is_static and allowed[1].is_dynamic:
                shape = [1, 224, 224, 3]  # channels last
            for axis, dim in enumerate(allowed):  # the nearest length that the input allows
                highest = dim.get_max_length()  # -1 without a limit
                nearest = shape[axis] if highest < 0 else min(shape[axis], highest)
                shape[axis] = max(dim.get_min_length(), nearest)
        shapes[input_names(parameter)[0]] = shape
    text = format_shapes(shapes)
    if text.startswith("{"):  # a shell might change it
        return f"input_shapes='shapes.json' with {text} in that file"
    return f"input_shapes='{text}'"


def example_inputs(model: ov.Model, seed: int, floats: str = "normal") -> list[np.ndarray]:
    """Draws one array for each of `model.inputs`.

    Floats are of the requested kind, booleans fair coins, strings short words. Integers that index
    the rows of a table are uniform over its rows, and integers that are lengths of sequences over
    the possible lengths. A single integer that is compared with a constant equals it. Other
    integers of 8 bits are uniform over all values, as pixels and characters are. All other integers
    are 0 or 1, which suits masks and token types.

    Args:
      model: a model with static inputs.
      seed: equal seeds give equal arrays.
      floats: one of `FLOATS`. Integers and other types also differ between the kinds.

    Raises:
      UserError: an input has a type that NumPy lacks (bf16, u4, ...).
    """
    kinds = list(FLOATS)
    generator = np.random.default_rng([seed, kinds.index(floats)] if floats != kinds[0] else seed)
    arrays = []
    for port in model.inputs:
        shape, element_type = tuple(port.get_shape()), port.get_element_type()
        if element_type == ov.Type.string:
            arrays.append(generator.choice(_WORDS, size=shape))
            continue
        dtype = element_type.to_dtype()
        if ov.Type(dtype) != element_type:
            raise UserError(
                f"input {input_names(port.get_node())[0]!r} has type "
                f"{element_type.get_type_name()}, which NumPy lacks; export the model with float32 "
                "or integer inputs"
            )
        # Collect the ranges that the readers accept. Operations that keep values, such as reshapes,
        # are followed to their own readers; not recursively, as they can form chains of thousands.
        ranges, pending = [], [port]
        while pending:
            for reader in pending.pop().get_target_inputs():
                op, index = reader.get_node(), reader.get_index()
                accepted = _accepted_range(op, index)
                if accepted is not None:
                    ranges.append(accepted)
                elif op.get_type_name() in _VALUE_KEEPING_TYPES and index == 0:
                    pending.append(op.output(0))
        smallest = min(ranges, key=len, default=None)
        if smallest is None and element_type.is_real():
            arrays.append(FLOATS[floats](generator, shape).astype(dtype))
            continue
        if smallest is None:
            is_8_bit = dtype in (np.int8, np.uint8)
            smallest = range(np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if is_8_bit else range(2)
        array = generator.integers(smallest.start, smallest.stop, size=shape)
        arrays.append(array.astype(dtype))
    return arrays


def _accepted_range(op: ov.Node, index: int) -> range | None:
    """Returns the integers that input number `index` of `op` accepts; None if it accepts any."""
    op_type = op.get_type_name()

    def length(axis: int) -> int:  # of the first input; 0 if it is unknown
        shape = op.get_input_partial_shape(0)
        is_known = shape.rank.is_static and shape[axis].is_static
        return shape[axis].get_length() if is_known else 0

    if op_type.startswith("Embedding") and index == 2 and "Packed" not in op_type:
        return range(1)  # offsets and segments must ascend: all of them are 0
    if _LENGTHS_INPUT.get(op_type) == index:
        time_axis = op.get_attributes()["seq_axis"] if op_type == "ReverseSequence" else 1
        return range(1, length(time_axis) + 1)
    if op_type == "Range" and index == 1:
        return range(1, _MAX_STEPS)
    if op_type in ("Equal", "NotEqual"):
        value, operand = op.input_value(index), op.input_value(1 - index).get_node()
        is_single = value.get_partial_shape().is_static and math.prod(value.get_shape()) == 1
        is_constant = operand.get_type_name() == "Constant"
        if is_single and is_constant and operand.get_element_type().is_integral():
            number = int(operand.get_data().flat[0])
            return range(number, number + 1)
        return None
    if index != 1:
        return None

    # The second input can hold indices along an axis of the first.
    axis = None
    if op_type.startswith("Embedding"):
        axis = 0
    elif op_type == "GatherElements":
        axis = op.get_attributes()["axis"]
    elif op_type == "Gather" and op.input_value(2).get_node().get_type_name() == "Constant":
        axis = int(op.input_value(2).get_node().get_data().item())
    return range(length(axis)) if axis is not None and length(axis) else None
