"""Extraction of the project's `OpGraph` from an OpenVINO model, with counts of its FLOPs.

The convention of the counts:

- A multiply-add counts 2. Every other addition, multiplication, division, comparison and logical
  operation counts 1. So does one value of exp, log, sqrt, erf, tanh or a trigonometric function.
- Operations that only move, reinterpret or generate data (Reshape, Concat, Gather, Convert,
  Constant, ...) count 0.
- A convolution counts its padding as data, and is computed directly (no Winograd).
- Operations of a type that is not listed here have an `estimate`: 1 FLOP for every 4 bytes that
  they read and write, as if they did one operation for each float32 moved.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.graphs import opgraph
from placement.runtime.models import colocation
from placement.runtime.models.operations import constant_names, op_bodies
from placement.types import OpGraph

# FLOPs for each element of the first output, from the definition of the operation. Gelu, for
# example, is x / 2 * (1 + erf(x / sqrt 2)); its tanh approximation counts as the exact form.
_PER_OUTPUT_ELEMENT = {
    **dict.fromkeys(
        (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceiling", "Cos", "Cosh"),
            *("Erf", "Exp", "Floor", "IsFinite", "IsInf", "IsNaN", "Log", "LogicalNot", "Negative"),
            *("BitwiseNot", "Relu", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
            *("Add", "BitwiseAnd", "BitwiseLeftShift", "BitwiseOr", "BitwiseRightShift"),
            *("BitwiseXor", "CumSum", "Divide", "Equal", "FloorMod", "Greater", "GreaterEqual"),
            *("Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalXor", "Maximum", "Minimum"),
            *("Mod", "Multiply", "NotEqual", "Power", "Select", "Subtract"),
        ),
        1,
    ),
    # The four vectors of BatchNormInference fold into one multiply-add.
    **dict.fromkeys(("BatchNormInference", "Clamp", "PRelu", "SquaredDifference"), 2),
    **dict.fromkeys(("Elu", "GRN", "NormalizeL2", "SoftPlus", "SoftSign"), 3),
    **dict.fromkeys(("HardSigmoid", "HSigmoid", "RMS", "RMSNorm", "Selu", "Sigmoid"), 4),
    **dict.fromkeys(("Gelu", "HSwish", "LogSoftmax", "Mish", "Softmax", "Swish"), 5),
    **dict.fromkeys(("FakeQuantize", "GroupNormalization"), 7),
}

# FLOPs for each element of the first input.
_PER_INPUT_ELEMENT = {
    **dict.fromkeys(("ReduceL1", "ReduceL2"), 2),
    **dict.fromkeys(("AdaptiveAvgPool", "AdaptiveMaxPool", "ReduceLogicalAnd"), 1),
    **dict.fromkeys(("ReduceLogicalOr", "ReduceMax", "ReduceMean", "ReduceMin"), 1),
    **dict.fromkeys(("ReduceProd", "ReduceSum"), 1),
}

_MOVEMENT = (
    *("Assign", "BatchToSpace", "Broadcast", "Concat", "Constant", "Convert", "ConvertLike"),
    *("ConvertPromoteTypes", "DepthToSpace", "ExtractImagePatches", "Eye", "Gather"),
    *("GatherElements", "GatherND", "Identity", "OneHot", "Pad", "Parameter", "Range"),
    *("ReadValue", "ReorgYolo", "Reshape", "Result", "Reverse", "ReverseSequence", "Roll"),
    *("ScatterElementsUpdate", "ScatterNDUpdate", "ScatterUpdate", "ShapeOf", "ShuffleChannels"),
    *("Slice", "SliceScatter", "SpaceToBatch", "SpaceToDepth", "Split", "Squeeze"),
    *("StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit"),
)

# FLOPs for each element of the output: nothing, or a multiply-add for each of 4 or 16 neighbours.
_INTERPOLATION = {"nearest": 0, "linear": 8, "linear_onnx": 8, "cubic": 32}

# Matrices that a recurrent cell multiplies with its input and its state; FLOPs of a hidden unit
# without these products: biases, activations and the update of the state.
_RECURRENT = {
    **dict.fromkeys(("LSTMCell", "LSTMSequence"), (4, 26)),
    **dict.fromkeys(("GRUCell", "GRUSequence"), (3, 20)),
    **dict.fromkeys(("RNNCell", "RNNSequence"), (1, 3)),
}


def dims(port: ov.Output | ov.Input) -> tuple[int, ...]:
    """Returns the shape at a port; () if its rank is unknown.

    An unknown dimension is its upper bound, or 1 if it has none.
    """
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return ()
    # By index, because OpenVINO's iterators take many times as long.
    sizes = (shape[axis] for axis in range(len(shape)))
    # An unbounded dimension reports -1 as its greatest length.
    return tuple(max(d.get_max_length(), 1) if d.is_dynamic else d.get_length() for d in sizes)


def num_bytes(port: ov.Output | ov.Input) -> int:
    """Returns the size of the tensor at a port in bytes, with the shape that `dims` gives.

    Types of less than a byte are packed. A string counts as the 32 bytes of its handle.
    """
    return -(-math.prod(dims(port)) * port.get_element_type().bitwidth // 8)


def flops(op: ov.Node) -> float | None:
    """Returns the FLOPs of one execution of `op`; None if its type or a tensor's rank is unknown.

    An If, Loop or TensorIterator counts as its body (the costliest branch) times the trip count,
    or once if the count is unknown. Unknown operations inside are estimated.
    """
    op_type = op.get_type_name()
    if op_type in _MOVEMENT:
        return 0.0
    if any(port.get_partial_shape().rank.is_dynamic for port in (*op.inputs(), *op.outputs())):
        return None
    if bodies := op_bodies(op):
        num_trips = 1 if op_type == "If" else max(op.get_num_iterations(), 1)
        return num_trips * max(
            sum(count if (count := flops(inner)) is not None else estimate(inner) for inner in ops)
            for ops in (body.get_ops() for body in bodies)
        )
    num_outputs = math.prod(dims(op.output(0))) if op.get_output_size() else 0
    if op_type in _PER_OUTPUT_ELEMENT:
        return float(_PER_OUTPUT_ELEMENT[op_type] * num_outputs)
    shapes, attributes = [dims(port) for port in op.inputs()], op.get_attributes()
    if op_type in _PER_INPUT_ELEMENT:
        return float(_PER_INPUT_ELEMENT[op_type] * math.prod(shapes[0]))
    match op_type:
        case "Convolution" | "GroupConvolution":
            # Filters [O, I, ...], or [G, O, I, ...] in groups: each output element reads I x kernel
            # input elements.
            return 2.0 * num_outputs * math.prod(shapes[1][1 + op_type.startswith("Group") :])
        case "ConvolutionBackpropData" | "GroupConvolutionBackpropData":
            # A transposed convolution, with filters [I, O, ...], scatters each input element to
            # O x kernel output elements.
            kernel = shapes[1][1 + op_type.startswith("Group") :]
            return 2.0 * math.prod(shapes[0]) * math.prod(kernel)
        case "MatMul":  # [..., M, K] @ [..., K, N]
            left = shapes[0]
            is_transposed = attributes["transpose_a"] and len(left) > 1
            return 2.0 * num_outputs * left[-2 if is_transposed else -1]
        case "Einsum":  # a multiply-add for each combination of indices of two operands
            operands = attributes["equation"].split("->")[0].split(",")
            if len(operands) != 2 or any("." in operand for operand in operands):
                return None
            sizes: dict[str, int] = {}
            for shape, operand in zip(shapes, operands, strict=True):
                sizes.update(zip(operand, shape, strict=True))
            return 2.0 * math.prod(sizes.values())
        case "ScaledDotProductAttention":
            query, key, value = shapes[:3]  # [..., L, E], [..., S, E], [..., S, V]
            num_scores = math.prod(query[:-1]) * key[-2]
            return num_scores * (2.0 * query[-1] + 6 + 2.0 * value[-1])  # 6: scale and softmax
        case "AvgPool" | "MaxPool":  # a comparison or addition for each position of the kernel
            return float(num_outputs * math.prod(attributes["kernel"]))
        case "MVN":  # mean and subtract; with the variance also square, sum and divide
            return num_outputs * (5.0 if attributes["normalize_variance"] else 2.0)
        case "Interpolate" if attributes["mode"] in _INTERPOLATION:
            return float(num_outputs * _INTERPOLATION[attributes["mode"]])
        case _ if op_type in _RECURRENT:
            # num_matrices x (input + hidden) multiply-adds for each hidden unit and step.
            num_matrices, flops_per_unit = _RECURRENT[op_type]
            hidden = attributes["hidden_size"]
            # A cell reads [batch, features] and has no direction; a sequence [batch, steps, ...].
            num_directions = 2 if attributes.get("direction") == "bidirectional" else 1
            num_units = math.prod(shapes[0][:-1]) * num_directions * hidden
            return num_units * (2.0 * num_matrices * (shapes[0][-1] + hidden) + flops_per_unit)
    return None


def estimate(op: ov.Node) -> float:
    """Estimates the FLOPs of an operation of unknown type: 1 for every 4 bytes read or written."""
    return sum(num_bytes(port) for port in (*op.inputs(), *op.outputs())) / 4


class Extraction(NamedTuple):
    """The graph of a model, and how many of its FLOPs are estimates."""

    graph: OpGraph
    # Operation type -> the number of operations whose FLOPs were estimated from the bytes they move
    # (`estimate`), because the type is unknown.
    estimated: dict[str, int]


def op_graph(
    model: ov.Model,
    *,
    name: str,
    constants: bool = True,
) -> Extraction:
    """Returns the graph of a model's operations, in the order of `model.get_ordered_ops()`.

    Every input of every operation becomes an edge with the size of the tensor read. Inputs that
    read the same output have the same tensor number. An If, Loop or TensorIterator is one
    operation. Operations on constants alone run at compilation and have 0 FLOPs.

    These must share a device: a constant, or an operation on constants alone, and its first
    consumer; a Result and its producer; the sets of `colocation`, such as a ReadValue and its
    Assign.

    Args:
      model: a model with unique friendly names (`frontend.prepare`). Its dynamic dimensions count
        as `dims` says.
      name: the name of the graph.
      constants: True lists every operation, and each Constant has its own bytes. False leaves out
        constants and operations on constants alone; the bytes of a Constant then belong to the
        first listed operation that reads it, directly or through such operations.

    Raises:
      InvalidGraphError: two operations have the same name.
    """
    nodes = model.get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(nodes)}
    # The producers of each operation, one for each of its inputs, and its consumers, ascending.
    producers = [
        [index[value.get_node().get_instance_id()] for value in node.input_values()]
        for node in nodes
    ]
    consumers: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(producers):
        for source in dict.fromkeys(sources):
            consumers[source].append(i)
    known_names = constant_names(model)  # known before any request
    is_constant = [node.get_friendly_name() in known_names for node in nodes]

    # The owner of a constant is the first operation at run time that depends on it; all other
    # operations own themselves.
    owners = np.arange(len(nodes))
    for i in reversed(range(len(nodes))):
        if is_constant[i] and consumers[i]:
            owners[i] = owners[consumers[i][0]]

    flop_counts = np.zeros(len(nodes), dtype=np.float64)
    estimated: Counter[str] = Counter()
    weight_bytes = np.zeros(len(nodes), dtype=np.int64)
    for i, node in enumerate(nodes):
        if node.get_type_name() == "Constant":
            weight_bytes[i if constants else owners[i]] += num_bytes(node.output(0))
        if is_constant[i]:
            continue
        count = flops(node)
        if count is None:
            estimated[node.get_type_name()] += 1
            count = estimate(node)
        flop_counts[i] = count

    device_groups = np.arange(len(nodes))  # operations with equal numbers share a device
    for group in colocation.colocated_groups(model):
        device_groups[list(group)] = min(group)
    device_groups = device_groups[owners]
    for i, node in enumerate(nodes):
        if node.get_type_name() == "Result":
            device_groups[i] = device_groups[producers[i][0]]

    listed = [i for i in range(len(nodes)) if constants or not is_constant[i]]
    position = {i: k for k, i in enumerate(listed)}
    edges = [
        (position[sender], position[i], value)
        for i in listed
        for sender, value in zip(producers[i], nodes[i].input_values(), strict=True)
        if sender in position
    ]
    graph = opgraph.make_graph(
        name=name,
        op_names=[nodes[i].get_friendly_name() for i in listed],
        op_types=[nodes[i].get_type_name() for i in listed],
        senders=[sender for sender, _, _ in edges],
        receivers=[receiver for _, receiver, _ in edges],
        edge_bytes=[num_bytes(value) for _, _, value in edges],
        output_shapes=[
            dims(nodes[i].output(0)) if nodes[i].get_output_size() else () for i in listed
        ],
        flops=flop_counts[listed],
        weight_bytes=weight_bytes[listed],
        colocation=_number_distinct(device_groups[listed].tolist()),
        tensors=_number_distinct((sender, value.get_index()) for sender, _, value in edges),
    )
    return Extraction(graph, dict(estimated))


def _number_distinct(keys: Iterable[Hashable]) -> list[int]:
    """Returns a number for each key: 0, 1, ... in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
