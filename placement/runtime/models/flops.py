"""How many floating-point operations (FLOPs) one operation of an OpenVINO model does.

The convention, stated once:

- A multiply-add is 2; every other addition, multiplication, division, comparison and logical
  operation is 1, and so is one value of exp, log, sqrt, erf, tanh, a trigonometric function.
- Operations that only move, reinterpret or generate data (Reshape, Concat, Gather, Convert,
  Constant, ...) are 0.
- A convolution counts its padding as if it were data, and direct computation (no Winograd).
- Sizes come from the shapes in the model; a dimension that is unknown counts as its upper bound,
  or as 1 if it has none.
- Operations of a type not listed here have an `estimate`: 1 FLOP for every 4 bytes they read and
  write, as if they did one operation for each float32 moved.
"""

import math
from collections.abc import Callable

import openvino as ov

from placement.runtime.models import operations

# FLOPs for each element of the first output, read off the definition of the operation.
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

# Interpolated values of an output element: nothing, 4 neighbours, or 16, a multiply-add each.
_INTERPOLATION = {"nearest": 0, "linear": 8, "linear_onnx": 8, "cubic": 32}


def dims(port: ov.Output | ov.Input) -> tuple[int, ...]:
    """The shape at a port; an unknown dimension is its upper bound or 1, an unknown rank ()."""
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return ()
    # By index, as OpenVINO's iterators take many times as long.
    sizes = (shape[axis] for axis in range(len(shape)))
    # An unbounded dimension reports -1 as its greatest length.
    return tuple(max(d.get_max_length(), 1) if d.is_dynamic else d.get_length() for d in sizes)


def num_bytes(port: ov.Output | ov.Input) -> int:
    """Size of the tensor at a port in bytes, sub-byte types packed, shape as `dims` has it.

    A string counts as the 32 bytes of its handle.
    """
    return -(-math.prod(dims(port)) * port.get_element_type().bitwidth // 8)


def _convolution(op: ov.Node) -> float:
    """[N, I, ...] with filters [O, I, ...]: I x kernel multiply-adds for every output element."""
    return 2.0 * math.prod(dims(op.output(0))) * math.prod(dims(op.input(1))[1:])


def _group_convolution(op: ov.Node) -> float:
    """[N, G I, ...] with filters [G, O, I, ...]."""
    return 2.0 * math.prod(dims(op.output(0))) * math.prod(dims(op.input(1))[2:])


def _transposed_convolution(op: ov.Node) -> float:
    """[N, I, ...] with filters [I, O, ...]: every input element is scattered O x kernel times."""
    return 2.0 * math.prod(dims(op.input(0))) * math.prod(dims(op.input(1))[1:])


def _transposed_group_convolution(op: ov.Node) -> float:
    """[N, G I, ...] with filters [G, I, O, ...]."""
    return 2.0 * math.prod(dims(op.input(0))) * math.prod(dims(op.input(1))[2:])


def _deformable_convolution(op: ov.Node) -> float:
    """Inputs data, offsets, filters [O, I, ...]; the interpolation of samples is not counted."""
    return 2.0 * math.prod(dims(op.output(0))) * math.prod(dims(op.input(2))[1:])


def _matmul(op: ov.Node) -> float:
    """[..., M, K] @ [..., K, N]."""
    left = dims(op.input(0))
    inner = left[-2] if op.get_attributes()["transpose_a"] and len(left) > 1 else left[-1]
    return 2.0 * math.prod(dims(op.output(0))) * inner


def _einsum(op: ov.Node) -> float | None:
    """One multiply-add for each combination of indices; unknown beyond two plain operands."""
    terms = op.get_attributes()["equation"].split("->")[0].split(",")
    if len(terms) != 2 or any("." in term for term in terms):
        return None
    sizes = {
        label: size
        for port, term in zip(op.inputs(), terms, strict=True)
        for label, size in zip(term, dims(port), strict=True)
    }
    return 2.0 * math.prod(sizes.values())


def _attention(op: ov.Node) -> float:
    """Queries [..., L, E], keys [..., S, E], values [..., S, V]."""
    query, key, value = (dims(op.input(i)) for i in range(3))
    scores = math.prod(query[:-1]) * key[-2]
    return scores * (2.0 * query[-1] + 6 + 2.0 * value[-1])  # 6: scale and softmax


def _pool(op: ov.Node) -> float:
    """One comparison or addition for each position of the kernel."""
    return float(math.prod(dims(op.output(0))) * math.prod(op.get_attributes()["kernel"]))


def _mvn(op: ov.Node) -> float:
    """Mean and subtract; with the variance also square, sum and divide."""
    return math.prod(dims(op.output(0))) * (5.0 if op.get_attributes()["normalize_variance"] else 2)


def _lrn(op: ov.Node) -> float:
    """Square, sum over a window across each axis, scale, add, power, divide."""
    window = op.get_attributes()["size"] ** math.prod(dims(op.input(1)))
    return math.prod(dims(op.output(0))) * (5.0 + window)


def _interpolate(op: ov.Node) -> float | None:
    per_element = _INTERPOLATION.get(op.get_attributes()["mode"])
    return None if per_element is None else float(math.prod(dims(op.output(0))) * per_element)


def _embedding_bag(op: ov.Node) -> float:
    """One addition for each element of each row that is looked up."""
    return float(math.prod(dims(op.input(1))) * math.prod(dims(op.input(0))[1:]))


def _recurrent(gates: int, per_hidden: int) -> Callable[[ov.Node], float]:
    """A cell or a sequence of cells: gates x (input + hidden) multiply-adds a hidden unit.

    Args:
      gates: matrices multiplied with the input and with the hidden state.
      per_hidden: FLOPs a hidden unit beside the matrices: biases, activations, the state's update.
    """

    def count(op: ov.Node) -> float:
        attributes, inputs = op.get_attributes(), dims(op.input(0))
        hidden = attributes["hidden_size"]
        # A cell reads [batch, features] and has no direction; a sequence [batch, steps, features].
        cells = math.prod(inputs[:-1]) * (
            2 if attributes.get("direction") == "bidirectional" else 1
        )
        return cells * hidden * (2.0 * gates * (inputs[-1] + hidden) + per_hidden)

    return count


# LSTM: 8 additions (two products and a bias a gate), 3 sigmoids, 2 tanh, 4 for state and output.
_LSTM = _recurrent(4, 26)
# GRU: 6 additions, 2 sigmoids, a tanh, 1 for the reset, 4 for the state.
_GRU = _recurrent(3, 20)
# RNN: 2 additions, an activation.
_RNN = _recurrent(1, 3)


def _body(op: ov.Node) -> float:
    """The costliest body times the trip count, where the model tells it; else one trip."""
    trips = 1 if op.get_type_name() == "If" else max(op.get_num_iterations(), 1)
    return trips * max(
        sum(known if (known := flops(inner)) is not None else estimate(inner) for inner in ops)
        for ops in (body.get_ops() for body in operations.bodies(op))
    )


def _per_output(count: float) -> Callable[[ov.Node], float]:
    return lambda op: count * math.prod(dims(op.output(0)))


def _per_input(count: float) -> Callable[[ov.Node], float]:
    return lambda op: count * math.prod(dims(op.input(0)))


_FLOPS: dict[str, Callable[[ov.Node], float | None]] = {
    **{kind: _per_output(count) for kind, count in _PER_OUTPUT_ELEMENT.items()},
    **{kind: _per_input(count) for kind, count in _PER_INPUT_ELEMENT.items()},
    **dict.fromkeys(_MOVEMENT, lambda op: 0.0),
    "AvgPool": _pool,
    "BinaryConvolution": _convolution,
    "Convolution": _convolution,
    "ConvolutionBackpropData": _transposed_convolution,
    "DeformableConvolution": _deformable_convolution,
    "Einsum": _einsum,
    "EmbeddingBagOffsets": _embedding_bag,
    "EmbeddingBagOffsetsSum": _embedding_bag,
    "EmbeddingBagPacked": _embedding_bag,
    "EmbeddingBagPackedSum": _embedding_bag,
    "EmbeddingSegmentsSum": _embedding_bag,
    "GRUCell": _GRU,
    "GRUSequence": _GRU,
    "GroupConvolution": _group_convolution,
    "GroupConvolutionBackpropData": _transposed_group_convolution,
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
    """FLOPs of one execution of `op`, or None where its type, or how many axes its tensors have, is
    not known here.

    Of an If, Loop or TensorIterator: its body's (the costliest branch's) times the trip count, once
    where the count is not known; unknown operations inside are estimated.
    """
    kind = op.get_type_name()
    if kind not in _FLOPS or (kind not in _MOVEMENT and _has_unknown_rank(op)):
        return None
    return _FLOPS[kind](op)


def _has_unknown_rank(op: ov.Node) -> bool:
    ports = (*op.inputs(), *op.outputs())
    return any(port.get_partial_shape().rank.is_dynamic for port in ports)


def estimate(op: ov.Node) -> float:
    """FLOPs of an operation of unknown type: 1 for every 4 bytes that it reads and writes."""
    return sum(num_bytes(port) for port in (*op.inputs(), *op.outputs())) / 4
