"""Models made in Python with PyTorch, JAX or OpenVINO.

A PyTorch module is traced (`torch.jit.trace`). This names operations after its submodules and keeps
recurrent layers whole; a branch that depends on values is taken as the example inputs decide. Torch
is never imported for a model of another kind: a user without torch has no torch model.

OpenVINO's experimental front end for JAX translates a flat list of primitives. So a function is
traced, its calls are inlined, and everything that depends on no input is computed. The front end
ignores unknown parameters, such as the dilation of a convolution, so the model must compute the
same on the example inputs.
"""

import contextlib
import copy
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import openvino as ov
from jax.extend import core
from openvino import opset15 as ops
from openvino.frontend import ConversionExtension

from placement.errors import UserError
from placement.runtime.errors import find_reason
from placement.runtime.models import extract, frontend, operations, outputs
from placement.types import OpGraph

_TORCH_REMEDY = "write it with operations that convert, or export it to ONNX and place that file"
_JAX_REMEDY = "write it with operations that convert (docs/PYTHON.md), or place the part that does"
_CALLS = ("jit", "remat2", "custom_jvp_call", "custom_vjp_call")  # primitives that are a call
# A front end names an operation without a name by its type and a counter of this process.
_COUNTER_NAME = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")


class InputSpec(NamedTuple):
    """The name and shape that an input of a model is to have."""

    name: str
    shape: tuple[int, ...]  # -1 for an unknown dimension


class FlatFunction(NamedTuple):
    """A function of arrays only, made from a function of nested arguments."""

    function: Callable[..., Any]  # of the arrays; numbers, flags and None are as in the examples
    inputs: list[InputSpec]  # one for each array
    arrays: list[Any]  # the arrays of the example inputs


class Converted(NamedTuple):
    """A model made in Python, ready to be placed."""

    model: ov.Model  # prepared by `frontend.prepare`
    graph: OpGraph  # of all its operations, constants included

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an OpenVINO IR file for the setting `graph`, and its weights as .bin.

        The path ends in .xml and its folder exists, else it raises a UserError.
        """
        file = Path(path)
        if file.suffix != ".xml" or not file.parent.is_dir():
            raise UserError(
                f"cannot save a model to {str(path)!r}; pass the path of an .xml file, in a folder "
                "that exists"
            )
        # By default OpenVINO would round the weights to f16.
        ov.save_model(self.model, file, compress_to_fp16=False)


def save(model: Any, example_inputs: Any | None, file: Path) -> None:
    """Saves what `graph_from` makes of a model, or an `openvino.Model` with its dynamic inputs."""
    if isinstance(model, ov.Model):
        ov.save_model(frontend.name_operations(model), file, compress_to_fp16=False)
        return
    converted = model if isinstance(model, Converted) else graph_from(model, example_inputs)
    converted.save(file)


def graph_from(
    model: Any, example_inputs: Any | None = None, *, input_shapes: str = ""
) -> Converted:
    """Converts a model to one that can be placed, with the static shapes of its example inputs.

    The model's inputs have the names of the arguments; an entry of a tuple or dict is called
    'pair.0' or 'batch.v'. The inputs of an exported program keep its names. Weights are copied.

    Args:
      model: an `openvino.Model`; a `torch.nn.Module`; a `torch.export.ExportedProgram`; or a JAX
        function of arrays, also a bound Flax module or a Flax `apply` with its parameters bound.
      example_inputs: a tuple of arguments, a dict of arguments by name, or the only argument
        itself; None for an exported program, which contains its own.
      input_shapes: other shapes than the examples', such as 'images:8,3,224,224', for a program
        with dynamic shapes.

    Raises:
      UserError: the model is none of these kinds, or cannot be converted.
    """
    if isinstance(model, ov.Model):
        converted = model
    elif (torch := sys.modules.get("torch")) and isinstance(model, torch.nn.Module):
        converted = from_module(model, example_inputs)
    elif torch and isinstance(model, torch.export.ExportedProgram):
        if example_inputs is not None:
            raise UserError(
                "an exported program contains its own examples; set input_shapes for other shapes"
            )
        converted = from_program(model)
    elif callable(model):
        converted = from_jax(model, example_inputs)
    else:
        raise UserError(
            f"an object of type {type(model).__name__} is not a model; pass an openvino.Model, a "
            "torch.nn.Module or a torch.export program (pip install torch), or a JAX "
            "function, or pass the path of a model file to placement.place"
        )
    prepared = frontend.prepare(converted, input_shapes)
    name = getattr(model, "__name__", type(model).__name__)
    return Converted(prepared, extract.op_graph(prepared, name=name).graph)


def from_module(model: Any, example_inputs: Any | None) -> ov.Model:
    """Converts a `torch.nn.Module` in evaluation mode, without gradients; it is not changed.

    Raises:
      UserError: the module cannot be converted, or the example inputs do not fit it.
    """
    import torch

    if isinstance(model, torch.jit.ScriptModule):  # OpenVINO miscounts its inputs
        raise UserError(
            f"{type(model).__name__} is a scripted or traced module; pass the torch.nn.Module that "
            "it was made from, or export it to ONNX and place that file"
        )
    subject = f"PyTorch module {type(model).__name__}"
    flat = flatten_function(model.forward, example_inputs, subject)
    # The module is lent to the converter with another `forward`. The converter puts it into
    # evaluation mode and leaves it there. Afterwards everything is restored.
    own_forward = {key: value for key, value in vars(model).items() if key == "forward"}
    training_modes = [(module, module.training) for module in model.modules()]
    model.forward = flat.function
    try:
        with torch.no_grad():
            converted = convert(
                model,
                subject=subject,
                remedy=_TORCH_REMEDY,
                example_input=tuple(flat.arrays),
                share_weights=False,
            )
    finally:
        del model.forward
        vars(model).update(own_forward)
        for module, is_training in training_modes:
            module.training = is_training
    set_inputs(converted, flat.inputs, subject=subject)
    return converted


def from_program(program: Any) -> ov.Model:
    """Converts a `torch.export.ExportedProgram`, with the shapes of its examples.

    Without examples its dynamic dimensions stay dynamic.
    """
    from torch.export.graph_signature import InputKind, TensorArgument

    def list_tensors(name: str, value: Any) -> Iterator[tuple[str, list[int]]]:
        """Yields the names and shapes of tensors in an argument of a program, in its order."""
        if isinstance(value, dict):
            for key, entry in value.items():
                yield from list_tensors(f"{name}_{key}", entry)
        elif isinstance(value, (tuple, list)):
            for index, entry in enumerate(value):
                yield from list_tensors(f"{name}_{index}", entry)
        elif hasattr(value, "shape"):
            yield name, list(value.shape)

    subject = "the exported program"
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    # Positional tensors belong to the inputs in order, the others by name.
    args, kwargs = program.example_inputs or ((), {})
    positional = [shape for value in args for _, shape in list_tensors("", value)]
    named = dict(tensor for key, value in kwargs.items() for tensor in list_tensors(key, value))
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
    converted = convert(copy.deepcopy(program), subject=subject, remedy=_TORCH_REMEDY)
    parameters = converted.get_parameters()
    # The front end drops the first input if nothing reads it. Numbers, flags and None, which are
    # part of the program, become inputs that nothing reads.
    inputs = inputs[len(inputs) - len(parameters) :]
    for input_spec, parameter in zip(inputs, parameters, strict=True):
        if input_spec is None:
            converted.remove_parameter(parameter)
    set_inputs(converted, [spec for spec in inputs if spec is not None], subject=subject)
    return converted


def from_jax(function: Callable[..., Any], example_inputs: Any) -> ov.Model:
    """Converts a function of arrays to a model with the shapes and types of its example inputs.

    Raises:
      UserError: the function cannot be traced or converted, or the model computes something else.
    """
    subject = f"JAX function {getattr(function, '__name__', type(function).__name__)}"
    flat = flatten_function(function, example_inputs, subject)
    try:
        program = jax.make_jaxpr(flat.function)(*flat.arrays)
    except Exception as error:  # the function's own code runs, which may raise anything
        raise make_tracing_error(subject, error) from error
    inlined = jax.make_jaxpr(partial(_inline, program.jaxpr, program.consts))(*flat.arrays)
    # OpenVINO 2026.4 adds an axis to the result of `select_n`.
    select = ConversionExtension(
        "select_n", lambda n: [ops.select(*map(n.get_input, (0, 2, 1))).output(0)]
    )
    model = convert(inlined, subject=subject, remedy=_JAX_REMEDY, extension=[select])
    set_inputs(model, flat.inputs, subject=subject)
    for port in (port for op in model.get_ops() for port in op.outputs()):
        # The front end also names tensors by addresses in this process.
        port.set_names({name for name in port.get_names() if not name.isdecimal()})

    arrays = [np.array(x, a.dtype) for x, a in zip(flat.arrays, program.in_avals, strict=True)]
    expected = [np.asarray(array) for array in jax.jit(core.jaxpr_as_fun(program))(*arrays)]
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    computed = list(compiled(arrays).to_tuple())
    if list(map(np.shape, computed)) == list(map(np.shape, expected)):
        has_f16 = any(array.dtype == np.float16 for array in (*arrays, *expected))
        if outputs.compare(expected, computed).error <= (0.1 if has_f16 else 1e-3):
            return model
    raise UserError(f"OpenVINO converts {subject} to a model with other outputs; {_JAX_REMEDY}")


def _inline(jaxpr: core.Jaxpr, consts: Sequence[Any], *arrays: Any) -> list[Any]:
    """Returns the outputs of a jaxpr, with calls inlined and what is not traced computed."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arrays], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        inputs, name = list(map(read, eqn.invars)), eqn.primitive.name
        if name in _CALLS:
            called = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
            inner, inner_consts = getattr(called, "jaxpr", called), getattr(called, "consts", ())
            results = _inline(inner, inner_consts, *inputs)
        else:
            is_traced = any(isinstance(value, jax.core.Tracer) for value in inputs)
            with contextlib.nullcontext() if is_traced else jax.ensure_compile_time_eval():
                results = eqn.primitive.bind(*inputs, **eqn.params)
            results = results if eqn.primitive.multiple_results else [results]
        values.update(zip(eqn.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def convert(source: Any, *, subject: str, remedy: str, **options: Any) -> ov.Model:
    """Calls `ov.convert_model`, and makes names and folding the same as those of a model file.

    Errors call the source (a module, a program or a jaxpr) `subject`, and end with the `remedy`.
    """
    # The converter silences the root logger, and leaves it silenced after an error.
    root = logging.getLogger()
    level, filters, handlers = root.level, list(root.filters), list(root.handlers)
    try:
        model = ov.convert_model(source, **options)
    except Exception as error:  # the source's own code runs, which may raise anything
        if error.__cause__ is not None:  # an error while a module was traced
            raise make_tracing_error(subject, error.__cause__) from error
        reason = find_reason(error, type(error).__name__)
        for message, explanation in (
            ("No conversion rule found for operations", "OpenVINO has no rule for"),
            ("Conversion is failed for", "OpenVINO's rule fails for"),
        ):
            if match := re.search(f"{message}: (.*)", str(error)):
                reason = f"{explanation} {match[1].strip()}"
                break
        raise UserError(f"{subject} cannot be converted: {reason}; {remedy}") from error
    finally:
        root.setLevel(level)
        root.filters, root.handlers = filters, handlers
    for op in operations.all_ops(model):
        if op.get_type_name() != "Parameter" and _COUNTER_NAME.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(op.get_name())  # so that `frontend.prepare` finds it unnamed
        # Without this mark the model also works after it was reshaped.
        if frontend.NO_FOLDING in op.get_rt_info():
            del op.get_rt_info()[frontend.NO_FOLDING]
    return model


def make_tracing_error(subject: str, error: BaseException) -> UserError:
    """Returns the error to raise if a model's code fails on its example inputs."""
    return UserError(
        f"{subject} cannot be traced on its example inputs: "
        f"{find_reason(error, type(error).__name__)}; "
        "pass arguments that it takes"
    )


def set_inputs(model: ov.Model, inputs: Sequence[InputSpec], *, subject: str) -> None:
    """Names and reshapes the model's inputs, in order; a UserError says that it refuses a shape."""
    for port, spec in zip(model.inputs, inputs, strict=True):
        port.get_node().set_friendly_name(spec.name)
        port.set_names({spec.name})
    try:
        model.reshape({i: ov.PartialShape(list(spec.shape)) for i, spec in enumerate(inputs)})
    except RuntimeError as error:
        raise UserError(
            f"{subject} does not work with the shapes of its example inputs: "
            f"{find_reason(error, 'its operations refuse them')}; pass others"
        ) from error


def flatten_function(
    function: Callable[..., Any], example_inputs: Any, subject: str
) -> FlatFunction:
    """Returns a function of the arrays among the nested arguments of another.

    Raises:
      UserError: there are no example inputs, or they are not the function's arguments.
    """
    signature = inspect.signature(function)
    advice = (
        f"its arguments are {', '.join(signature.parameters) or 'none'}: "
        "pass a tuple in their order, or a dict by name"
    )
    if example_inputs is None:
        raise UserError(f"{subject} is given without example_inputs; {advice}")
    try:
        if isinstance(example_inputs, dict):
            bound = signature.bind(**example_inputs)
        elif isinstance(example_inputs, tuple):
            bound = signature.bind(*example_inputs)
        else:
            bound = signature.bind(example_inputs)
    except TypeError as error:
        raise UserError(f"the example inputs do not fit {subject}: {error}; {advice}") from error
    leaves, tree = jax.tree_util.tree_flatten_with_path(list(bound.arguments.values()))
    example_arrays = {i: leaf for i, (_, leaf) in enumerate(leaves) if hasattr(leaf, "shape")}

    def flat(*arrays: Any) -> Any:
        array_by_leaf = dict(zip(example_arrays, arrays, strict=True))
        new_leaves = [array_by_leaf.get(i, example) for i, (_, example) in enumerate(leaves)]
        values = jax.tree.unflatten(tree, new_leaves)
        call = inspect.BoundArguments(signature, dict(zip(bound.arguments, values, strict=True)))
        return function(*call.args, **call.kwargs)

    inputs = []
    argument_names = list(bound.arguments)
    for i, array in example_arrays.items():
        # The first key is the argument: 'batch.v' is the entry 'v' of the argument 'batch'. The
        # entries of **keywords are called by their own names.
        argument_key, *keys = leaves[i][0]
        argument = argument_names[argument_key.idx]
        is_keywords = signature.parameters[argument].kind is inspect.Parameter.VAR_KEYWORD
        entry = jax.tree_util.keystr(tuple(keys), simple=True, separator=".")
        name = ".".join(filter(None, ("" if is_keywords else argument, entry)))
        inputs.append(InputSpec(name, tuple(array.shape)))
    return FlatFunction(flat, inputs, list(example_arrays.values()))
