"""Coarsening: operations that are to share a device become one; placements are lifted back.

Four steps, each a map from operations to fewer of them:

1. Operations with equal `colocation` numbers merge. An extracted graph gives one number to a
   constant, its Convert and its consumer, and to a ReadValue and the Assign of its variable.
   Merging may close cycles (a -> b -> c with a, c co-located). A coarse operation runs whole, so b
   can run neither before nor after {a, c}: operations on a common cycle of the quotient (its
   strongly connected components) merge too. What is lost are placements that leave a class and
   come back to it; what remains costs what it did. A training graph that co-locates each forward
   operation with its backward one collapses to a single operation: `training.coarsened` is for it.
2. Shape chains and constants join a consumer: they are host arithmetic on a few integers, or none,
   and apart from the operation that they serve they only cause transfers. A chain is a ShapeOf
   and every operation of `SHAPE_TYPES` that reads only from chains and constants, and from a
   chain at least once; one that reads only constants is itself a constant. With several
   consumers, each goes where the one ends up that ends up first in topological order. That keeps
   the graph acyclic: the place root(u) where u ends up satisfies root(u) <= root(v) for every edge
   u -> v (root(u) = u < v <= root(v) for what stays, and a minimum over such v for what moves),
   and equality means that u and v are merged. What serves no other operation stays, connected
   ones as one operation.
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

from placement.graphs import dag, opgraph
from placement.types import Array, OpGraph

SHAPE_TYPES = frozenset(
    (
        *("Gather", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Convert", "Slice"),
        *("StridedSlice", "Split", "VariadicSplit", "Add", "Subtract", "Multiply", "Divide", "Mod"),
        *("FloorMod", "Floor", "Ceiling", "Power", "Maximum", "Minimum", "ReduceProd", "ReduceSum"),
        *("ReduceMax", "ReduceMin", "Equal", "NotEqual", "Less", "Greater", "LogicalAnd"),
        *("LogicalNot", "Select", "Broadcast", "Range", "NonZero", "Transpose", "Tile"),
        *("ScatterUpdate", "ScatterElementsUpdate"),
    )
)
_CONSTANT, _SHAPE, _ORDINARY, _JOINING = range(4)  # the last as long as its inputs have no say
_STANDING = {"Constant": _CONSTANT, "ShapeOf": _SHAPE} | dict.fromkeys(SHAPE_TYPES, _JOINING)
_NOWHERE = np.iinfo(np.int64).max  # where what moves ends up while no consumer has claimed it


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
    """Merges co-located operations, shape chains, constants and chains; see the module docstring.

    Of the coarse operation's attributes, flops and weight bytes are sums over its members; name
    and type are those of the member with the most flops (of several, the topologically last;
    of a shape chain only where there is no other, of constants only where there is nothing else);
    the output shape is that of the topologically last member; `colocation` is `arange(M)`; the
    types of all members stay as `member_types`.

    Args:
      graph: a valid graph with N operations.

    Returns:
      The coarse graph, valid and with its operations numbered topologically, and the maps.
    """
    order = dag.topological_order(graph)
    standing = _standing(graph, order)
    quotient = _merge_colocated(graph, order)
    quotient = _merge_shape_chains(graph, order, quotient, standing)
    quotient = _merge_chains(graph, order, quotient)
    return _build(graph, order, quotient.parts, standing)


def sole_consumers(graph: OpGraph) -> Coarsening:
    """Merges every operation that serves only one other with it, whatever else that reads.

    The co-location heuristic of ColocRL (Mirhoseini et al. 2017), applied once to all
    operations: repeated, it would leave one group of a network with one output. A group's tensors
    leave it only from the last operation of a tree, so that the quotient stays acyclic.

    Args:
      graph: N operations, each of a `colocation` class of its own.

    Returns:
      As `coarsen`.
    """
    return merge(graph, sole_consumer_trees(graph.num_ops, graph.senders, graph.receivers))


def sole_consumer_trees(num_ops: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Finds what `sole_consumers` merges, of edges int [E]: a number int [N] of each tree."""
    senders, receivers = dag.quotient_edges(senders, receivers, np.arange(num_ops))
    only = np.bincount(senders, minlength=num_ops)[senders] == 1
    return dag.weak_components(num_ops, senders[only], receivers[only])


def merge(graph: OpGraph, parts: np.ndarray) -> Coarsening:
    """Merges the operations of each part, int [N]; the quotient must be acyclic.

    Returns:
      As `coarsen`.
    """
    chex.assert_shape(parts, (graph.num_ops,))
    chex.assert_type(parts, int)
    order = dag.topological_order(graph)
    merged = _quotient(graph, order, parts).parts
    return _build(graph, order, merged, _standing(graph, order))


def members(graph: OpGraph, assignment: np.ndarray) -> list[list[str]]:
    """Lists for each coarse operation the names of its members, in topological order.

    Args:
      graph: N operations.
      assignment: int32 [N], see `Coarsening`.
    """
    chex.assert_shape(assignment, (graph.num_ops,))
    chex.assert_type(assignment, int)
    names: list[list[str]] = [[] for _ in range(int(assignment.max()) + 1)]
    for op in dag.topological_order(graph).tolist():
        names[assignment[op]].append(graph.op_names[op])
    return names


def lift(assignment: Array, placement: Array) -> Array:
    """Returns the placement of the original operations that a coarse placement stands for.

    Args:
      assignment: int32 [N], see `Coarsening`.
      placement: int32 [..., M], NumPy or JAX.

    Returns:
      int32 [..., N], of the same kind as `placement`.
    """
    chex.assert_rank(assignment, 1)
    chex.assert_type([assignment, placement], int)
    return placement[..., assignment]


def _standing(graph: OpGraph, order: np.ndarray) -> np.ndarray:
    """Returns int8 [N]: whether an operation is constant, of a shape chain, or ordinary."""
    reads = np.bincount(graph.receivers, minlength=graph.num_ops) > 0
    types = np.array([_STANDING.get(op_type, _ORDINARY) for op_type in graph.op_types], np.int8)
    joins = (types == _JOINING) & reads
    standing = np.where(types == _JOINING, _ORDINARY, types)
    standing[joins] = _CONSTANT  # the least, until it reads more
    edges = dag.sort_edges(order, graph.receivers)
    edges = edges[joins[graph.receivers[edges]]]
    found: list[int] = standing.tolist()
    ends = graph.senders[edges].tolist(), graph.receivers[edges].tolist()
    for sender, receiver in zip(*ends, strict=True):
        found[receiver] = max(found[receiver], found[sender])
    return np.array(found, np.int8)


def _merge_colocated(graph: OpGraph, order: np.ndarray) -> _Quotient:
    classes = np.unique(graph.colocation, return_inverse=True)[1]
    senders, receivers = dag.quotient_edges(graph.senders, graph.receivers, classes)
    on_cycle = dag.strong_components(int(classes.max()) + 1, senders, receivers)
    return _quotient(graph, order, on_cycle[classes])


def _merge_shape_chains(
    graph: OpGraph, order: np.ndarray, quotient: _Quotient, standing: np.ndarray
) -> _Quotient:
    num_parts, parts = quotient.num_parts, quotient.parts
    moving = np.ones(num_parts, bool)
    moving[parts[standing == _ORDINARY]] = False
    root = np.where(moving, _NOWHERE, np.arange(num_parts))
    moves = moving[quotient.senders]
    senders, receivers = quotient.senders[moves], quotient.receivers[moves]
    # Edges are sorted by sender, so that backwards a receiver's root is final when it is read.
    roots: list[int] = root.tolist()
    for sender, receiver in zip(senders[::-1].tolist(), receivers[::-1].tolist(), strict=True):
        roots[sender] = min(roots[sender], roots[receiver])
    root = np.array(roots)
    stays = root == _NOWHERE
    joined = dag.weak_components(num_parts, senders[stays[senders]], receivers[stays[senders]])
    return _quotient(graph, order, np.where(stays, num_parts + joined, root)[parts])


def _merge_chains(graph: OpGraph, order: np.ndarray, quotient: _Quotient) -> _Quotient:
    num_parts, senders, receivers = quotient.num_parts, quotient.senders, quotient.receivers
    only_successor = np.bincount(senders, minlength=num_parts)[senders] == 1
    only_predecessor = np.bincount(receivers, minlength=num_parts)[receivers] == 1
    kept = only_successor & only_predecessor
    chains = dag.weak_components(num_parts, senders[kept], receivers[kept])
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
    graph: OpGraph, order: np.ndarray, assignment: np.ndarray, standing: np.ndarray
) -> Coarsening:
    edges = np.flatnonzero(assignment[graph.senders] != assignment[graph.receivers])
    position = np.argsort(order)
    named = _last(assignment, (standing, graph.flops, position))
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
        weight_bytes=dag.part_sums(assignment, graph.weight_bytes),
        colocation=_joined(graph, assignment),
        tensors=graph.tensors[edges],
        backward=np.bincount(assignment, graph.backward) > 0,
        member_types=_member_types(graph, assignment),
    )
    return Coarsening(coarse, assignment, edges.astype(np.int32))


def _joined(graph: OpGraph, assignment: np.ndarray) -> np.ndarray:
    """Numbers the parts that must share a device, int [M]: they hold operations that must."""
    num_parts = int(assignment.max()) + 1
    number = num_parts + np.unique(graph.colocation, return_inverse=True)[1]
    joined = dag.weak_components(int(number.max()) + 1, assignment, number)[:num_parts]
    _, first, number = np.unique(joined, return_index=True, return_inverse=True)
    return first[number]


def _member_types(graph: OpGraph, assignment: np.ndarray) -> list[list[str]]:
    types: list[list[str]] = [[] for _ in range(int(assignment.max()) + 1)]
    each = graph.member_types or ((op_type,) for op_type in graph.op_types)
    for part, of_op in zip(assignment.tolist(), each, strict=True):
        types[part] += of_op
    return types


def _last(assignment: np.ndarray, keys: tuple[np.ndarray, ...]) -> np.ndarray:
    """Returns int [M]: each part's last member by the keys, the first of which weighs most."""
    ranked = np.lexsort((*keys[::-1], assignment))
    is_last = np.append(np.diff(assignment[ranked]) > 0, True)
    return ranked[is_last]
