"""Submodels of a model that a placement cuts, for devices that work at the same time.

HETERO runs its submodels one after another. Here each device's operations, in the order in which
it is to run them, are cut into segments (`placement.analysis.segments` chooses the cuts). Each
segment becomes a model: it starts when all its inputs have arrived, and hands over all
its outputs when it ends. This module builds these models; `executor` runs them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime.models.operations import (
    computed_names,
    constant_names,
    ops_by_name,
    source_name,
)

# A tensor of the model: the friendly name of the operation that computes it, and which output.
TensorId = tuple[str, int]


class Segment(NamedTuple):
    """Operations that a device runs without a pause."""

    device: str
    ops: tuple[str, ...]  # friendly names, in an order that respects their dependencies


class Part(NamedTuple):
    """A segment together with its inputs and outputs in the model."""

    device: str
    ops: frozenset[str]  # friendly names, those of Results included
    inputs: tuple[TensorId, ...]  # tensors of other parts, and inputs of the model
    sent_tensors: tuple[TensorId, ...]  # tensors that other parts read
    model_outputs: tuple[int, ...]  # indices of the model's outputs that this part computes
    sources: tuple[int, ...]  # indices of the parts whose tensors this part reads


class TensorFormat(NamedTuple):
    """The layout and element type in which a tensor is handed from part to part."""

    axis_order: tuple[int, ...]  # the slowest axis first; () keeps the model's order
    element_type: ov.Type | None  # None keeps the model's type


MODEL_FORMAT = TensorFormat((), None)

_CHANNELS_LAST = (0, 2, 3, 1)

# Operations that the CPU plug-in runs with channels last, whatever the layout of their inputs.
_CHANNELS_LAST_TYPES = frozenset({"Convolution", "GroupConvolution", "Concat"})


class SplitModel(NamedTuple):
    """A model in parts; each part comes after the parts that it reads from."""

    parts: tuple[Part, ...]
    input_index: Mapping[str, int]  # friendly name of a Parameter -> index of the model's input


def split_model(model: ov.Model, segments: Sequence[Segment]) -> SplitModel:
    """Determines the parts that segments cut a model into.

    A Result belongs to the part that computes it. Constants, and operations computed from constants
    alone, are copied into every part that reads them. Segments that compute nothing are left out.

    Args:
      model: a model with unique friendly names (`frontend.prepare`). It is not changed.
      segments: every operation is in exactly one segment; Parameters, Results and constants may
        be in none. Their order is one in which they could run one after another.

    Raises:
      UserError: an operation is in no segment or in two, or the model has no such operation; a
        segment comes before one that it reads from; or a variable's ReadValue and Assign are in
        different segments.
    """
    constants = constant_names(model)
    op_by_name = ops_by_name(model)
    computed = computed_names(model)
    assert computed, "the model computes nothing"
    counts = Counter(name for segment in segments for name in set(segment.ops))
    wrong = [name for name in computed if name not in counts]
    wrong += [name for name, count in counts.items() if count > 1 or name not in op_by_name]
    if wrong:
        raise UserError(
            f"the segments do not have each operation of the model once, such as {wrong[0]!r}"
        )
    segment_of = {name: number for number, segment in enumerate(segments) for name in segment.ops}

    # Number the segments that compute something as parts 0, 1, ...
    segment_numbers = sorted({segment_of[name] for name in computed})
    part_numbers = {segment: part for part, segment in enumerate(segment_numbers)}
    part_of = {name: part_numbers[segment_of[name]] for name in computed}
    part_of_variable: dict[str, int] = {}
    for name, op in op_by_name.items():
        if op.get_type_name() == "Result":
            # A Result of an input or of a constant has no computing part: it goes to the first.
            part_of[name] = part_of.get(source_name(op.input(0)), 0)
        elif op.get_type_name() in ("ReadValue", "Assign"):
            variable = op.get_attributes()["variable_id"]
            if part_of_variable.setdefault(variable, part_of[name]) != part_of[name]:
                raise UserError(
                    f"the segments separate the operations of variable {variable!r}; put its "
                    "ReadValue and Assign, and the operations between them, into one"
                )

    # Find the tensors that cross between parts; the dictionaries serve as ordered sets.
    input_index = {op.get_friendly_name(): i for i, op in enumerate(model.get_parameters())}
    output_index = {op.get_friendly_name(): i for i, op in enumerate(model.get_results())}
    inputs: list[dict[TensorId, None]] = [{} for _ in segment_numbers]
    sent_tensors: list[dict[TensorId, None]] = [{} for _ in segment_numbers]
    sources: list[set[int]] = [set() for _ in segment_numbers]
    members: list[list[str]] = [[] for _ in segment_numbers]
    for name, op in op_by_name.items():
        if name not in part_of:
            continue
        part = part_of[name]
        members[part].append(name)
        for tensor in map(_tensor_id, op.input_values()):
            source = tensor[0]
            if source in constants or part_of.get(source) == part:
                continue
            inputs[part][tensor] = None
            if source not in input_index:
                sent_tensors[part_of[source]][tensor] = None
                sources[part].add(part_of[source])
    for part, source_parts in enumerate(sources):
        late_sources = [source for source in source_parts if source >= part]
        if late_sources:
            raise UserError(
                f"segment {segment_numbers[part]} reads from segment "
                f"{segment_numbers[late_sources[0]]}, which does not come before it; cut them so "
                "that they can run one after another"
            )
    parts = tuple(
        Part(
            device=segments[segment].device,
            ops=frozenset(members[part]),
            inputs=tuple(inputs[part]),
            sent_tensors=tuple(sent_tensors[part]),
            model_outputs=tuple(
                sorted(output_index[n] for n in members[part] if n in output_index)
            ),
            sources=tuple(sorted(sources[part])),
        )
        for part, segment in enumerate(segment_numbers)
    )
    return SplitModel(parts, input_index)


def build_submodels(
    model: ov.Model, parts: Sequence[Part], formats: Mapping[TensorId, TensorFormat]
) -> list[ov.Model]:
    """Builds the models of some parts of a split model.

    The inputs of a submodel are `Part.inputs`, in order. Its outputs are `Part.sent_tensors`, then
    the model's outputs among `Part.model_outputs`, in order. Weights are not copied.

    Args:
      model: the model that was split. It is not changed.
      parts: some or all of its parts.
      formats: the formats of tensors between parts; others are handed over as the model has them.
    """
    clone = model.clone()
    op_by_name, results, constants = ops_by_name(clone), clone.get_results(), constant_names(clone)
    submodels: list[ov.Model] = []
    axis_order: tuple[int, ...]
    element_type: ov.Type | None
    for part in parts:  # parts of one clone have no operation in common
        part_ops = [op_by_name[name] for name in part.ops]

        # Replace every tensor that the part reads by a new input, converted back to the model's
        # type and axis order. The plug-in cancels such a transpose against the layout that it
        # prefers.
        parameters = []
        plain_values, pinned_values = {}, {}
        for tensor in part.inputs:
            name, index = tensor
            output = op_by_name[name].output(index)
            axis_order, element_type = formats.get(tensor, MODEL_FORMAT)
            shape = output.get_partial_shape()
            if axis_order:
                shape = ov.PartialShape([shape[axis] for axis in axis_order])
            parameter = ops.parameter(
                shape, element_type or output.get_element_type(), name=f"{name}:{index}"
            )
            value = parameter.output(0)
            if element_type is not None:
                value = ops.convert(value, output.get_element_type()).output(0)
            if axis_order:
                value = ops.transpose(value, np.argsort(axis_order)).output(0)
            parameters.append(parameter)
            plain_values[tensor] = value
            pinned_values[tensor] = _pin_axis_order(value, axis_order)
        for op in part_ops:
            follows_layout = op.get_type_name() not in _CHANNELS_LAST_TYPES
            _redirect_inputs(op, pinned_values if follows_layout else plain_values)

        # Compute each Concat on permuted axes. The plug-in itself keeps a Concat's channels last
        # only next to a convolution. Otherwise it transposes slowly if other parts hand over all
        # inputs. It removes pairs of transposes that undo each other.
        permuted_concats = {}
        for op in part_ops:
            if op.get_type_name() != "Concat":
                continue
            tensor = _tensor_id(op.output(0))
            axis_order = formats.get(tensor, MODEL_FORMAT).axis_order
            if axis_order:
                axis = axis_order.index(op.get_attributes()["axis"] % len(axis_order))
                order = np.array(axis_order)
                permuted = [ops.transpose(value, order) for value in op.input_values()]
                concat = ops.concat(permuted, axis)
                permuted_concats[tensor] = ops.transpose(concat, np.argsort(axis_order)).output(0)
        for op in part_ops:
            _redirect_inputs(op, permuted_concats)

        outputs = []
        for tensor in part.sent_tensors:
            name, index = tensor
            value = permuted_concats.get(tensor, op_by_name[name].output(index))
            axis_order, element_type = formats.get(tensor, MODEL_FORMAT)
            if axis_order and _combines_tensors(op_by_name[name], constants):
                value = _pin_axis_order(value, axis_order)
            if axis_order:
                value = ops.transpose(value, np.array(axis_order)).output(0)
            if element_type is not None:
                value = ops.convert(value, element_type).output(0)
            outputs.append(ops.result(value, name=f"{name}:{index}"))
        outputs += [results[i] for i in part.model_outputs]
        sinks = [op for op in part_ops if op.get_type_name() == "Assign"]
        submodels.append(ov.Model(outputs, sinks, parameters, "part"))
    return submodels


def _redirect_inputs(op: ov.Node, values: Mapping[TensorId, ov.Output]) -> None:
    """Lets an operation read the given values in place of the tensors with these ids."""
    for port in op.inputs():
        value = values.get(_tensor_id(port.get_source_output()))
        if value is not None:
            port.replace_source_output(value)


def _combines_tensors(op: ov.Node, constants: frozenset[str]) -> bool:
    """Returns whether `op`, or the operation that a chain of unary ones leads back to, is a sum.

    Any operation on several computed tensors counts as a sum. The plug-in fuses a sum with the
    convolution before it and then transposes the sent tensor slowly: 9 ms for 3 MB in f32, whereas
    computing the convolution takes 2 ms.
    """
    while op.get_type_name() not in _CHANNELS_LAST_TYPES:
        producers = [value.get_node() for value in op.input_values()]
        computed = [
            producer
            for producer in producers
            if producer.get_type_name() != "Constant"
            and producer.get_friendly_name() not in constants
        ]
        if len(computed) != 1:
            return len(computed) > 1
        (op,) = computed
    return False


def _pin_axis_order(value: ov.Output, axis_order: tuple[int, ...]) -> ov.Output:
    """Returns the same value, in memory with channels last if that is its axis order.

    A pooling or a sum takes its input in the layout that the operation before it left, so that the
    plug-in would transpose the value slowly. A depthwise 1x1 convolution with all weights one
    changes no value, but runs with channels last.
    """
    shape = value.get_partial_shape()
    if axis_order != _CHANNELS_LAST or shape[1].is_dynamic:
        return value
    ones = np.ones((shape[1].get_length(), 1, 1, 1, 1), np.float32)
    return ops.group_convolution(value, ones, [1, 1], [0, 0], [0, 0], [1, 1]).output(0)


def _tensor_id(output: ov.Output) -> TensorId:
    return output.get_node().get_friendly_name(), output.get_index()
