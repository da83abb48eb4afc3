"""Coarsening: merges operations that share a device, and lifts placements back.

Four steps, each a map from operations to fewer of them:

1. Operations with equal `colocation` numbers merge, such as a constant, its Convert and its
   consumer. A coarse operation runs as a whole. If merging closes cycles (a -> b -> c with a, c
   co-located), the operations on a common cycle merge too. This excludes placements that leave a
   class and return to it; all others keep their cost. A training graph would collapse to a single
   operation: use `training.coarsen_training_graph`.
2. Shape chains and constants join a consumer, as they are host arithmetic on a few integers, or
   none. A chain is a ShapeOf and every operation of `SHAPE_TYPES` that reads only from chains and
   constants, and from a chain at least once. With several consumers, an operation joins the one
   whose part comes first in topological order. Chains without a consumer stay; connected ones
   merge.
3. A node joins its only successor if it is that successor's only predecessor, counting distinct
   neighbours in the current coarse graph (the rule of the HSDAG authors' code; Duan et al. 2024).
4. The coarse operations are numbered in topological order.

Every edge between different coarse operations remains with its tensor, and so does every copy of a
constant (`placement.graphs.constants`), one for each pair of a constant and a coarse operation. So
the same tensors cross as in the coarse graph. Coarsening it again changes nothing.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import constants, dag, opgraph
from placement.types import OpGraph

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
# Kinds of operations; one of SHAPE_TYPES has the largest kind among its inputs.
_CONSTANT, _SHAPE, _ORDINARY, _BY_INPUTS = range(4)
_KINDS = {"Constant": _CONSTANT, "ShapeOf": _SHAPE} | dict.fromkeys(SHAPE_TYPES, _BY_INPUTS)
_NO_ROOT = np.iinfo(np.int64).max  # of a moving part that no consumer has claimed yet


class Coarsening(NamedTuple):
    """A coarse graph with M operations and E' edges, and its relation to the original graph."""

    graph: OpGraph
    assignment: np.ndarray  # int32 [N]: the coarse operation of each operation
    edges: np.ndarray  # int32 [E']: for each coarse edge, the index of the original edge it is


def coarsen(graph: OpGraph, fused_edges: np.ndarray | None = None) -> Coarsening:
    """Merges co-located operations, shape chains, constants and chains; see the module docstring.

    The attributes of a coarse operation come from its members:

    - flops and weight bytes are sums;
    - name and type are those of the member with the most flops (of several, the topologically
      last). A member of a shape chain counts only without an ordinary one, a constant only if
      there is nothing else;
    - the output shape is that of the topologically last member;
    - `member_types` has the types of all members;
    - `colocation` is `arange(M)`.

    Args:
      graph: a valid graph with N operations.
      fused_edges: bool [E], the edges inside kernels. If given, their ends merge in step 1 as if
        they were co-located, and step 3 is left out.

    Returns:
      The coarse graph, valid and with its operations numbered topologically, and the maps.
    """
    order = dag.topological_order(graph)

    # Step 1: co-located operations.
    classes = np.unique(graph.colocation, return_inverse=True)[1]
    if fused_edges is not None:
        ends = classes[graph.senders[fused_edges]], classes[graph.receivers[fused_edges]]
        classes = dag.components("weak", int(classes.max()) + 1, *ends)[classes]
        classes = np.unique(classes, return_inverse=True)[1]
    edges = dag.quotient(graph.senders, graph.receivers, classes)
    components = dag.components("strong", int(classes.max()) + 1, *edges)
    parts = _number_parts(graph, order, components[classes])

    # Step 2: shape chains and constants, the parts without an ordinary member. The result is
    # acyclic: root(u) <= root(v) for every edge u -> v, as root(u) = u < v <= root(v) if u stays,
    # and root(u) is a minimum over such v if it moves; equality means that u and v merge.
    senders, receivers = dag.quotient(graph.senders, graph.receivers, parts)
    num_parts = int(parts.max()) + 1
    is_moving = np.ones(num_parts, bool)
    is_moving[parts[_classify(graph, order) == _ORDINARY]] = False
    roots: list[int] = np.where(is_moving, _NO_ROOT, np.arange(num_parts)).tolist()
    moves = is_moving[senders]
    senders, receivers = senders[moves], receivers[moves]
    # The edges are sorted by sender. Backwards, a receiver's root is final when it is read.
    for sender, receiver in zip(senders[::-1].tolist(), receivers[::-1].tolist(), strict=True):
        roots[sender] = min(roots[sender], roots[receiver])
    root = np.array(roots)
    has_no_root = root == _NO_ROOT
    links = has_no_root[senders]
    components = dag.components("weak", num_parts, senders[links], receivers[links])
    parts = np.where(has_no_root, num_parts + components, root)[parts]
    if fused_edges is not None:
        return merge(graph, parts)

    # Step 3: chains. Merging a pair changes no other node's number of neighbours. So one pass over
    # all pairs, with whole chains at once, has the result of repeated passes.
    parts = _number_parts(graph, order, parts)
    senders, receivers = dag.quotient(graph.senders, graph.receivers, parts)
    num_parts = int(parts.max()) + 1
    is_only_successor = np.bincount(senders, minlength=num_parts)[senders] == 1
    is_only_predecessor = np.bincount(receivers, minlength=num_parts)[receivers] == 1
    links = is_only_successor & is_only_predecessor
    return merge(graph, dag.components("weak", num_parts, senders[links], receivers[links])[parts])


def label_sole_consumer_trees(
    num_ops: int, senders: np.ndarray, receivers: np.ndarray
) -> np.ndarray:
    """Groups every operation that has a single reader with it: int [N], given edges int [E].

    This is the co-location heuristic of ColocRL (Mirhoseini et al. 2017), applied once to all
    operations. Repeated, it would leave one group of a network with one output. A group is a tree
    whose tensors leave it only from the last operation, so that the quotient stays acyclic.
    """
    senders, receivers = dag.quotient(senders, receivers, np.arange(num_ops))
    has_one_reader = np.bincount(senders, minlength=num_ops)[senders] == 1
    return dag.components("weak", num_ops, senders[has_one_reader], receivers[has_one_reader])


def merge(graph: OpGraph, parts: np.ndarray) -> Coarsening:
    """Merges the operations of each part, int [N]; the quotient must be acyclic.

    Returns:
      As `coarsen`.
    """
    chex.assert_shape(parts, (graph.num_ops,))
    chex.assert_type(parts, int)
    order = dag.topological_order(graph)
    assignment = _number_parts(graph, order, parts)
    edges = np.flatnonzero(assignment[graph.senders] != assignment[graph.receivers])
    num_parts, position = int(assignment.max()) + 1, np.argsort(order)

    def find_last(*keys: np.ndarray) -> np.ndarray:
        """Returns int [M]: each part's last member by the keys, the first of which is primary."""
        ranked = np.lexsort((*keys[::-1], assignment))
        return ranked[np.append(np.diff(assignment[ranked]) > 0, True)]

    # Parts are co-located if they hold co-located operations: components of parts and classes.
    classes = num_parts + np.unique(graph.colocation, return_inverse=True)[1]
    components = dag.components("weak", int(classes.max()) + 1, assignment, classes)[:num_parts]
    _, first, number = np.unique(components, return_index=True, return_inverse=True)

    member_types: list[list[str]] = [[] for _ in range(num_parts)]
    op_types = graph.member_types or ((op_type,) for op_type in graph.op_types)
    for part, types in zip(assignment.tolist(), op_types, strict=True):
        member_types[part] += types

    sources, readers = assignment[graph.copy_sources], assignment[graph.copy_readers]
    pairs = np.stack([graph.copy_constants, readers])
    copies = np.unique(pairs, axis=1, return_index=True)[1]  # of each pair the first
    copies = copies[sources[copies] != readers[copies]]

    representatives = find_last(_classify(graph, order), graph.flops, position)
    last = find_last(position)
    coarse = opgraph.make_graph(
        name=graph.name,
        op_names=[graph.op_names[op] for op in representatives],
        op_types=[graph.op_types[op] for op in representatives],
        senders=assignment[graph.senders[edges]],
        receivers=assignment[graph.receivers[edges]],
        edge_bytes=graph.edge_bytes[edges],
        output_shapes=[graph.output_shapes[op] for op in last],
        flops=np.bincount(assignment, graph.flops),
        weight_bytes=dag.sum_by_part(assignment, graph.weight_bytes),
        colocation=first[number],
        tensors=graph.tensors[edges],
        backward=np.bincount(assignment, graph.backward) > 0,
        copy_sources=sources[copies],
        copy_readers=readers[copies],
        copy_bytes=graph.copy_bytes[copies],
        copy_constants=graph.copy_constants[copies],
        member_types=member_types,
    )
    return Coarsening(coarse, assignment, edges.astype(np.int32))


def list_member_names(graph: OpGraph, assignment: np.ndarray) -> list[list[str]]:
    """Lists for each part, int32 [N], the names of its members, in topological order."""
    chex.assert_shape(assignment, (graph.num_ops,))
    chex.assert_type(assignment, int)
    names: list[list[str]] = [[] for _ in range(int(assignment.max()) + 1)]
    for op in dag.topological_order(graph).tolist():
        names[assignment[op]].append(graph.op_names[op])
    return names


def _classify(graph: OpGraph, order: np.ndarray) -> np.ndarray:
    """Returns int8 [N]: whether an operation is constant, of a shape chain, or ordinary."""
    senders, receivers = constants.list_reads(graph)
    if len(senders) > graph.num_edges:
        order = dag.sort_nodes(graph.num_ops, senders, receivers)
    has_inputs = np.bincount(receivers, minlength=graph.num_ops) > 0
    kinds = np.array([_KINDS.get(op_type, _ORDINARY) for op_type in graph.op_types], np.int8)
    is_by_inputs = (kinds == _BY_INPUTS) & has_inputs
    kinds[kinds == _BY_INPUTS] = _ORDINARY
    kinds[is_by_inputs] = _CONSTANT  # the smallest kind, raised to the largest of the inputs
    edges = dag.sort_edges(order, receivers)
    edges = edges[is_by_inputs[receivers[edges]]]
    op_kinds: list[int] = kinds.tolist()
    ends = senders[edges].tolist(), receivers[edges].tolist()
    for sender, receiver in zip(*ends, strict=True):
        op_kinds[receiver] = max(op_kinds[receiver], op_kinds[sender])
    return np.array(op_kinds, np.int8)


def _number_parts(graph: OpGraph, order: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Numbers parts of equal labels int [N] topologically, ties by the first member."""
    parts = np.empty(graph.num_ops, np.int32)
    parts[order] = dag.number_by_first(labels[order])
    edges = dag.quotient(graph.senders, graph.receivers, parts)
    return np.argsort(dag.sort_nodes(int(parts.max()) + 1, *edges)).astype(np.int32)[parts]
