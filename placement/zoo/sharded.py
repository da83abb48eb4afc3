"""Networks of sharded matrix products, for several equal devices.

`synthetic:family=sharded_chain,size=4096,shards=4,layers=3` names such a graph. Matrices are cut
into `shards` x `shards` blocks. A product of two sharded matrices has one MatMul for every triple
of blocks, and one Add that sums the `shards` partial products of a block. The families are those of
the evaluation of DOPPLER (Yao et al. 2026, arXiv 2505.23131), drawn from their description:

    sharded_chain         X <- X W, `layers` times
    sharded_ffn           X <- Relu(X W + b), `layers` times, then a Softmax over rows
    sharded_transformer   `layers` blocks of attention and a feed-forward network, each with a
                          residual and a normalisation; a block of rows is a part of the batch, a
                          block of columns a group of heads

X is square, of float32, and so is W, but in the transformer's feed-forward network, whose inner
size is four times as large. Every MatMul holds its block of W, so that a block that several devices
use counts on each of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from placement import arguments
from placement.errors import UserError
from placement.graphs import opgraph
from placement.types import OpGraph

_BYTES = 4  # of an element
_INNER = 4  # inner size of the transformer's feed-forward network, in sizes
_MAX_OPS = 20_000
_DEFAULTS: dict[str, int] = {"size": 4096, "shards": 4, "layers": 1}

_Blocks = list[list[int]]  # the operations that hold the blocks of a matrix, by row and column


class _Block(NamedTuple):
    """The size of the blocks of a matrix."""

    rows: int
    columns: int


class _Builder:
    """Collects operations in topological order."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.shapes: list[tuple[int, int]] = []
        self.flops: list[float] = []
        self.weight_bytes: list[int] = []
        self.edges: list[tuple[int, int]] = []

    def add(
        self,
        op_type: str,
        inputs: Sequence[int],
        block: _Block,
        flops_per_element: float = 1.0,
        weight_elements: int = 0,
    ) -> int:
        """Adds an operation whose output is one block; returns its number."""
        op = len(self.types)
        self.types.append(op_type)
        self.shapes.append((block.rows, block.columns))
        self.flops.append(flops_per_element * block.rows * block.columns)
        self.weight_bytes.append(_BYTES * weight_elements)
        self.edges += [(source, op) for source in inputs]
        return op

    def matrix(self, op_type: str, operands: Sequence[_Blocks], block: _Block) -> _Blocks:
        """Adds an element-wise operation for every block."""
        rows, columns = len(operands[0]), len(operands[0][0])
        return [
            [self.add(op_type, [x[i][j] for x in operands], block) for j in range(columns)]
            for i in range(rows)
        ]

    def multiply_weights(self, x: _Blocks, inner: int, block: _Block) -> _Blocks:
        """Adds a product of a sharded matrix and new sharded weights.

        Args:
          x: the left operand.
          inner: columns of a block of it.
          block: of the result, which has as many blocks as `x`.
        """
        result: _Blocks = []
        for row in x:
            result.append([])
            for _ in row:
                products = [
                    self.add("MatMul", [op], block, 2.0 * inner, inner * block.columns)
                    for op in row
                ]
                if len(products) > 1:
                    products = [self.add("Add", products, block, len(products) - 1.0)]
                result[-1] += products
        return result

    def normalise(self, x: _Blocks, op_type: str, block: _Block) -> _Blocks:
        """Adds a statistic for every row of blocks, and an operation that applies it to a block."""
        result = []
        for row in x:
            statistic = self.add("ReduceMean", row, _Block(block.rows, 1), block.columns * len(row))
            result.append([self.add(op_type, [op, statistic], block) for op in row])
        return result


def build(text: str) -> OpGraph:
    """Builds the graph that a text describes; the text is its name.

    Args:
      text: 'synthetic:family=FAMILY,size=ROWS,shards=BLOCKS,layers=LAYERS'. Every argument but the
        family is optional; `size` must be divisible by `shards`.

    Raises:
      UserError: an argument is not valid, or the graph would have more than 20,000 operations.
    """
    values = arguments.split_arguments(text)[1]
    family = values["family"]
    sizes = arguments.convert_arguments(text, values, {"family": family, **_DEFAULTS})
    size, shards, layers = sizes["size"], sizes["shards"], sizes["layers"]
    if size % shards:
        raise UserError(f"graph {text!r} cuts {size} rows into {shards} shards; set a divisor")
    # A transformer's block has six products and less than 32 other operations for each block.
    num_ops = layers * (6 * shards + 32) * shards**2
    arguments.check_range(f"graph {text!r}: number of operations", num_ops, 1, _MAX_OPS)
    builder, block = _Builder(), _Block(size // shards, size // shards)
    x = [[builder.add("Parameter", (), block, 0.0) for _ in range(shards)] for _ in range(shards)]
    FAMILIES[family](builder, x, block, layers)
    senders, receivers = zip(*builder.edges, strict=True)
    return opgraph.make_graph(
        name=text,
        op_names=[f"op{i}" for i in range(len(builder.types))],
        op_types=builder.types,
        senders=senders,
        receivers=receivers,
        edge_bytes=[_BYTES * builder.shapes[s][0] * builder.shapes[s][1] for s in senders],
        output_shapes=builder.shapes,
        flops=builder.flops,
        weight_bytes=builder.weight_bytes,
    )


def chain(builder: _Builder, x: _Blocks, block: _Block, layers: int) -> None:
    """A chain of products of sharded matrices."""
    for _ in range(layers):
        x = builder.multiply_weights(x, block.columns, block)


def ffn(builder: _Builder, x: _Blocks, block: _Block, layers: int) -> None:
    """A feed-forward network of sharded matrices, with a Softmax at the end."""
    for _ in range(layers):
        x = builder.multiply_weights(x, block.columns, block)
        x = builder.matrix("Relu", [builder.matrix("Add", [x], block)], block)
    builder.normalise(x, "Softmax", block)


def transformer(builder: _Builder, x: _Blocks, block: _Block, layers: int) -> None:
    """Transformer blocks of sharded matrices."""
    scores = _Block(block.rows, block.rows)
    inner = _Block(block.rows, _INNER * block.columns)
    for _ in range(layers):
        query, key, value = (builder.multiply_weights(x, block.columns, block) for _ in range(3))
        attended: _Blocks = []
        for i, row in enumerate(x):
            attended.append([])
            for j in range(len(row)):
                operands = [query[i][j], key[i][j]]
                product = builder.add("MatMul", operands, scores, 2.0 * block.columns)
                operands = [builder.add("Softmax", [product], scores), value[i][j]]
                attended[-1].append(builder.add("MatMul", operands, block, 2.0 * block.rows))
        projected = builder.multiply_weights(attended, block.columns, block)
        x = builder.normalise(builder.matrix("Add", [x, projected], block), "Multiply", block)
        hidden = builder.matrix("Gelu", [builder.multiply_weights(x, block.columns, inner)], inner)
        projected = builder.multiply_weights(hidden, inner.columns, block)
        x = builder.normalise(builder.matrix("Add", [x, projected], block), "Multiply", block)


FAMILIES: dict[str, Callable[[_Builder, _Blocks, _Block, int], None]] = {
    "sharded_chain": chain,
    "sharded_ffn": ffn,
    "sharded_transformer": transformer,
}
