"""A model cut into submodels by a placement, for devices that run at the same time.

HETERO's submodels follow one another. Here a device's operations, in the order in which it is to
run them, are cut into segments, and each segment becomes a model of its own: it starts when all
its inputs are there and hands all its outputs over at its end. So what runs when is decided where
the segments are made (`placement.analysis.segments`); this module only builds them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime.models.operations import computed_names, constant_names

# A tensor: the friendly name of the operation that computes it, and which of its outputs.
Tensor = tuple[str, int]


class Segment(NamedTuple):
    """Operations that a device runs in one go."""

    device: str
    ops: tuple[str, ...]  # friendly names, in an order that respects their dependencies


class Part(NamedTuple):
    """A segment as it stands in the model."""

    device: str
    ops: frozenset[str]  # Results included
    reads: tuple[Tensor, ...]  # from other parts, or from inputs of the model
    hands_over: tuple[Tensor, ...]  # to other parts
    results: tuple[int, ...]  # the outputs of the model that it computes
    after: tuple[int, ...]  # parts that compute what it reads


class Format(NamedTuple):
    """How a tensor lies in memory while it is handed over."""

    order: tuple[int, ...]  # of its axes, the slowest first; () is the model's own
    element_type: ov.Type | None  # None is the model's own


PLAIN = Format((), None)

_CHANNELS_LAST = (0, 2, 3, 1)

# Operations that the CPU's plug-in runs on channels last whatever comes before them.
_FOLLOWING = frozenset({"Convolution", "GroupConvolution", "Concat"})


class Split(NamedTuple):
    """A model in parts; a part comes after those that it reads from."""

    parts: tuple[Part, ...]
    inputs: Mapping[str, int]  # friendly name of a Parameter: its index


def split(model: ov.Model, segments: Sequence[Segment]) -> Split:
    """How a model falls into parts.

    A Result belongs to the part that computes it; constants, and what is computed from nothing
    else, belong to each part that reads them.

    Args:
      model: with unique friendly names (`frontend.prepare`); left as it is.
      segments: every operation in exactly one of them, Parameters, Results and constants in one
        at most; in an order in which they could run one after another.

    Raises:
      UserError: an operation is in no segment or in two, or is none of the model's; a segment
        comes before one that it reads from; one part has a variable's Assign and another its
        ReadValue; the model computes nothing.
    """
    constant = constant_names(model)
    nodes = {op.get_friendly_name(): op for op in model.get_ordered_ops()}
    kind = {name: op.get_type_name() for name, op in nodes.items()}
    of: dict[str, int] = {}
    for number, segment in enumerate(segments):
        for name in segment.ops:
            if name not in nodes:
                raise UserError(f"the segments name {name!r}, no operation of the model")
            if of.setdefault(name, number) != number:
                raise UserError(f"{name!r} is in two segments; leave it in one")
    computed = computed_names(model)
    missing = [name for name in computed if name not in of]
    if missing:
        raise UserError(f"no segment has operation {missing[0]!r}; give every operation one")
    if not computed:
        raise UserError("the model computes nothing, so that there is nothing to cut")
    used = sorted({of[name] for name in computed})
    numbers = {old: new for new, old in enumerate(used)}
    part_of = {name: numbers[of[name]] for name in computed}
    for name, op in nodes.items():
        if kind[name] == "Result":  # a Result of an input or a constant goes to the first part
            source = op.input_value(0).get_node().get_friendly_name()
            part_of[name] = part_of.get(source, 0)
    _check_variables(nodes, part_of)
    return _split(model, {i: segments[i].device for i in used}, part_of, constant)


def _check_variables(nodes: Mapping[str, ov.Node], part_of: Mapping[str, int]) -> None:
    variables: dict[str, int] = {}
    for name, op in nodes.items():
        if op.get_type_name() in ("ReadValue", "Assign"):
            variable = op.get_attributes()["variable_id"]
            if variables.setdefault(variable, part_of[name]) != part_of[name]:
                raise UserError(
                    f"the segments separate the operations of variable {variable!r}; "
                    "put its ReadValue and Assign, and what is between them, into one"
                )


def _split(
    model: ov.Model, used: Mapping[int, str], part_of: Mapping[str, int], constant: frozenset[str]
) -> Split:
    """The parts, given those segments that compute anything and their devices."""
    numbers, devices = list(used), list(used.values())
    count = len(devices)
    inputs = {op.get_friendly_name(): i for i, op in enumerate(model.get_parameters())}
    results = {op.get_friendly_name(): i for i, op in enumerate(model.get_results())}
    reads: list[dict[Tensor, None]] = [{} for _ in devices]
    hands_over: list[dict[Tensor, None]] = [{} for _ in devices]
    after: list[set[int]] = [set() for _ in devices]
    members: list[list[str]] = [[] for _ in devices]
    for op in model.get_ordered_ops():
        name = op.get_friendly_name()
        if name not in part_of:
            continue
        part = part_of[name]
        members[part].append(name)
        for tensor in map(_tensor, op.input_values()):
            source = tensor[0]
            if source in constant or part_of.get(source) == part:
                continue
            reads[part][tensor] = None
            if source not in inputs:
                hands_over[part_of[source]][tensor] = None
                after[part].add(part_of[source])
    for part in range(count):
        late = [source for source in after[part] if source >= part]
        if late:
            raise UserError(
                f"segment {numbers[part]} reads from segment {numbers[late[0]]}, which does not "
                "come before it; cut them so that they can run one after another"
            )
    parts = tuple(
        Part(
            device=devices[part],
            ops=frozenset(members[part]),
            reads=tuple(reads[part]),
            hands_over=tuple(hands_over[part]),
            results=tuple(sorted(results[n] for n in members[part] if n in results)),
            after=tuple(sorted(after[part])),
        )
        for part in range(count)
    )
    return Split(parts, inputs)


def submodels(
    model: ov.Model, parts: Sequence[Part], formats: Mapping[Tensor, Format]
) -> list[ov.Model]:
    """The models of some parts of a split.

    Inputs are the tensors that a part reads, in its order. Outputs are the tensors that it hands
    over, in its order, then the model's outputs that it computes. Weights are not copied.

    Args:
      model: that was split; left as it is.
      parts: of the split.
      formats: of the tensors that are handed over; plain where there is none.
    """
    clone = model.clone()
    nodes = {op.get_friendly_name(): op for op in clone.get_ordered_ops()}
    results, constant = clone.get_results(), constant_names(clone)
    return [_submodel(nodes, results, part, formats, constant) for part in parts]


def _submodel(
    nodes: Mapping[str, ov.Node],
    results: Sequence[ov.Node],
    part: Part,
    formats: Mapping[Tensor, Format],
    constant: frozenset[str],
) -> ov.Model:
    own = [nodes[name] for name in part.ops]
    parameters = []
    values, kept = {}, {}
    for name, index in part.reads:
        output, format_ = nodes[name].output(index), formats.get((name, index), PLAIN)
        parameters.append(_parameter(output, format_, f"{name}:{index}"))
        values[name, index] = _unpacked(parameters[-1], output, format_)
        kept[name, index] = _kept_order(values[name, index], format_.order)
    for op in own:
        _redirect(op, values if op.get_type_name() in _FOLLOWING else kept)
    values.clear()
    for op in own:
        order = formats.get(_tensor(op.output(0)), PLAIN).order if op.outputs() else ()
        if op.get_type_name() == "Concat" and order:
            values[_tensor(op.output(0))] = _reordered(op, order)
    for op in own:
        _redirect(op, values)
    outputs = []
    for name, index in part.hands_over:
        value = values.get((name, index), nodes[name].output(index))
        format_ = formats.get((name, index), PLAIN)
        if format_.order and _sums(nodes[name], constant):
            value = _kept_order(value, format_.order)
        packed = _packed(value, format_)
        outputs.append(ops.result(packed, name=f"{name}:{index}"))
    outputs += [results[i] for i in part.results]
    sinks = [op for op in own if op.get_type_name() == "Assign"]
    return ov.Model(outputs, sinks, parameters, "part")


def _redirect(op: ov.Node, values: Mapping[Tensor, ov.Output]) -> None:
    """Lets an operation read other values in place of some tensors."""
    for port in op.inputs():
        value = values.get(_tensor(port.get_source_output()))
        if value is not None:
            port.replace_source_output(value)


def _reordered(concat: ov.Node, order: tuple[int, ...]) -> ov.Output:
    """What a Concat computes, worked out on axes in the order in which the plug-in would keep it.

    By itself the plug-in chooses so only where a convolution stands beside it, and transposes for
    long where all that it reads is handed over by other parts. Transposes that undo each other it
    takes out.
    """
    axis = order.index(concat.get_attributes()["axis"] % len(order))
    inputs = [ops.transpose(source, np.array(order)) for source in concat.input_values()]
    return ops.transpose(ops.concat(inputs, axis), np.argsort(order)).output(0)


def _packed(value: ov.Output, format_: Format) -> ov.Output:
    """A value as it is handed over."""
    if format_.order:
        value = ops.transpose(value, np.array(format_.order)).output(0)
    if format_.element_type is not None:
        value = ops.convert(value, format_.element_type).output(0)
    return value


def _parameter(like: ov.Output, format_: Format, name: str) -> ov.Node:
    """An input for a value that is handed over."""
    shape = like.get_partial_shape()
    if format_.order:
        shape = ov.PartialShape([shape[axis] for axis in format_.order])
    return ops.parameter(shape, format_.element_type or like.get_element_type(), name=name)


def _unpacked(parameter: ov.Node, like: ov.Output, format_: Format) -> ov.Output:
    """The value that is handed over, as the model has it."""
    value = parameter.output(0)
    if format_.element_type is not None:
        value = ops.convert(value, like.get_element_type()).output(0)
    if format_.order:
        value = ops.transpose(value, np.argsort(format_.order)).output(0)
    return value


def _sums(op: ov.Node, constant: frozenset[str]) -> bool:
    """Whether an operation gives, unary ones after it aside, a sum or the like of several tensors.

    The plug-in fuses it with a convolution before it, and then transposes for long what is handed
    over: 9 ms for 3 MB in f32, which the convolution itself takes 2 ms to compute.
    """
    while op.get_type_name() not in _FOLLOWING:
        sources = [value.get_node() for value in op.input_values()]
        computed = [
            source
            for source in sources
            if source.get_type_name() != "Constant" and source.get_friendly_name() not in constant
        ]
        if len(computed) != 1:
            return len(computed) > 1
        (op,) = computed
    return False


def _kept_order(value: ov.Output, order: tuple[int, ...]) -> ov.Output:
    """The value, where the plug-in would transpose it for long.

    A pooling, or a sum, takes its input in the order of axes in which the operation before it left
    it. So a convolution comes before it, which keeps the order: one weight a channel, all ones.
    """
    shape = value.get_partial_shape()
    if order != _CHANNELS_LAST or shape[1].is_dynamic:
        return value
    ones = np.ones((shape[1].get_length(), 1, 1, 1, 1), np.float32)
    return ops.group_convolution(value, ones, [1, 1], [0, 0], [0, 0], [1, 1]).output(0)


def _tensor(output: ov.Output) -> Tensor:
    return output.get_node().get_friendly_name(), output.get_index()
