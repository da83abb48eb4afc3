"""Node features: the columns of each operation for policies (Duan et al. 2024, section 2.2).

Blocks of columns, in this order; a policy reads some of them:

    op_type       one column for each of `OP_TYPES`, the last for every other type; the column
                  of the operation's type is 1
    member_types  the same columns; of a merged operation, the mean over its members
    number        the operation's number, unscaled
    degrees       log(1 + in-degree), log(1 + out-degree), counting parallel edges
    fractal       the fractal dimension, see `placement.graphs.fractal`
    positional    sinusoids of the operation's position, see `positional_encoding`
    output_shape  log(1 + size) of the last five dimensions, the innermost in the last column;
                  0 if the shape has fewer, and further outer dimensions are left out

Departure: the logarithms, which keep a batch of images from drowning a one-hot column.
`member_types` and `number` are the features of the authors' code, the others those of the paper,
`DEFAULT_BLOCKS`.
"""

import itertools
from collections.abc import Callable, Collection, Iterable

import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs import dag
from placement.graphs.fractal import fractal_dimension
from placement.types import OpGraph

DEFAULT_BLOCKS = ("op_type", "degrees", "fractal", "positional", "output_shape")

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

_MAX_WAVELENGTH = 10_000.0  # in units of 2 pi
_SHAPE_DIMS = 5
_TYPE_INDEX = {op_type: index for index, op_type in enumerate(OP_TYPES)}


def node_features(graph: OpGraph, blocks: Collection[str] = DEFAULT_BLOCKS) -> np.ndarray:
    """Concatenates blocks of columns, float32 [N, F], in the order of `BLOCKS`.

    Args:
      graph: the graph.
      blocks: keys of `BLOCKS`.

    Raises:
      UserError: no block is given.
    """
    if not blocks:
        raise UserError(
            "every block of node features is switched off; leave on at least one of "
            f"{', '.join(BLOCKS)}"
        )
    assert set(blocks) <= set(BLOCKS)
    columns = [build(graph) for name, build in BLOCKS.items() if name in blocks]
    return np.concatenate(columns, axis=1).astype(np.float32)


def parse_blocks(names: str) -> tuple[str, ...]:
    """Parses the names of blocks, joined by '+'; 'paper' stands for `DEFAULT_BLOCKS`.

    Raises:
      UserError: a block does not exist.
    """
    if names == "paper":
        return DEFAULT_BLOCKS
    blocks = tuple(filter(None, names.split("+")))
    for block in blocks:
        arguments.check_choice("feature", block, BLOCKS)
    return blocks


def positional_encoding(graph: OpGraph, *, num_waves: int = 4) -> np.ndarray:
    """Encodes the position of each operation in the computation by sinusoids.

    A position p becomes K sines and K cosines of geometrically spaced wavelengths (Vaswani et al.
    2017, section 3.5),

        sin(p / 10000 ** (k / K)),  cos(p / 10000 ** (k / K)),    k = 0 .. K - 1.

    Two positions are encoded: the index in the topological order, which tells operations of
    parallel branches apart, and the level, which does not depend on how the operations are numbered
    (a departure). Neither is divided by the size of the graph, so that neighbours differ equally in
    all graphs.

    Args:
      graph: the graph.
      num_waves: K.

    Returns:
      float32 [N, 4 K] in [-1, 1]: sines then cosines of the index, then those of the level.
    """
    columns = []
    for position in (np.argsort(dag.topological_order(graph)), dag.levels(graph)):
        angles = position[:, None] / _MAX_WAVELENGTH ** (np.arange(num_waves) / num_waves)
        columns += [np.sin(angles), np.cos(angles)]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _type_columns(op_types: Iterable[str]) -> list[int]:
    return [_TYPE_INDEX.get(op_type, len(OP_TYPES) - 1) for op_type in op_types]


def _one_hot_types(graph: OpGraph) -> np.ndarray:
    return np.eye(len(OP_TYPES), dtype=np.float32)[_type_columns(graph.op_types)]


def _mean_member_types(graph: OpGraph) -> np.ndarray:
    if not graph.member_types:
        return _one_hot_types(graph)
    sizes = np.array([len(types) for types in graph.member_types])
    columns = _type_columns(itertools.chain.from_iterable(graph.member_types))
    cells = np.repeat(np.arange(graph.num_ops), sizes) * len(OP_TYPES) + columns
    counts = np.bincount(cells, minlength=graph.num_ops * len(OP_TYPES))
    return counts.reshape(graph.num_ops, -1) / sizes[:, None]


def _log_degrees(graph: OpGraph) -> np.ndarray:
    ends = (graph.receivers, graph.senders)
    return np.log1p([np.bincount(end, minlength=graph.num_ops) for end in ends]).T


def _log_shapes(graph: OpGraph) -> np.ndarray:
    sizes = np.zeros((graph.num_ops, _SHAPE_DIMS))
    for row, shape in zip(sizes, graph.output_shapes, strict=True):
        if shape:
            row[-len(shape) :] = shape[-_SHAPE_DIMS:]
    return np.log1p(sizes)


BLOCKS: dict[str, Callable[[OpGraph], np.ndarray]] = {
    "op_type": _one_hot_types,
    "member_types": _mean_member_types,
    "number": lambda graph: np.arange(graph.num_ops)[:, None],
    "degrees": _log_degrees,
    "fractal": lambda graph: fractal_dimension(graph)[:, None],
    "positional": positional_encoding,
    "output_shape": _log_shapes,
}
