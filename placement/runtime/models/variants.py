"""Static models of one model for several input shapes, each with a weight.

A model with dynamic inputs can be placed for several shapes at once. For example,
'x:1,3,224,224@9|x:8,3,224,224@1' stands for nine inferences of one image and one inference of eight
images. Every shape gives a static model (a variant) whose operations have the same names, so that
one placement fits all of them. The latency of a placement is the weighted sum over the variants.

A decoder keeps the keys and values of earlier tokens in variables, and its inferences depend on
them. If a variable of the model grows, the shapes are therefore one session: every variant starts
with the state that one inference of each earlier variant leaves. With 'ids:1,128|ids:1,1@200' the
second variant computes the next token after a prompt of 128 tokens. All its 200 inferences count
with the latency of the first of them, although the state grows meanwhile.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13

from placement import files
from placement.errors import UserError
from placement.runtime.devices import reference_device
from placement.runtime.errors import raise_if_exhausted, summarise_error
from placement.runtime.models import colocation, frontend
from placement.runtime.models.fingerprint import quote_names

_WEIGHT = re.compile(r"(.*)@\s*([^@:;]*)", re.DOTALL)
_LIST_SCHEMA = [{"shapes": frontend.SHAPES_SCHEMA, "weight": int}]
_EXAMPLE = "--config.input_shapes='x:1,3,224,224@9|x:8,3,224,224@1'"
_SESSION_EXAMPLE = "--config.input_shapes='ids:1,128@1|ids:1,1@200'"


class WeightedShapes(NamedTuple):
    """The shapes of all dynamic inputs for one kind of inference."""

    input_shapes: str  # as `frontend.prepare` takes them
    weight: int  # the number of such inferences; 1 if there are no other shapes

    def describe(self) -> str:
        """Returns a text such as '9 x images:1,3,224,224'."""
        return f"{self.weight} x {self.input_shapes}"


class Variant(NamedTuple):
    """The static model for one of the shapes."""

    shapes: WeightedShapes
    model: ov.Model  # from `frontend.prepare`


def parse_weighted_shapes(text: str) -> tuple[WeightedShapes, ...]:
    """Parses 'x:1,3,224,224@9|x:8,3,224,224@1'; a shape without a weight has weight 1.

    Args:
      text: the setting; also JSON as `format_weighted_shapes` writes it, or the path of a .json
        file with such content.

    Raises:
      UserError: a weight is not a whole number from 1, a shape is empty, the only shape has a
        weight, or the JSON is invalid.
    """
    setting = text
    if text.endswith(".json"):
        content = files.read_bytes(text, remedy="set input_shapes to the path of a JSON file")
        text = content.decode(errors="replace").strip()
    pairs: list[tuple[str, str | None]]
    if text.startswith("["):
        pairs = [
            (frontend.format_shapes(entry["shapes"]), str(entry["weight"]))
            for entry in frontend.parse_json_shapes(text, _LIST_SCHEMA, setting)
        ]
    elif text.startswith("{"):
        shapes = frontend.parse_json_shapes(text, frontend.SHAPES_SCHEMA, setting)
        pairs = [(frontend.format_shapes(shapes), None)]
    else:
        matches = [(entry, _WEIGHT.fullmatch(entry)) for entry in text.split("|")]
        pairs = [(match[1], match[2]) if match else (entry, None) for entry, match in matches]
    parsed = []
    for shapes, weight in pairs:
        weight = weight and weight.strip()
        if weight is not None and not (weight.isdecimal() and int(weight) > 0):
            raise UserError(
                f"input_shapes gives {shapes.strip()!r} the weight {weight!r}; a weight is a whole "
                f"number of inferences from 1, such as {_EXAMPLE}"
            )
        if len(pairs) > 1 and not shapes.strip():
            raise UserError(
                f"input_shapes={text!r} has an empty shape beside a '|'; give shapes on both "
                f"sides, such as {_EXAMPLE}"
            )
        if len(pairs) == 1 and weight is not None:
            raise UserError(
                f"input_shapes={text!r} gives a weight to the only shape; leave '@{weight}' "
                f"out, or add another shape, such as {_EXAMPLE}"
            )
        parsed.append(WeightedShapes(shapes.strip(), int(weight or 1)))
    return tuple(parsed)


def format_weighted_shapes(entries: Sequence[tuple[Mapping[str, Sequence[int]], int]]) -> str:
    """Returns shapes by name and their weights as `parse_weighted_shapes` takes them."""
    texts = [frontend.format_shapes(shapes) for shapes, _ in entries]
    if not any(text.startswith("{") for text in texts):
        return "|".join(
            f"{text}@{weight}" for text, (_, weight) in zip(texts, entries, strict=True)
        )
    listed = [
        {
            "shapes": {name: list(map(int, sizes)) for name, sizes in shapes.items()},
            "weight": weight,
        }
        for shapes, weight in entries
    ]
    return json.dumps(listed)


def prepare_variants(
    model: ov.Model,
    shapes: Sequence[WeightedShapes],
    draw_inputs: Callable[[ov.Model], Sequence[np.ndarray]],
) -> tuple[Variant, ...]:
    """Returns the prepared model of each shape.

    Args:
      model: a model. It is not changed.
      shapes: the shapes, in the order of the session if a variable of the model grows.
      draw_inputs: returns the inputs of a static model; it is called only if a variable grows.

    Raises:
      UserError: see `frontend.prepare`; or the models of two shapes have different operations; or a
        state that one shape leaves does not fit the next.
    """
    variants = tuple(
        Variant(entry, frontend.prepare(model, entry.input_shapes)) for entry in shapes
    )
    for variant in variants[1:]:
        _check_operations(variants[0], variant)
    if len(variants) > 1 and colocation.has_growing_state(variants[0].model):
        initial = _read_initial_values(variants[0].model)
        state = {variable: content for variable, (_, content) in initial.items()}
        for variant in variants:
            _set_initial_values(variant, state)
            if variant is not variants[-1]:
                state = _run_once(variant, draw_inputs(variant.model))
    return variants


def _check_operations(first: Variant, variant: Variant) -> None:
    """Raises a UserError if the models of two shapes have different operations."""
    first_types, variant_types = (
        {op.get_friendly_name(): op.get_type_name() for op in model.get_ordered_ops()}
        for model in (first.model, variant.model)
    )
    differing = dict(first_types.items() ^ variant_types.items())
    if differing:
        raise UserError(
            f"the shapes {first.shapes.input_shapes!r} and {variant.shapes.input_shapes!r} have "
            f"different operations, so that no placement fits both: {quote_names(differing)}; "
            "place the model for one of them"
        )


def _read_initial_values(model: ov.Model) -> dict[str, tuple[ov.Node, np.ndarray]]:
    """Returns, for each variable, its ReadValue and the content that it starts with.

    Raises:
      UserError: a variable starts with another value than a constant.
    """
    values = {}
    for op in model.get_ordered_ops():
        if op.get_type_name() != "ReadValue":
            continue
        variable = op.get_attributes()["variable_id"]
        source = op.input_value(0).get_node() if op.inputs() else None
        constant = source
        if source is not None and source.get_type_name() == "Convert":  # stored in fewer bits
            constant = source.input_value(0).get_node()
        if source is None or constant is None or constant.get_type_name() != "Constant":
            raise UserError(
                f"variable {variable!r} does not start with a constant, so that its content cannot "
                "be carried from one shape to the next; place the model for one shape"
            )
        dtype = source.get_output_element_type(0).to_dtype()
        values[variable] = op, constant.get_data().astype(dtype)
    return values


def _set_initial_values(variant: Variant, state: Mapping[str, np.ndarray]) -> None:
    """Makes every variable of a model start with the given content, in a constant of its own.

    Raises:
      UserError: the content does not fit a variable.
    """
    for variable, (read, initial) in _read_initial_values(variant.model).items():
        content = state[variable]
        start_shape = list(initial.shape)
        # Only an axis that starts empty may grow.
        grown_shape = [
            size or grown for size, grown in zip(start_shape, content.shape, strict=True)
        ]
        if list(content.shape) != grown_shape:
            raise UserError(
                f"the state that earlier shapes leave in variable {variable!r} has shape "
                f"{list(content.shape)}, but with {variant.shapes.input_shapes!r} it starts with "
                f"{start_shape}; give shapes of one session, such as {_SESSION_EXAMPLE}"
            )
        name = f"{read.get_friendly_name()}/start"
        constant = opset13.constant(content.astype(initial.dtype), name=name)
        read.input(0).replace_source_output(constant.output(0))


def _run_once(variant: Variant, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Runs one inference on the reference device; returns the content of each variable after it.

    Raises:
      UserError: the device cannot run the model.
    """
    device = reference_device()
    try:
        compiled = ov.Core().compile_model(variant.model, device.name, dict(device.properties))
        request = compiled.create_infer_request()
        request.infer(list(inputs))
        return {state.name: np.array(state.state.data) for state in request.query_state()}
    except RuntimeError as error:
        raise_if_exhausted(error)
        raise UserError(
            f"the plain CPU cannot run the model with input_shapes "
            f"{variant.shapes.input_shapes!r}: {summarise_error(error)}; "
            "give shapes that it was made for"
        ) from error
