"""Node features: the columns of each operation for policies (Duan et al. 2024, section 2.2).

Blocks of columns, in this order; a policy reads some of them:

    op_type       one column for each of `OP_TYPES`, the last for every other type; the column
                  of the operation's type is 1
    member_types  the same columns; of a merged operation, the mean over its members
    number        the operation's number, unscaled
    degrees       log(1 + in-degree), log(1 + out-degree), counting parallel edges
    fractal       how fast the operation's neighbourhood grows, see `fractal_dimension`
    positional    sinusoids of the operation's position, see `positional_encoding`
    output_shape  log(1 + size) of the last five dimensions, the innermost in the last column;
                  0 if the shape has fewer, and further outer dimensions are left out

Departure: the logarithms, which keep a batch of images from drowning a one-hot column.
`member_types` and `number` are the features of the authors' code, the others those of the paper,
`DEFAULT_BLOCKS`.
"""

import itertools
from collections.abc import Callable, Collection, Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement import arguments
from placement.errors import UserError
from placement.graphs import dag
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

_NUM_WAVES, _MAX_WAVELENGTH = 4, 10_000.0  # in units of 2 pi
_SHAPE_DIMS = 5
_EXACT_LIMIT = 2_000  # operations; the N * N distances are in memory
# Eight hops see past the branches of usual networks (an Inception block is 5 deep) and stay near
# linear in N.
_MAX_RADIUS = 8
_BLOCK_NODES = 2_000  # nodes whose balls grow together: limits memory, does not change results
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


def positional_encoding(graph: OpGraph) -> np.ndarray:
    """Encodes the position of each operation in the computation by sinusoids.

    A position p becomes K sines and K cosines of geometrically spaced wavelengths (Vaswani et al.
    2017, section 3.5),

        sin(p / 10000 ** (k / K)),  cos(p / 10000 ** (k / K)),    k = 0 .. K - 1.

    Two positions are encoded: the index in the topological order, which tells operations of
    parallel branches apart, and the level, which does not depend on how the operations are numbered
    (a departure). Neither is divided by the size of the graph, so that neighbours differ equally in
    all graphs.

    Returns:
      float32 [N, 4 K], K = 4, in [-1, 1]: sines then cosines of the index, then those of the level.
    """
    columns = []
    level = dag.levels(graph.num_ops, graph.senders, graph.receivers)
    for position in (np.argsort(dag.topological_order(graph)), level):
        angles = position[:, None] / _MAX_WAVELENGTH ** (np.arange(_NUM_WAVES) / _NUM_WAVES)
        columns += [np.sin(angles), np.cos(angles)]
    return np.concatenate(columns, axis=1).astype(np.float32)


def fractal_dimension(graph: OpGraph) -> np.ndarray:
    """Computes the fractal dimension of each operation (Duan et al. 2024, section 2.2).

    On the undirected graph let B_v(r) be the number of nodes within r hops of v, itself included.
    If B_v(r) grows like r ** d, log B_v(r) is a line over log r with slope d. The result is the
    least-squares slope over the radii r = 1 .. R_v,

        d_v = sum_r (x_r - mean x) * log B_v(r) / sum_r (x_r - mean x) ** 2,    x_r = log r,

    where R_v is the eccentricity of v in its connected component, beyond which B_v is constant.
    With fewer than two radii d_v is 0, as in the authors' code. Departure: in graphs of more than
    `_EXACT_LIMIT` operations R_v is at most `_MAX_RADIUS`, as all eccentricities take O(N * E).

    Returns:
      float64 [N].
    """
    # bool [N, N]: the nodes within one hop of each, itself included.
    nodes = np.arange(graph.num_ops)
    rows = np.concatenate([nodes, graph.senders, graph.receivers])
    columns = np.concatenate([nodes, graph.receivers, graph.senders])
    ones = np.ones(len(rows), bool)
    neighbours = sparse.csr_array((ones, (rows, columns)), shape=(graph.num_ops, graph.num_ops))
    if graph.num_ops <= _EXACT_LIMIT:
        hops = csgraph.shortest_path(neighbours, method="D", unweighted=True)
        max_hops = int(hops[np.isfinite(hops)].max())
        # One bin for each node and distance. Unreachable nodes have a bin that is then cut off.
        bins = np.where(np.isfinite(hops), hops, max_hops + 1).astype(np.int64)
        bins += nodes[:, None] * (max_hops + 2)
        counts = np.bincount(bins.ravel(), minlength=graph.num_ops * (max_hops + 2))
        balls = np.cumsum(counts.reshape(-1, max_hops + 2)[:, :-1], axis=1)
    else:
        blocks = []
        for start in range(0, graph.num_ops, _BLOCK_NODES):
            ball = neighbours[start : start + _BLOCK_NODES]
            sizes = [np.ones(ball.shape[0], np.int64)]
            for hop in range(1, _MAX_RADIUS + 1):
                sizes.append(np.diff(ball.indptr))
                if hop < _MAX_RADIUS:
                    ball = ball @ neighbours
            blocks.append(np.stack(sizes, axis=1))
        balls = np.concatenate(blocks)

    # int [N, R + 1]: nodes within 0 .. R hops. A ball grows until R_v.
    is_growing = np.diff(balls, axis=1) > 0
    num_radii = is_growing.sum(axis=1)
    x = np.log(np.arange(1, balls.shape[1]))
    mean = np.where(is_growing, x, 0.0).sum(axis=1) / np.maximum(num_radii, 1)
    centred = np.where(is_growing, x - mean[:, None], 0.0)
    covariance = (centred * np.log(balls[:, 1:])).sum(axis=1)
    variance = (centred**2).sum(axis=1)
    return np.where(num_radii >= 2, covariance / np.where(num_radii >= 2, variance, 1.0), 0.0)


def _type_shares(graph: OpGraph, types: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the share [N, len(OP_TYPES)] of each type among the types of every operation."""
    sizes = np.array([len(op_types) for op_types in types])
    columns = [
        _TYPE_INDEX.get(op_type, len(OP_TYPES) - 1)
        for op_type in itertools.chain.from_iterable(types)
    ]
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
    "op_type": lambda graph: _type_shares(graph, [(op_type,) for op_type in graph.op_types]),
    "member_types": lambda graph: _type_shares(
        graph, graph.member_types or [(op_type,) for op_type in graph.op_types]
    ),
    "number": lambda graph: np.arange(graph.num_ops)[:, None],
    "degrees": _log_degrees,
    "fractal": lambda graph: fractal_dimension(graph)[:, None],
    "positional": positional_encoding,
    "output_shape": _log_shapes,
}
