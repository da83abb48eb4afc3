"""OpenVINO's converter of models that are Python objects: its call, its errors, its inputs."""

import contextlib
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import openvino as ov

from placement.errors import UserError
from placement.runtime.errors import why
from placement.runtime.models import frontend, operations

# What a front end names an operation that has no name: its type and a counter of this process.
_COUNTED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")


class Input(NamedTuple):
    """An input that a model is to have."""

    name: str
    shape: tuple[int, ...]  # -1 where it is unknown


class Flat(NamedTuple):
    """A function of arrays alone, made of one of nested arguments."""

    function: Callable[..., Any]  # of the arrays; numbers, flags and None are as in the examples
    inputs: list[Input]  # of each array
    arrays: list[Any]  # the examples' own


def convert(source: Any, *, subject: str, mend: str, **options: Any) -> ov.Model:
    """`ov.convert_model`, of whose operations the names and the folding are as a file's.

    Args:
      source: what it converts: a module, a program, a jaxpr.
      subject: what an error calls it.
      mend: how to mend it if it cannot be converted.
      options: of `ov.convert_model`.

    Raises:
      UserError: it cannot be traced or converted, in one line.
    """
    try:
        with _logging_kept():
            model = ov.convert_model(source, **options)
    except Exception as error:  # the source's own code runs, which may raise anything
        if error.__cause__ is not None:  # what tracing a module raised
            raise untraceable(subject, error.__cause__) from error
        raise UserError(f"{subject} cannot be converted: {_reason(error)}; {mend}") from error
    for op in operations.all_ops(model):
        if op.get_type_name() != "Parameter" and _COUNTED.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(op.get_name())  # as unnamed, for `frontend.prepare` to name
        if frontend.NO_FOLDING in op.get_rt_info():  # so that it works with other shapes too
            del op.get_rt_info()[frontend.NO_FOLDING]
    return model


def untraceable(subject: str, error: BaseException) -> UserError:
    """Makes what to raise where the code of a model fails on its example inputs."""
    return UserError(
        f"{subject} cannot be traced on its example inputs: {why(error, type(error).__name__)}; "
        "give arguments that it takes"
    )


def set_inputs(model: ov.Model, inputs: Sequence[Input], *, subject: str) -> None:
    """Gives the model's inputs names and shapes, in order.

    Raises:
      UserError: the model cannot have these shapes.
    """
    for port, given in zip(model.inputs, inputs, strict=True):
        port.get_node().set_friendly_name(given.name)
        port.set_names({given.name})
    try:
        model.reshape({i: ov.PartialShape(list(given.shape)) for i, given in enumerate(inputs)})
    except RuntimeError as error:
        raise UserError(
            f"{subject} does not work with the shapes of its example inputs: "
            f"{why(error, 'its operations refuse them')}; give shapes that it was made for"
        ) from error


def arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: of a tuple, a dict, or the only argument itself."""
    if isinstance(example_inputs, dict):
        return (), example_inputs
    return (example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)), {}


def flatten(function: Callable[..., Any], example_inputs: Any, subject: str) -> Flat:
    """A function of nested arguments as one of the arrays among them.

    Raises:
      UserError: there are no example inputs, or they are not the function's arguments.
    """
    signature = inspect.signature(function)
    bound = _bound(signature, example_inputs, subject)
    leaves, tree = jax.tree_util.tree_flatten_with_path(list(bound.arguments.values()))
    arrays = {i: leaf for i, (_, leaf) in enumerate(leaves) if hasattr(leaf, "shape")}

    def flat(*given: Any) -> Any:
        now = dict(zip(arrays, given, strict=True))
        values = jax.tree.unflatten(tree, [now.get(i, x) for i, (_, x) in enumerate(leaves)])
        call = inspect.BoundArguments(signature, dict(zip(bound.arguments, values, strict=True)))
        return function(*call.args, **call.kwargs)

    # The entries of **keywords go by their own names.
    kinds = signature.parameters
    names = ["" if kinds[n].kind is inspect.Parameter.VAR_KEYWORD else n for n in bound.arguments]
    inputs = [Input(_name(names, leaves[i][0]), tuple(array.shape)) for i, array in arrays.items()]
    return Flat(flat, inputs, list(arrays.values()))


def _bound(
    signature: inspect.Signature, example_inputs: Any, subject: str
) -> inspect.BoundArguments:
    names = ", ".join(signature.parameters) or "none"
    give = "give a tuple in their order, or a dict by name"
    if example_inputs is None:
        raise UserError(
            f"{subject} is given without example_inputs; its arguments are {names}: {give}"
        )
    args, kwargs = arguments(example_inputs)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UserError(
            f"the example inputs do not fit {subject}: {error}; its arguments are {names}: {give}"
        ) from error


def _name(names: Sequence[str], path: Sequence[Any]) -> str:
    """Of a leaf of the list of arguments: 'batch.v' is the entry 'v' of the argument 'batch'."""
    within = jax.tree_util.keystr(tuple(path[1:]), simple=True, separator=".")
    return ".".join(filter(None, (names[path[0].idx], within)))


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    """The converter silences the root logger, and leaves it so where it fails."""
    root = logging.getLogger()
    level, filters, handlers = root.level, list(root.filters), list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.filters, root.handlers = filters, handlers


def _reason(error: Exception) -> str:
    """The operations that have no rule, else those whose rule fails, else what is said first."""
    for told, reason in (
        ("No conversion rule found for operations", "OpenVINO has no rule for"),
        ("Conversion is failed for", "OpenVINO's rule fails for"),
    ):
        found = re.search(f"{told}: (.*)", str(error))
        if found:
            return f"{reason} {found[1].strip()}"
    return why(error, type(error).__name__)
