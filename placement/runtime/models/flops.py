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

import openvino as ov

from placement.runtime.models.operations import op_bodies

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
        case (
            "ScaledDotProductAttention"
        ):  # queries [..., L, E], keys [..., S, E], values [..., S, V]
            query, key, value = shapes[:3]
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
            num_cells = math.prod(shapes[0][:-1]) * num_directions
            return (
                num_cells
                * hidden
                * (2.0 * num_matrices * (shapes[0][-1] + hidden) + flops_per_unit)
            )
    return None


def estimate(op: ov.Node) -> float:
    """Estimates the FLOPs of an operation of unknown type: 1 for every 4 bytes read or written."""
    return sum(num_bytes(port) for port in (*op.inputs(), *op.outputs())) / 4
