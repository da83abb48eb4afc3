"""Counts of the floating-point operations (FLOPs) that an operation of an OpenVINO model does.

The convention:

- A multiply-add counts 2. Every other addition, multiplication, division, comparison and logical
  operation counts 1. So does one value of exp, log, sqrt, erf, tanh or a trigonometric function.
- Operations that only move, reinterpret or generate data (Reshape, Concat, Gather, Convert,
  Constant, ...) count 0.
- A convolution counts its padding as data, and is computed directly (no Winograd).
- Sizes come from the shapes in the model. An unknown dimension counts as its upper bound, or as 1
  if it has none.
- For operations of a type that is not listed here there is an `estimate`: 1 FLOP for every 4 bytes
  that they read and write, as if they did one operation for each float32 moved.
"""

import math
from collections.abc import Callable

import openvino as ov

from placement.runtime.models.operations import op_bodies

# FLOPs for each element of the first output, from the definition of the operation.
_PER_OUTPUT_ELEMENT: dict[str, float] = {
    # One operation or one function value.
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
    "Clamp": 2,  # two comparisons
    "PRelu": 2,  # comparison, multiply
    "SquaredDifference": 2,
    "Elu": 3,  # exp, subtract, multiply
    "SoftPlus": 3,  # exp, add, log
    "SoftSign": 3,  # abs, add, divide
    "HardSigmoid": 4,  # multiply, add, clamp
    "HSigmoid": 4,  # add, clamp, divide
    "Selu": 4,  # exp, subtract, two multiplications
    "Sigmoid": 4,  # negate, exp, add, divide
    "Gelu": 5,  # x / 2 * (1 + erf(x / sqrt 2)); the tanh approximation counts as the exact form
    "HSwish": 5,  # HSigmoid, multiply
    "Mish": 5,  # exp, add, log, tanh, multiply
    "Swish": 5,  # Sigmoid, multiply
    "BatchNormInference": 2,  # its four vectors fold into one multiply-add
    "NormalizeL2": 3,  # square, sum, divide
    "RMS": 4,  # square, sum, divide, scale
    "RMSNorm": 4,
    "GRN": 3,
    "Softmax": 5,  # maximum, subtract, exp, sum, divide
    "LogSoftmax": 5,  # maximum, subtract, exp, sum, subtract
    "GroupNormalization": 7,  # MVN, scale, shift
    "FakeQuantize": 7,  # subtract, multiply, round, multiply, add, clamp
}

# FLOPs for each element of the first input.
_PER_INPUT_ELEMENT: dict[str, float] = {
    "AdaptiveAvgPool": 1,
    "AdaptiveMaxPool": 1,
    "ReduceL1": 2,  # abs, add
    "ReduceL2": 2,  # square, add
    "ReduceLogicalAnd": 1,
    "ReduceLogicalOr": 1,
    "ReduceMax": 1,
    "ReduceMean": 1,
    "ReduceMin": 1,
    "ReduceProd": 1,
    "ReduceSum": 1,
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
    return -(-_num_elements(port) * port.get_element_type().bitwidth // 8)


def _num_elements(port: ov.Output | ov.Input) -> int:
    return math.prod(dims(port))


_Counter = Callable[[ov.Node], float | None]  # FLOPs of an operation, or None if it cannot tell


def _convolution(
    *, filters: int = 1, is_grouped: bool = False, is_transposed: bool = False
) -> _Counter:
    """Makes a counter of a convolution's multiply-adds.

    Each output element [N, O, ...] reads I x kernel input elements. If the convolution is
    transposed, each input element [N, I, ...] is scattered to O x kernel output elements.

    Args:
      filters: the index of the input with the filters [O, I, ...], or [I, O, ...] if transposed.
      is_grouped: whether the filters have an additional first axis of groups.
      is_transposed: whether it is a transposed convolution.
    """

    def count(op: ov.Node) -> float:
        kernel = dims(op.input(filters))[2 if is_grouped else 1 :]
        positions = _num_elements(op.input(0) if is_transposed else op.output(0))
        return 2.0 * positions * math.prod(kernel)

    return count


def _matmul(op: ov.Node) -> float:
    """Counts [..., M, K] @ [..., K, N]."""
    left = dims(op.input(0))
    inner = left[-2] if op.get_attributes()["transpose_a"] and len(left) > 1 else left[-1]
    return 2.0 * _num_elements(op.output(0)) * inner


def _einsum(op: ov.Node) -> float | None:
    """Counts one multiply-add for each combination of indices of two operands without '...'."""
    operands = op.get_attributes()["equation"].split("->")[0].split(",")
    if len(operands) != 2 or any("." in operand for operand in operands):
        return None
    sizes = {
        label: size
        for port, operand in zip(op.inputs(), operands, strict=True)
        for label, size in zip(operand, dims(port), strict=True)
    }
    return 2.0 * math.prod(sizes.values())


def _attention(op: ov.Node) -> float:
    """Counts queries [..., L, E], keys [..., S, E], values [..., S, V]."""
    query, key, value = (dims(op.input(i)) for i in range(3))
    num_scores = math.prod(query[:-1]) * key[-2]
    return num_scores * (2.0 * query[-1] + 6 + 2.0 * value[-1])  # 6: scale and softmax


def _pool(op: ov.Node) -> float:
    """Counts one comparison or addition for each position of the kernel."""
    return float(_num_elements(op.output(0)) * math.prod(op.get_attributes()["kernel"]))


def _mvn(op: ov.Node) -> float:
    """Counts mean and subtract; with the variance also square, sum and divide."""
    return _num_elements(op.output(0)) * (5.0 if op.get_attributes()["normalize_variance"] else 2)


def _lrn(op: ov.Node) -> float:
    """Counts square, sum over a window across each axis, scale, add, power, divide."""
    window = op.get_attributes()["size"] ** _num_elements(op.input(1))
    return _num_elements(op.output(0)) * (5.0 + window)


def _interpolate(op: ov.Node) -> float | None:
    per_element = _INTERPOLATION.get(op.get_attributes()["mode"])
    return None if per_element is None else float(_num_elements(op.output(0)) * per_element)


def _embedding_bag(op: ov.Node) -> float:
    """Counts one addition for each element of each row that is looked up."""
    return float(_num_elements(op.input(1)) * math.prod(dims(op.input(0))[1:]))


def _recurrent(num_gates: int, flops_per_unit: int) -> _Counter:
    """Makes a counter of a cell, or a sequence of cells.

    A hidden unit takes num_gates x (input + hidden) multiply-adds.

    Args:
      num_gates: the number of matrices multiplied with the input and with the hidden state.
      flops_per_unit: FLOPs of a hidden unit beside the matrix products: biases, activations, the
        update of the state.
    """

    def count(op: ov.Node) -> float:
        attributes, inputs = op.get_attributes(), dims(op.input(0))
        hidden = attributes["hidden_size"]
        # A cell reads [batch, features] and has no direction; a sequence [batch, steps, features].
        num_directions = 2 if attributes.get("direction") == "bidirectional" else 1
        num_cells = math.prod(inputs[:-1]) * num_directions
        return num_cells * hidden * (2.0 * num_gates * (inputs[-1] + hidden) + flops_per_unit)

    return count


# LSTM: 8 additions (two products and a bias a gate), 3 sigmoids, 2 tanh, 4 for state and output.
_LSTM = _recurrent(4, 26)
# GRU: 6 additions, 2 sigmoids, a tanh, 1 for the reset, 4 for the state.
_GRU = _recurrent(3, 20)
# RNN: 2 additions, an activation.
_RNN = _recurrent(1, 3)


def _body(op: ov.Node) -> float:
    """Counts the costliest body times the trip count, or once if the model does not state it."""
    num_trips = 1 if op.get_type_name() == "If" else max(op.get_num_iterations(), 1)
    return num_trips * max(
        sum(count if (count := flops(inner)) is not None else estimate(inner) for inner in ops)
        for ops in (body.get_ops() for body in op_bodies(op))
    )


def _per_output_element(count: float) -> _Counter:
    return lambda op: count * _num_elements(op.output(0))


def _per_input_element(count: float) -> _Counter:
    return lambda op: count * _num_elements(op.input(0))


_FLOPS: dict[str, _Counter] = {
    **{kind: _per_output_element(count) for kind, count in _PER_OUTPUT_ELEMENT.items()},
    **{kind: _per_input_element(count) for kind, count in _PER_INPUT_ELEMENT.items()},
    **dict.fromkeys(_MOVEMENT, lambda op: 0.0),
    "AvgPool": _pool,
    "BinaryConvolution": _convolution(),
    "Convolution": _convolution(),
    "ConvolutionBackpropData": _convolution(is_transposed=True),
    # Inputs data, offsets, filters; the interpolation of the samples is not counted.
    "DeformableConvolution": _convolution(filters=2),
    "Einsum": _einsum,
    "EmbeddingBagOffsets": _embedding_bag,
    "EmbeddingBagOffsetsSum": _embedding_bag,
    "EmbeddingBagPacked": _embedding_bag,
    "EmbeddingBagPackedSum": _embedding_bag,
    "EmbeddingSegmentsSum": _embedding_bag,
    "GRUCell": _GRU,
    "GRUSequence": _GRU,
    "GroupConvolution": _convolution(is_grouped=True),
    "GroupConvolutionBackpropData": _convolution(is_grouped=True, is_transposed=True),
    "If": _body,
    "Interpolate": _interpolate,
    "LRN": _lrn,
    "LSTMCell": _LSTM,
    "LSTMSequence": _LSTM,
    "Loop": _body,
    "MVN": _mvn,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "RNNCell": _RNN,
    "RNNSequence": _RNN,
    "ScaledDotProductAttention": _attention,
    "TensorIterator": _body,
}


def flops(op: ov.Node) -> float | None:
    """Returns the FLOPs of one execution of `op`; None if its type or a tensor's rank is unknown.

    An If, Loop or TensorIterator counts as its body (the costliest branch) times the trip count,
    or once if the count is unknown. Unknown operations inside are estimated.
    """
    op_type = op.get_type_name()
    if op_type not in _FLOPS:
        return None
    ports = (*op.inputs(), *op.outputs())
    if op_type not in _MOVEMENT and any(p.get_partial_shape().rank.is_dynamic for p in ports):
        return None
    return _FLOPS[op_type](op)


def estimate(op: ov.Node) -> float:
    """Estimates the FLOPs of an operation of unknown type: 1 for every 4 bytes read or written."""
    return sum(num_bytes(port) for port in (*op.inputs(), *op.outputs())) / 4
