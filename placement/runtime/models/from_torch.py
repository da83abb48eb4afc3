"""PyTorch modules and exported programs as OpenVINO models.

A module is traced (`torch.jit.trace`), which names operations after its submodules and keeps
recurrent layers whole; a branch that depends on values is taken as it falls on the examples. The
extra `torch` installs what this takes. Who has no torch has no model of it, so it is never imported
for anything else.
"""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import openvino as ov

from placement.errors import UserError
from placement.runtime.models import conversion
from placement.runtime.models.conversion import Input

_MEND = "write it with operations that convert, or export it to ONNX and place that file"


def accepts(model: Any) -> bool:
    """Whether it is a `torch.nn.Module` or a `torch.export.ExportedProgram`."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def convert(model: Any, example_inputs: Any | None) -> ov.Model:
    """The model in evaluation mode, without gradients, with weights of its own.

    Args:
      model: what `accepts` accepts; it is left as it was.
      example_inputs: as of `placement.runtime.models.from_python.graph_from`.

    Raises:
      UserError: it cannot be converted, or the example inputs do not fit it.
    """
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return _program(model, example_inputs)
    if isinstance(model, torch.jit.ScriptModule):  # whose inputs OpenVINO counts wrongly
        raise UserError(
            f"{type(model).__name__} is a scripted or traced module; give the torch.nn.Module that "
            "it was made from, or export it to ONNX and place that file"
        )
    return _module(model, example_inputs)


def _module(module: Any, example_inputs: Any | None) -> ov.Model:
    subject = f"PyTorch module {type(module).__name__}"
    flat = conversion.flatten(module.forward, example_inputs, subject)
    with _lent(module, flat.function):
        converted = conversion.convert(
            module,
            subject=subject,
            mend=_MEND,
            example_input=tuple(flat.arrays),
            share_weights=False,
        )
    conversion.set_inputs(converted, flat.inputs, subject=subject)
    return converted


def _program(program: Any, example_inputs: Any | None) -> ov.Model:
    subject = "the exported program"
    inputs = _program_inputs(program, example_inputs, subject)
    # Weights would be shared with the program, and training would go on in the model.
    converted = conversion.convert(copy.deepcopy(program), subject=subject, mend=_MEND)
    parameters = converted.get_parameters()
    # The front end drops the first input where nothing reads it; of numbers, flags and None, which
    # are part of the program, it makes inputs that nothing reads.
    inputs = inputs[len(inputs) - len(parameters) :]
    for given, parameter in zip(inputs, parameters, strict=True):
        if given is None:
            converted.remove_parameter(parameter)
    tensors = [given for given in inputs if given is not None]
    conversion.set_inputs(converted, tensors, subject=subject)
    return converted


def _program_inputs(program: Any, example_inputs: Any | None, subject: str) -> list[Input | None]:
    """Every input of a program with the examples' shape; None for what is no tensor.

    Without any examples, given or the program's own, dynamic dimensions are left as -1.
    """
    from torch.export.graph_signature import InputKind, TensorArgument

    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    traced = [
        Input(spec.arg.name, _traced_shape(values[spec.arg.name]))
        if isinstance(spec.arg, TensorArgument)
        else None
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    given = program.example_inputs
    if example_inputs is not None:
        given = conversion.arguments(example_inputs)
    if given is None:
        return traced
    args, kwargs = given
    shapes = _shapes([entry.name for entry in traced if entry is not None], args, kwargs, subject)
    return [entry and _bound(entry, shapes[entry.name], subject) for entry in traced]


def _traced_shape(tensor: Any) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else -1 for size in tensor.shape)


def _shapes(
    names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any], subject: str
) -> dict[str, tuple[int, ...]]:
    """The shapes of a program's inputs: positional ones in order, the others by name."""
    positional = [leaf for value in args for leaf in _leaves("", value)]
    by_name = [leaf for key, value in kwargs.items() for leaf in _leaves(key, value)]
    shapes = {name: leaf.shape for name, leaf in zip(names, positional, strict=False)}
    shapes |= {leaf.name: leaf.shape for leaf in by_name}
    if set(shapes) != set(names) or len(positional) + len(by_name) != len(names):
        raise UserError(
            f"the example inputs do not fit {subject}: its inputs are "
            f"{', '.join(names) or 'none'}; give a tuple in their order, or a dict by name"
        )
    return shapes


def _bound(traced: Input, shape: tuple[int, ...], subject: str) -> Input:
    """The input with the shape of its example, if it was exported for that."""
    if not ov.PartialShape(list(traced.shape)).compatible(ov.PartialShape(list(shape))):
        raise UserError(
            f"input {traced.name!r} of {subject} is {list(traced.shape)} (-1 is any size), but its "
            f"example is {list(shape)}; give another example, or export it with dynamic_shapes"
        )
    return Input(traced.name, shape)


def _leaves(name: str, value: Any) -> Iterator[Input]:
    """The tensors in an argument of a program, in its order and by its names."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(f"{name}_{key}", entry)
    elif isinstance(value, (tuple, list)):
        for index, entry in enumerate(value):
            yield from _leaves(f"{name}_{index}", entry)
    elif hasattr(value, "shape"):
        yield Input(name, tuple(value.shape))


@contextlib.contextmanager
def _lent(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Without gradients, with another `forward`; then everything is as it was.

    The converter itself puts the module into evaluation mode, and leaves it there.
    """
    import torch

    own = {key: value for key, value in vars(module).items() if key == "forward"}
    modes = [(part, part.training) for part in module.modules()]
    module.forward = forward
    try:
        with torch.no_grad():
            yield
    finally:
        del module.forward
        vars(module).update(own)
        for part, mode in modes:
            part.training = mode
