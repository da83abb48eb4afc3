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

_REMEDY = "write it with operations that convert, or export it to ONNX and place that file"


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
        if example_inputs is not None:
            raise UserError(
                "an exported program contains its own examples; set input_shapes for other shapes"
            )
        return _convert_program(model)
    if isinstance(model, torch.jit.ScriptModule):  # OpenVINO miscounts its inputs
        raise UserError(
            f"{type(model).__name__} is a scripted or traced module; pass the torch.nn.Module that "
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
                remedy=_REMEDY,
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


def _convert_program(program: Any) -> ov.Model:
    """Converts an exported program, with the shapes of its examples.

    Without examples its dynamic dimensions stay dynamic.
    """
    from torch.export.graph_signature import InputKind, TensorArgument

    subject = "the exported program"
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    # Positional tensors belong to the inputs in order, the others by name.
    args, kwargs = program.example_inputs or ((), {})
    positional = [shape for value in args for _, shape in _tensors("", value)]
    named = dict(tensor for key, value in kwargs.items() for tensor in _tensors(key, value))
    inputs: list[InputSpec | None] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        if not isinstance(spec.arg, TensorArgument):
            inputs.append(None)
            continue
        name = spec.arg.name
        shape = [size if isinstance(size, int) else -1 for size in values[name].shape]
        if name in named:
            shape = named[name]
        elif positional:
            shape = positional.pop(0)
        inputs.append(InputSpec(name, tuple(shape)))
    # Without the copy the model would share its weights with the program, and change in training.
    converted = conversion.convert(copy.deepcopy(program), subject=subject, remedy=_REMEDY)
    parameters = converted.get_parameters()
    # The front end drops the first input if nothing reads it. Numbers, flags and None, which are
    # part of the program, become inputs that nothing reads.
    inputs = inputs[len(inputs) - len(parameters) :]
    for input_spec, parameter in zip(inputs, parameters, strict=True):
        if input_spec is None:
            converted.remove_parameter(parameter)
    conversion.set_inputs(converted, [spec for spec in inputs if spec is not None], subject=subject)
    return converted


def _tensors(name: str, value: Any) -> Iterator[tuple[str, list[int]]]:
    """Yields the names and shapes of tensors in an argument of a program, in its order."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _tensors(f"{name}_{key}", entry)
    elif isinstance(value, (tuple, list)):
        for index, entry in enumerate(value):
            yield from _tensors(f"{name}_{index}", entry)
    elif hasattr(value, "shape"):
        yield name, list(value.shape)
