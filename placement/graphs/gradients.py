"""Rules that derive the gradients of an operation's inputs from those of its outputs.

A rule says for one type of operation which inputs have a gradient, which tensors of the forward
pass the gradient reads (and so keeps in memory until then), and its FLOPs, counted as
`placement.runtime.models.extract` counts the forward pass. For y = f(x), with dy the gradient of y:

    Convolution   dx is a convolution of dy with the filters, dw one of x with dy: each has the
                  FLOPs of the forward operation
    MatMul        dA = dY B', dB = A' dY: each has the FLOPs of the forward operation
    Sigmoid       dx = dy * y * (1 - y): 3 for each element
    Tanh          dx = dy * (1 - y * y): 3
    Relu          dx = dy where y > 0: 1
    Softmax       dx = y * (dy - sum(dy * y)): 4
    Gelu          dx = dy * (Phi(x) + x * phi(x)): 11
    MVN           dx = (dy - mean(dy) - n * mean(dy * n)) / deviation, n = y: 7

The gradient of a broadcast input is a sum, one FLOP for each element of the output.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """The gradient of one type of operation."""

    # The types of the operations that compute it: one for each input that has a gradient, the last
    # for all further ones; '' if the output's gradient is passed on as it is.
    op_types: tuple[str, ...]
    ports: tuple[int, ...] | None = None  # inputs that have a gradient; None: every input
    joint: bool = False  # one operation computes the gradients of all inputs
    elementwise: bool = False  # of the output's size, before it is summed to the input's
    reads_inputs: tuple[bool, bool] = (False, False)  # the input itself, and the other inputs
    reads_output: bool = False
    # An operation's FLOPs are a multiple of those of the forward operation, plus so many for each
    # element of the output's gradient, and of the input's.
    forward: float = 0.0
    per_output: float = 0.0
    per_input: float = 0.0


_ITSELF, _OTHER_INPUTS, _ALL_INPUTS = (True, False), (False, True), (True, True)

# Elementwise functions of one input, and the FLOPs for each element of the gradient.
_FLOPS_FROM_OUTPUT = {
    **dict.fromkeys(("Exp", "Relu"), 1),
    "Sqrt": 2,
    **dict.fromkeys(("Elu", "Selu", "Sigmoid", "Tanh"), 3),
    **dict.fromkeys(("LogSoftmax", "Softmax"), 4),
}
_FLOPS_FROM_INPUT = {
    "Log": 1,
    **dict.fromkeys(("Abs", "Clamp", "Cos", "Cosh", "Sin", "Sinh"), 2),
    **dict.fromkeys(("HSigmoid", "HardSigmoid"), 3),
    **dict.fromkeys(("Atan", "Erf", "HSwish", "SoftSign"), 4),
    "SoftPlus": 5,
    "Swish": 9,
    "Gelu": 11,
    "Mish": 15,
}
# Cells, sequences and other operations whose gradients one operation computes, and their inputs
# that have a gradient.
_JOINT_PORTS = {
    "LSTMCell": (0, 1, 2, 3, 4, 5),
    **dict.fromkeys(("GRUCell", "RNNCell"), (0, 1, 2, 3, 4)),
    "LSTMSequence": (0, 1, 2, 4, 5, 6),
    **dict.fromkeys(("GRUSequence", "RNNSequence"), (0, 1, 3, 4, 5)),
    "ScaledDotProductAttention": (0, 1, 2),
    **dict.fromkeys(("BatchNormInference", "GroupNormalization"), (0, 1, 2)),
    **dict.fromkeys(("PRelu", "RMS", "RMSNorm"), (0, 1)),
}


_READS_ALL = Rule((), (0,), reads_inputs=_ITSELF, reads_output=True)
# Rules of operations whose gradient has the same name with 'Grad' appended.
_NAMED_AFTER_FORWARD = {
    **{
        op_type: Rule((), (0,), reads_output=True, per_output=flops)
        for op_type, flops in _FLOPS_FROM_OUTPUT.items()
    },
    **{
        op_type: Rule((), (0,), reads_inputs=_ITSELF, per_output=flops)
        for op_type, flops in _FLOPS_FROM_INPUT.items()
    },
    **{
        op_type: Rule((), ports, joint=True, reads_inputs=_ALL_INPUTS, reads_output=True, forward=2)
        for op_type, ports in _JOINT_PORTS.items()
    },
    **dict.fromkeys(("AvgPool", "AdaptiveAvgPool"), Rule((), (0,), forward=1)),
    "MaxPool": _READS_ALL._replace(forward=1),
    "LRN": _READS_ALL._replace(forward=2),
    "MVN": _READS_ALL._replace(per_output=7),
    "NormalizeL2": _READS_ALL._replace(per_output=5),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _READS_ALL._replace(per_input=2)),
    **dict.fromkeys(("Slice", "StridedSlice", "GatherElements", "GatherND"), Rule((), (0,))),
}


def _product(*op_types: str) -> Rule:
    return Rule(op_types, (0, 1), reads_inputs=_OTHER_INPUTS, forward=1)


def _binary(op_type: str, reads_inputs: tuple[bool, bool], per_output: float) -> Rule:
    return Rule((op_type,), (0, 1), False, True, reads_inputs, per_output=per_output)


RULES: dict[str, Rule] = {
    "MatMul": _product("MatMul"),
    "Convolution": _product("ConvolutionBackpropData", "ConvolutionBackpropFilter"),
    "ConvolutionBackpropData": _product("Convolution", "ConvolutionBackpropFilter"),
    "GroupConvolution": _product("GroupConvolutionBackpropData", "GroupConvolutionBackpropFilter"),
    "GroupConvolutionBackpropData": _product("GroupConvolution", "GroupConvolutionBackpropFilter"),
    "Add": Rule(("",), (0, 1), elementwise=True),
    "Subtract": Rule(("", "Negative"), (0, 1), elementwise=True, per_output=1),
    "Multiply": _binary("Multiply", _OTHER_INPUTS, 1),
    "Divide": _binary("DivideGrad", _ALL_INPUTS, 2),
    "Maximum": _binary("MaximumGrad", _ALL_INPUTS, 2),
    "Minimum": _binary("MinimumGrad", _ALL_INPUTS, 2),
    "Power": _binary("PowerGrad", _ALL_INPUTS, 3),
    "SquaredDifference": _binary("SquaredDifferenceGrad", _ALL_INPUTS, 3),
    "Select": Rule(("Select",), (1, 2), elementwise=True, reads_inputs=_OTHER_INPUTS, per_output=1),
    "Negative": Rule(("Negative",), (0,), per_output=1),
    "ReduceMean": Rule(("Broadcast",), (0,), per_input=1),
    "ReduceSum": Rule(("Broadcast",), (0,)),
    **dict.fromkeys(("Broadcast", "Tile"), Rule(("ReduceSum",), (0,), per_output=1)),
    "Gather": Rule(("ScatterUpdate",), (0,), reads_inputs=_OTHER_INPUTS, per_output=1),
    "Pad": Rule(("Slice",), (0,)),
    "Concat": Rule(("VariadicSplit",), joint=True),
    **dict.fromkeys(("Split", "VariadicSplit"), Rule(("Concat",), (0,))),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), Rule(("Reshape",), (0,))),
    **{op_type: Rule((op_type,), (0,)) for op_type in ("Convert", "Transpose", "DepthToSpace")},
    "SpaceToDepth": Rule(("DepthToSpace",), (0,)),
    **dict.fromkeys(("FakeQuantize", "Identity", "Result"), Rule(("",), (0,))),
    **{
        op_type: rule._replace(op_types=(f"{op_type}Grad",))
        for op_type, rule in _NAMED_AFTER_FORWARD.items()
    },
}

# No gradient passes these: their outputs are whole numbers, flags or piecewise constant.
STOPS = frozenset(
    (
        *("ShapeOf", "Range", "NonZero", "Equal", "NotEqual", "Less", "LessEqual", "Greater"),
        *("GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "LogicalXor", "Floor"),
        *("Ceiling", "Round", "Sign", "FloorMod", "Mod", "OneHot", "ReadValue", "Assign"),
        *("IsFinite", "IsInf", "IsNaN", "Eye", "RandomUniform"),
    )
)
