"""PyTorch modules and exported programs as OpenVINO models.

A module is traced (`torch.jit.trace`). This names operations after its submodules and keeps
recurrent layers whole; a branch that depends on values is taken as the example inputs decide. The
extra `torch` installs what this needs. Torch is never imported for a model of another kind: a user
without torch has no torch model.
"""

import copy
import sys
from collections.abc import Iterator
from typing import Any

import openvino as ov

from placement.errors import UserError
from placement.runtime.models import conversion
from placement.runtime.models.conversion import InputSpec

_MEND = "write it with operations that convert, or export it to ONNX and place that file"


def accepts(model: Any) -> bool:
    """Returns whether `model` is a `torch.nn.Module` or a `torch.export.ExportedProgram`."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def convert(model: Any, example_inputs: Any | None) -> ov.Model:
    """Converts a model in evaluation mode, without gradients; its weights are copied.

    Args:
      model: an object that `accepts` accepts. It is not changed.
      example_inputs: as for `placement.runtime.models.from_python.graph_from`.

    Raises:
      UserError: the model cannot be converted, or the example inputs do not fit it.
    """
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return _convert_program(model, example_inputs)
    if isinstance(model, torch.jit.ScriptModule):  # OpenVINO miscounts its inputs
        raise UserError(
            f"{type(model).__name__} is a scripted or traced module; give the torch.nn.Module that "
            "it was made from, or export it to ONNX and place that file"
        )
    subject = f"PyTorch module {type(model).__name__}"
    flat = conversion.flatten_function(model.forward, example_inputs, subject)
    # The module is lent to the converter with another `forward`. The converter puts it into
    # evaluation mode and leaves it there. Afterwards everything is restored.
    own_forward = {key: value for key, value in vars(model).items() if key == "forward"}
    training_modes = [(module, module.training) for module in model.modules()]
    model.forward = flat.function
    try:
        with torch.no_grad():
            converted = conversion.convert(
                model,
                subject=subject,
                mend=_MEND,
                example_input=tuple(flat.arrays),
                share_weights=False,
            )
    finally:
        del model.forward
        vars(model).update(own_forward)
        for module, is_training in training_modes:
            module.training = is_training
    conversion.set_inputs(converted, flat.inputs, subject=subject)
    return converted


def _convert_program(program: Any, example_inputs: Any | None) -> ov.Model:
    subject = "the exported program"
    inputs = _program_inputs(program, example_inputs, subject)
    # Without the copy the model would share its weights with the program, and change in training.
    converted = conversion.convert(copy.deepcopy(program), subject=subject, mend=_MEND)
    parameters = converted.get_parameters()
    # The front end drops the first input if nothing reads it. Numbers, flags and None, which are
    # part of the program, become inputs that nothing reads.
    inputs = inputs[len(inputs) - len(parameters) :]
    for spec, parameter in zip(inputs, parameters, strict=True):
        if spec is None:
            converted.remove_parameter(parameter)
    tensor_inputs = [spec for spec in inputs if spec is not None]
    conversion.set_inputs(converted, tensor_inputs, subject=subject)
    return converted


def _program_inputs(
    program: Any, example_inputs: Any | None, subject: str
) -> list[InputSpec | None]:
    """Returns every input of a program with its example's shape; None for inputs without a tensor.

    If neither the caller nor the program has examples, dynamic dimensions stay -1.
    """
    from torch.export.graph_signature import InputKind, TensorArgument

    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    exported: list[InputSpec | None] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        if not isinstance(spec.arg, TensorArgument):
            exported.append(None)
            continue
        sizes = values[spec.arg.name].shape
        shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
        exported.append(InputSpec(spec.arg.name, shape))
    arguments = program.example_inputs
    if example_inputs is not None:
        arguments = conversion.split_arguments(example_inputs)
    if arguments is None:
        return exported

    # Positional tensors belong to the inputs in order, the others by name.
    args, kwargs = arguments
    positional = [tensor for value in args for tensor in _tensors("", value)]
    named = [tensor for key, value in kwargs.items() for tensor in _tensors(key, value)]
    names = [spec.name for spec in exported if spec is not None]
    shapes = {name: tensor.shape for name, tensor in zip(names, positional, strict=False)}
    shapes |= {tensor.name: tensor.shape for tensor in named}
    if set(shapes) != set(names) or len(positional) + len(named) != len(names):
        raise UserError(
            f"the example inputs do not fit {subject}: its inputs are "
            f"{', '.join(names) or 'none'}; give a tuple in their order, or a dict by name"
        )
    for spec in exported:
        if spec is None:
            continue
        exported_shape, example_shape = list(spec.shape), list(shapes[spec.name])
        if not ov.PartialShape(exported_shape).compatible(ov.PartialShape(example_shape)):
            raise UserError(
                f"input {spec.name!r} of {subject} is {exported_shape} (-1 is any size), but its "
                f"example is {example_shape}; give another example, or export it with "
                "dynamic_shapes"
            )
    return [spec and InputSpec(spec.name, shapes[spec.name]) for spec in exported]


def _tensors(name: str, value: Any) -> Iterator[InputSpec]:
    """Yields the tensors in an argument of a program, in its order and with its names."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _tensors(f"{name}_{key}", entry)
    elif isinstance(value, (tuple, list)):
        for index, entry in enumerate(value):
            yield from _tensors(f"{name}_{index}", entry)
    elif hasattr(value, "shape"):
        yield InputSpec(name, tuple(value.shape))
