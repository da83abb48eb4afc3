"""What a policy sees of an operation: the node features of Duan et al. 2024, section 2.2.

Five blocks of columns, in this order; each can be switched off, for the ablation:

    op_type       one column a type of `OP_TYPES`, the last for every other type; one of them is 1
    degrees       log(1 + in-degree), log(1 + out-degree); parallel edges count each
    fractal       the fractal dimension, see `placement.graphs.fractal`
    positional    the sinusoids of `placement.graphs.positional`
    output_shape  log(1 + size) of the last five dimensions, the innermost in the last column;
                  0 where the shape has fewer, further outer dimensions are left out

The logarithms (a departure) keep a batch of images from drowning a one-hot column.
"""

import numpy as np

from placement.errors import UserError
from placement.graphs.fractal import fractal_dimension
from placement.graphs.positional import positional_encoding
from placement.types import OpGraph

# Fixed, so that one policy's parameters fit every graph.
OP_TYPES: tuple[str, ...] = (
    *("Parameter", "Result", "Constant", "Convert", "ConvertLike", "ReadValue", "Assign"),
    *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul", "Einsum"),
    *("Add", "Subtract", "Multiply", "Divide", "Mod", "Power", "Maximum", "Minimum"),
    *("SquaredDifference", "Abs", "Negative", "Sqrt", "Exp", "Log", "Sin", "Cos", "Erf", "Floor"),
    *("Relu", "PRelu", "Clamp", "Sigmoid", "Tanh", "Gelu", "Swish", "HSwish", "Elu", "SoftPlus"),
    *("Softmax", "MaxPool", "AvgPool", "AdaptiveAvgPool"),
    *("BatchNormInference", "MVN", "NormalizeL2", "LRN", "FakeQuantize", "Interpolate"),
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd", "TopK", "CumSum"),
    *("ScaledDotProductAttention", "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence"),
    *("Loop", "TensorIterator", "If"),
    *("ShapeOf", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split"),
    *("VariadicSplit", "Slice", "StridedSlice", "Gather", "GatherND", "ScatterUpdate", "Pad"),
    *("Broadcast", "Tile", "Range", "Select", "Equal", "Less", "Greater", "LogicalAnd"),
    "other",
)

_SHAPE_DIMS = 5
_TYPE_INDEX = {op_type: index for index, op_type in enumerate(OP_TYPES)}


def node_features(
    graph: OpGraph,
    *,
    op_type: bool = True,
    degrees: bool = True,
    fractal: bool = True,
    positional: bool = True,
    output_shape: bool = True,
) -> np.ndarray:
    """Concatenates the blocks that are switched on, in the order of the keywords.

    Args:
      graph: the graph.
      op_type: len(OP_TYPES) columns.
      degrees: 2 columns.
      fractal: 1 column.
      positional: 16 columns.
      output_shape: 5 columns.

    Returns:
      float32 [N, F].

    Raises:
      UserError: every block is switched off.
    """
    blocks = [
        build(graph)
        for wanted, build in (
            (op_type, _one_hot_types),
            (degrees, _degrees),
            (fractal, lambda graph: fractal_dimension(graph)[:, None]),
            (positional, positional_encoding),
            (output_shape, _shapes),
        )
        if wanted
    ]
    if not blocks:
        raise UserError(
            "every block of node features is switched off; leave on at least one of op_type, "
            "degrees, fractal, positional, output_shape"
        )
    return np.concatenate(blocks, axis=1).astype(np.float32)


def _one_hot_types(graph: OpGraph) -> np.ndarray:
    columns = [_TYPE_INDEX.get(op_type, len(OP_TYPES) - 1) for op_type in graph.op_types]
    return np.eye(len(OP_TYPES), dtype=np.float32)[columns]


def _degrees(graph: OpGraph) -> np.ndarray:
    ends = (graph.receivers, graph.senders)
    return np.log1p([np.bincount(end, minlength=graph.num_ops) for end in ends]).T


def _shapes(graph: OpGraph) -> np.ndarray:
    sizes = np.zeros((graph.num_ops, _SHAPE_DIMS))
    for row, shape in zip(sizes, graph.output_shapes, strict=True):
        if shape:
            row[-len(shape) :] = shape[-_SHAPE_DIMS:]
    return np.log1p(sizes)
