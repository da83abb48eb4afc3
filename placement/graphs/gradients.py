"""How gradients pass operations: from those of the outputs to those of the inputs.

A rule tells, of one type of operation, which inputs have a gradient, what computing it reads beside
the gradient of the output (and so keeps in memory until then), and its FLOPs, counted as
`placement.runtime.models.flops` counts forwards. For y = f(x), with dy the gradient of y:

    Convolution   dx is a convolution of dy with the filters, dw one of x with dy: as many FLOPs
                  each as forwards
    MatMul        dA = dY B', dB = A' dY: as many FLOPs each as forwards
    Sigmoid       dx = dy * y * (1 - y): 3 for each element
    Tanh          dx = dy * (1 - y * y): 3
    Relu          dx = dy where y > 0: 1
    Softmax       dx = y * (dy - sum(dy * y)): 4
    Gelu          dx = dy * (Phi(x) + x * phi(x)): 11
    MVN           dx = (dy - mean(dy) - n * mean(dy * n)) / deviation, n = y: 7

What is broadcast forwards is summed backwards, one FLOP for each element that enters the sum.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """The gradient of one type of operation."""

    # The types of the operations that compute it: one for each input that has a gradient, the last
    # for all further ones; '' where it passes as it is.
    op_types: tuple[str, ...]
    ports: tuple[int, ...] | None = None  # inputs that have a gradient; None: every input
    joint: bool = False  # one operation computes the gradients of all inputs
    elementwise: bool = False  # of the output's size, before it is summed to the input's
    reads_inputs: tuple[bool, bool] = (False, False)  # the input itself, and the other ones
    reads_output: bool = False
    # FLOPs of an operation: so many times those of the operation forwards, and so many for each
    # element of the output's gradient, and of the input's.
    forward: float = 0.0
    per_output: float = 0.0
    per_input: float = 0.0


_OWN, _OTHERS, _BOTH = (True, False), (False, True), (True, True)


def _of_output(per_output: float) -> Rule:
    return Rule((), (0,), reads_output=True, per_output=per_output)


def _of_input(per_output: float) -> Rule:
    return Rule((), (0,), reads_inputs=_OWN, per_output=per_output)


# One input, with an operation called as the forward one with 'Grad' appended (as those of
# `_WHOLE` are).
_UNARY = {
    **dict.fromkeys(("Exp", "Relu"), _of_output(1)),
    **dict.fromkeys(("Sqrt",), _of_output(2)),
    **dict.fromkeys(("Elu", "Selu", "Sigmoid", "Tanh"), _of_output(3)),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _of_output(4)),
    **dict.fromkeys(("Log",), _of_input(1)),
    **dict.fromkeys(("Abs", "Clamp", "Cos", "Cosh", "Sin", "Sinh"), _of_input(2)),
    **dict.fromkeys(("HSigmoid", "HardSigmoid"), _of_input(3)),
    **dict.fromkeys(("Atan", "Erf", "HSwish", "SoftSign"), _of_input(4)),
    **dict.fromkeys(("SoftPlus",), _of_input(5)),
    **dict.fromkeys(("Swish",), _of_input(9)),
    **dict.fromkeys(("Gelu",), _of_input(11)),
    **dict.fromkeys(("Mish",), _of_input(15)),
    "AvgPool": Rule((), (0,), forward=1),
    "AdaptiveAvgPool": Rule((), (0,), forward=1),
    "MaxPool": Rule((), (0,), reads_inputs=_OWN, reads_output=True, forward=1),
    "LRN": Rule((), (0,), reads_inputs=_OWN, reads_output=True, forward=2),
    "MVN": Rule((), (0,), reads_inputs=_OWN, reads_output=True, per_output=7),
    "NormalizeL2": Rule((), (0,), reads_inputs=_OWN, reads_output=True, per_output=5),
    "ReduceMax": Rule((), (0,), reads_inputs=_OWN, reads_output=True, per_input=2),
    "ReduceMin": Rule((), (0,), reads_inputs=_OWN, reads_output=True, per_input=2),
    **dict.fromkeys(("Slice", "StridedSlice", "GatherElements", "GatherND"), Rule((), (0,))),
}


# Cells and sequences, of which one operation computes all gradients.
def _whole(ports: tuple[int, ...]) -> Rule:
    return Rule((), ports, joint=True, reads_inputs=_BOTH, reads_output=True, forward=2)


_WHOLE = {
    **dict.fromkeys(("LSTMCell",), _whole((0, 1, 2, 3, 4, 5))),
    **dict.fromkeys(("GRUCell", "RNNCell"), _whole((0, 1, 2, 3, 4))),
    **dict.fromkeys(("LSTMSequence",), _whole((0, 1, 2, 4, 5, 6))),
    **dict.fromkeys(("GRUSequence", "RNNSequence"), _whole((0, 1, 3, 4, 5))),
    **dict.fromkeys(("ScaledDotProductAttention",), _whole((0, 1, 2))),
    **dict.fromkeys(("BatchNormInference", "GroupNormalization"), _whole((0, 1, 2))),
    **dict.fromkeys(("PRelu", "RMS", "RMSNorm"), _whole((0, 1))),
}


def _product(*op_types: str) -> Rule:
    return Rule(op_types, (0, 1), reads_inputs=_OTHERS, forward=1)


def _binary(op_type: str, reads_inputs: tuple[bool, bool], per_output: float) -> Rule:
    return Rule((op_type,), (0, 1), False, True, reads_inputs, per_output=per_output)


_PASSES = Rule(("",), (0,))
RULES: dict[str, Rule] = {
    "MatMul": _product("MatMul"),
    "Convolution": _product("ConvolutionBackpropData", "ConvolutionBackpropFilter"),
    "ConvolutionBackpropData": _product("Convolution", "ConvolutionBackpropFilter"),
    "GroupConvolution": _product("GroupConvolutionBackpropData", "GroupConvolutionBackpropFilter"),
    "GroupConvolutionBackpropData": _product("GroupConvolution", "GroupConvolutionBackpropFilter"),
    "Add": Rule(("",), (0, 1), elementwise=True),
    "Subtract": Rule(("", "Negative"), (0, 1), elementwise=True, per_output=1),
    "Multiply": _binary("Multiply", _OTHERS, 1),
    "Divide": _binary("DivideGrad", _BOTH, 2),
    "Maximum": _binary("MaximumGrad", _BOTH, 2),
    "Minimum": _binary("MinimumGrad", _BOTH, 2),
    "Power": _binary("PowerGrad", _BOTH, 3),
    "SquaredDifference": _binary("SquaredDifferenceGrad", _BOTH, 3),
    "Select": Rule(("Select",), (1, 2), elementwise=True, reads_inputs=_OTHERS, per_output=1),
    "Negative": Rule(("Negative",), (0,), per_output=1),
    "ReduceMean": Rule(("Broadcast",), (0,), per_input=1),
    "ReduceSum": Rule(("Broadcast",), (0,)),
    **dict.fromkeys(("Broadcast", "Tile"), Rule(("ReduceSum",), (0,), per_output=1)),
    "Gather": Rule(("ScatterUpdate",), (0,), reads_inputs=_OTHERS, per_output=1),
    "Pad": Rule(("Slice",), (0,)),
    "Concat": Rule(("VariadicSplit",), joint=True),
    **dict.fromkeys(("Split", "VariadicSplit"), Rule(("Concat",), (0,))),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), Rule(("Reshape",), (0,))),
    **{same: Rule((same,), (0,)) for same in ("Convert", "Transpose", "DepthToSpace")},
    "SpaceToDepth": Rule(("DepthToSpace",), (0,)),
    **dict.fromkeys(("FakeQuantize", "Identity", "Result"), _PASSES),
    **{kind: rule._replace(op_types=(f"{kind}Grad",)) for kind, rule in (_UNARY | _WHOLE).items()},
}

# Their outputs are whole numbers, flags or piecewise constant: no gradient passes.
STOPS = frozenset(
    (
        *("ShapeOf", "Range", "NonZero", "Equal", "NotEqual", "Less", "LessEqual", "Greater"),
        *("GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "LogicalXor", "Floor"),
        *("Ceiling", "Round", "Sign", "FloorMod", "Mod", "OneHot", "ReadValue", "Assign"),
        *("IsFinite", "IsInf", "IsNaN", "Eye", "RandomUniform"),
    )
)
