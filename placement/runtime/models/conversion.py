"""Conversion of models that are Python objects: OpenVINO's converter, its errors, its inputs."""

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import openvino as ov

from placement.errors import UserError
from placement.runtime.errors import find_reason
from placement.runtime.models import frontend, operations

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


def convert(source: Any, *, subject: str, remedy: str, **options: Any) -> ov.Model:
    """Calls `ov.convert_model`, and makes names and folding the same as those of a model file.

    Args:
      source: a module, a program or a jaxpr.
      subject: the source's name in error messages.
      remedy: advice for the user if the source cannot be converted.
      options: further arguments of `ov.convert_model`.
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
