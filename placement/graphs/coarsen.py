"""Coarsening: operations that are to share a device become one, and placements are lifted back.

Four steps, each a map from operations to fewer of them:

1. Operations with equal `colocation` numbers merge. An extracted graph gives one number to a
   constant, its Convert and its consumer, and to a ReadValue and the Assign of its variable.
   Merging may close cycles (a -> b -> c with a, c co-located). A coarse operation runs whole, so b
   can run neither before nor after {a, c}: operations on a common cycle of the quotient (its
   strongly connected components) merge too. What is lost are placements that leave a class and
   come back to it; what remains costs what it did. A training graph that co-locates each forward
   operation with its backward one is such a case: it collapses around its deepest class.
2. Shape chains join a consumer: they are host arithmetic on a few integers, and apart from the
   operation whose shape they compute they only cause crossings. A chain is a ShapeOf and every
   operation of `SHAPE_TYPES` that reads only from chains and constants, and from a chain at least
   once. With several consumers, a chain goes where the one that comes first in topological order
   ends up. This keeps the graph acyclic: the place where operations end up, root(u), satisfies
   root(u) <= root(v) for every edge u -> v (root(u) = u < v <= root(v) outside the chains, and a
   minimum over such v inside), and equality means that u and v are merged.
3. A node joins its only successor when it is that successor's only predecessor, counting distinct
   neighbours in the current coarse graph (Duan et al. 2024, HSDAG; the rule is that of the
   authors' code). Merging such a pair alters no other node's count, so that one pass over all
   pairs, whole chains at once, is what repetition would give.
4. The coarse operations are numbered in topological order.

Every edge between different coarse operations stays, parallel ones too, with its tensor: the same
tensors cross under `lift` as in the coarse graph. Coarsening a coarse graph changes nothing.
"""

from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag, opgraph
from placement.types import Array, OpGraph

SHAPE_TYPES = frozenset(
    (
        *("ShapeOf", "Gather", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Convert", "Slice"),
        *("StridedSlice", "Split", "VariadicSplit", "Add", "Subtract", "Multiply", "Divide", "Mod"),
        *("FloorMod", "Floor", "Ceiling", "Power", "Maximum", "Minimum", "ReduceProd", "ReduceSum"),
        *("ReduceMax", "ReduceMin", "Equal", "NotEqual", "Less", "Greater", "LogicalAnd"),
        *("LogicalNot", "Select", "Broadcast", "Range", "NonZero", "Transpose", "Tile"),
        *("ScatterUpdate", "ScatterElementsUpdate"),
    )
)


class Coarsening(NamedTuple):
    """A coarse graph with M operations and E' edges, and how it came about."""

    graph: OpGraph
    assignment: np.ndarray  # int32 [N]: the coarse operation of each operation
    edges: np.ndarray  # int32 [E']: for each coarse edge, the index of the original edge it is


class _Quotient(NamedTuple):
    """An acyclic quotient whose parts are numbered in topological order."""

    parts: np.ndarray  # int32 [N]
    senders: np.ndarray  # int32 [Q], distinct edges
    receivers: np.ndarray  # int32 [Q]

    @property
    def num_parts(self) -> int:
        return int(self.parts.max()) + 1


def coarsen(graph: OpGraph) -> Coarsening:
    """Merges co-located operations, shape chains and chains, as the module docstring says.

    Of the coarse operation's attributes, flops and weight bytes are sums over its members; name
    and type are those of the member with the most flops (of several, the topologically last;
    members of shape chains and constants only where there is no other); the output shape is that
    of the topologically last member; `colocation` is `arange(M)`.

    Args:
      graph: a valid graph with N operations.

    Returns:
      The coarse graph, valid and with its operations numbered topologically, and the maps.
    """
    order = dag.topological_order(graph)
    shape_chain, constant = _shape_operations(graph, order)
    quotient = _merge_colocated(graph, order)
    quotient = _merge_shape_chains(graph, order, quotient, shape_chain, constant)
    quotient = _merge_chains(graph, order, quotient)
    return _build(graph, order, quotient.parts, auxiliary=shape_chain | constant)


def lift(assignment: Array, placement: Array) -> Array:
    """The placement of the original operations that a coarse placement stands for.

    Args:
      assignment: int32 [N], see `Coarsening`.
      placement: int32 [..., M], NumPy or JAX.

    Returns:
      int32 [..., N], of the same kind as `placement`.
    """
    chex.assert_rank(assignment, 1)
    return placement[..., assignment]


def _shape_operations(graph: OpGraph, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which operations belong to a shape chain, and which are constants: bool [N] each."""
    shape_chain = np.zeros(graph.num_ops, bool)
    constant = np.array([op_type == "Constant" for op_type in graph.op_types])
    starts, sources = dag.successors(graph.num_ops, graph.receivers, graph.senders)
    for op in order:
        op_type = graph.op_types[op]
        if op_type not in SHAPE_TYPES:
            continue
        inputs = sources[starts[op] : starts[op + 1]]
        is_constant = op_type == "Convert" and len(inputs) > 0 and constant[inputs].all()
        constant[op] |= is_constant
        reads_shapes = (shape_chain | constant)[inputs].all() and shape_chain[inputs].any()
        shape_chain[op] = op_type == "ShapeOf" or reads_shapes
    return shape_chain, constant


def _merge_colocated(graph: OpGraph, order: np.ndarray) -> _Quotient:
    classes = np.unique(graph.colocation, return_inverse=True)[1]
    senders, receivers = dag.quotient_edges(graph.senders, graph.receivers, classes)
    on_cycle = dag.strong_components(int(classes.max()) + 1, senders, receivers)
    return _quotient(graph, order, on_cycle[classes])


def _merge_shape_chains(
    graph: OpGraph,
    order: np.ndarray,
    quotient: _Quotient,
    shape_chain: np.ndarray,
    constant: np.ndarray,
) -> _Quotient:
    num_parts, parts = quotient.num_parts, quotient.parts
    mixed = np.zeros(num_parts, bool)
    mixed[parts[~(shape_chain | constant)]] = True
    moving = np.zeros(num_parts, bool)
    moving[parts[shape_chain]] = True
    moving &= ~mixed

    root = np.arange(num_parts)
    moves = moving[quotient.senders]
    senders, receivers = quotient.senders[moves], quotient.receivers[moves]
    root[senders] = num_parts  # above every part, until a consumer lowers it
    # Edges are sorted by sender, so that backwards a receiver's root is final when it is read.
    for sender, receiver in zip(senders[::-1], receivers[::-1], strict=True):
        root[sender] = min(root[sender], root[receiver])
    return _quotient(graph, order, root[parts])


def _merge_chains(graph: OpGraph, order: np.ndarray, quotient: _Quotient) -> _Quotient:
    num_parts, senders, receivers = quotient.num_parts, quotient.senders, quotient.receivers
    only_successor = np.bincount(senders, minlength=num_parts)[senders] == 1
    only_predecessor = np.bincount(receivers, minlength=num_parts)[receivers] == 1
    kept = only_successor & only_predecessor
    links = sparse.coo_array(
        (np.ones(kept.sum()), (senders[kept], receivers[kept])), shape=(num_parts, num_parts)
    )
    chains = csgraph.connected_components(links, directed=False)[1]
    return _quotient(graph, order, chains[quotient.parts])


def _quotient(graph: OpGraph, order: np.ndarray, labels: np.ndarray) -> _Quotient:
    """Numbers parts topologically; of several that could follow, the one with the first member."""
    _, first, number = np.unique(labels[order], return_index=True, return_inverse=True)
    parts = np.empty(graph.num_ops, np.int32)
    parts[order] = np.argsort(np.argsort(first))[number]
    rank = np.argsort(dag.sort_nodes(len(first), *dag.quotient(graph, parts))).astype(np.int32)
    parts = rank[parts]
    return _Quotient(parts, *dag.quotient(graph, parts))


def _build(
    graph: OpGraph, order: np.ndarray, assignment: np.ndarray, auxiliary: np.ndarray
) -> Coarsening:
    edges = np.flatnonzero(assignment[graph.senders] != assignment[graph.receivers])
    position = np.argsort(order)
    named = _last(assignment, (~auxiliary, graph.flops, position))
    last = _last(assignment, (position,))
    coarse = opgraph.make(
        name=graph.name,
        op_names=[graph.op_names[op] for op in named],
        op_types=[graph.op_types[op] for op in named],
        senders=assignment[graph.senders[edges]],
        receivers=assignment[graph.receivers[edges]],
        edge_bytes=graph.edge_bytes[edges],
        output_shapes=[graph.output_shapes[op] for op in last],
        flops=np.bincount(assignment, graph.flops),
        weight_bytes=_sums(assignment, graph.weight_bytes),
        tensors=graph.tensors[edges],
    )
    return Coarsening(coarse, assignment, edges.astype(np.int32))


def _last(assignment: np.ndarray, keys: tuple[np.ndarray, ...]) -> np.ndarray:
    """int [M]: each part's last member by the keys, the first of which weighs most."""
    ranked = np.lexsort((*keys[::-1], assignment))
    is_last = np.append(np.diff(assignment[ranked]) > 0, True)
    return ranked[is_last]


def _sums(assignment: np.ndarray, values: np.ndarray) -> np.ndarray:
    """int64 [M]: exact sums, which `bincount`'s floats are not."""
    sums = np.zeros(assignment.max() + 1, np.int64)
    np.add.at(sums, assignment, values)
    return sums
