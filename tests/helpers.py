"""Graphs small enough to work through by hand, and random ones for property tests."""

import itertools

import numpy as np

from placement.graphs import opgraph
from placement.types import OpGraph

_SOURCE_TYPES = ("Parameter", "Constant")
_INNER_TYPES = ("MatMul", "Add", "ShapeOf", "Gather", "Concat", "Convert", "Reshape")


def chain(n: int) -> OpGraph:
    """op0 -> op1 -> ... -> op(n-1); edge i carries 10 * (i + 1) bytes."""
    return _build("chain", n, [(i, i + 1) for i in range(n - 1)])


def diamond() -> OpGraph:
    """op0 -> op1 -> op3 and op0 -> op2 -> op3: edges 0-1, 0-2, 1-3, 2-3.

    op0 writes one tensor of 10 bytes that both branches read; op1 and op2 write 30 and 40 bytes.
    """
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    return _build("diamond", 4, edges, edge_bytes=[10, 10, 30, 40])


def fork_join(branches: int, length: int = 1) -> OpGraph:
    """op0 forks into `branches` chains of `length` operations, which join in the last operation.

    Branch b holds the operations 1 + b * length to (b + 1) * length; every tensor has 10 bytes.
    """
    last = branches * length + 1
    edges = []
    for branch in range(branches):
        path = [0, *range(1 + branch * length, 1 + (branch + 1) * length), last]
        edges += itertools.pairwise(path)
    return _build("fork_join", last + 1, edges, edge_bytes=[10] * len(edges))


def random_dag(
    rng: np.random.Generator,
    n: int,
    *,
    edge_probability: float = 0.3,
    colocated: float = 0.0,
) -> OpGraph:
    """A random graph whose numbering is no topological order, with outputs read several times.

    Args:
      rng: consumed.
      n: operations; each has up to two outputs.
      edge_probability: of an edge between two operations; a sixth of the edges is doubled.
      colocated: share of operations that take the co-location number of a random other one.
    """
    rank = rng.permutation(n)
    joined = (rng.random((n, n)) < edge_probability) & (rank[:, None] < rank[None, :])
    senders, receivers = np.nonzero(joined)
    doubled = rng.random(len(senders)) < 1 / 6
    senders = np.concatenate([senders, senders[doubled]])
    receivers = np.concatenate([receivers, receivers[doubled]])
    tensors = 2 * senders + rng.integers(0, 2, len(senders))
    colocation = np.arange(n)
    moved = np.flatnonzero(rng.random(n) < colocated)
    colocation[moved] = rng.integers(0, n, len(moved))
    is_source = ~np.isin(np.arange(n), receivers)
    return opgraph.make(
        name="random",
        op_names=[f"op{i}" for i in range(n)],
        op_types=np.where(
            is_source, rng.choice(_SOURCE_TYPES, n), rng.choice(_INNER_TYPES, n)
        ).tolist(),
        senders=senders,
        receivers=receivers,
        edge_bytes=rng.integers(0, 1000, 2 * n)[tensors],
        output_shapes=[rng.integers(1, 9, rng.integers(0, 5)).tolist() for _ in range(n)],
        flops=rng.integers(0, 4, n),  # few values, so that ties occur
        weight_bytes=rng.integers(0, 100, n),
        colocation=colocation,
        tensors=tensors,
    )


def _build(
    name: str, n: int, edges: list[tuple[int, int]], edge_bytes: list[int] | None = None
) -> OpGraph:
    senders, receivers = np.array(edges, np.int32).reshape(-1, 2).T
    return opgraph.make(
        name=name,
        op_names=[f"op{i}" for i in range(n)],
        op_types=["MatMul"] * n,
        senders=senders,
        receivers=receivers,
        edge_bytes=10 * (senders + 1) if edge_bytes is None else edge_bytes,
        output_shapes=[(1, i + 1) for i in range(n)],
        flops=100.0 * np.arange(1, n + 1),
        weight_bytes=np.arange(n),
    )
