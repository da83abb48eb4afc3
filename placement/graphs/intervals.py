"""Groups of consecutive operations, for policies that cannot place 100,000 operations one by one.

The operations are put in a depth-first topological order: the operation whose last input was
computed last comes first, so that the order follows a branch until it joins others. Cutting a
topological order into intervals leaves an acyclic quotient, because every edge leads to a later
interval or stays within one. With W the weight of all operations and G groups, the cuts are

    c_k = argmin of bytes(c) over the positions c whose preceding weight is nearest to k W / G,

within half a group either way. Here bytes(c) is the size of the tensors that are produced before c
and read after it. So groups have about the same weight, and little passes between them. The cost is
linear in operations and edges.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import coarsen, dag
from placement.types import OpGraph


class Edges(NamedTuple):
    """E edges, each a tensor."""

    senders: np.ndarray  # int [E]
    receivers: np.ndarray  # int [E]
    num_bytes: np.ndarray  # int64 [E]


def group_consecutive_ops(
    graph: OpGraph, weight: np.ndarray, kinds: np.ndarray, num_groups: int
) -> coarsen.Coarsening:
    """Groups consecutive operations of a depth-first order.

    Args:
      graph: N operations, each in a separate `colocation` class.
      weight: float64 [N], at least 0: of each operation, such as its seconds.
      kinds: int [N]: operations of different kinds, such as those that different devices support,
        are in different groups.
      num_groups: the largest number of groups, not counting those that differ in kind alone.

    Returns:
      As `coarsen.coarsen`.
    """
    chex.assert_shape([weight, kinds], (graph.num_ops,))
    chex.assert_type([weight, kinds], [float, int])
    edges = Edges(graph.senders, graph.receivers, graph.edge_bytes)
    return coarsen.merge(graph, assign_groups(edges, weight, kinds, num_groups))


def assign_groups(
    edges: Edges, weight: np.ndarray, kinds: np.ndarray, num_groups: int
) -> np.ndarray:
    """Cuts a depth-first order: returns the group of each operation, int32 [N].

    Args:
      edges: of an acyclic graph of N operations.
      weight, kinds, num_groups: as of `group_consecutive_ops`.
    """
    chex.assert_equal_shape([weight, kinds])
    num_ops = len(weight)
    order = dag.depth_first_order(num_ops, edges.senders, edges.receivers)

    # bytes(c), float64 [N].
    position = np.argsort(order)
    produced, read = position[edges.senders] + 1, position[edges.receivers] + 1
    started_bytes = np.bincount(produced, edges.num_bytes, num_ops + 1)
    ended_bytes = np.bincount(read, edges.num_bytes, num_ops + 1)
    crossing_bytes = np.cumsum(started_bytes - ended_bytes)[:-1]

    weight = weight[order]
    preceding = np.cumsum(weight) - weight
    share = preceding / max(float(weight.sum()), np.finfo(float).tiny) * num_groups
    nearest_cut = np.rint(share).astype(int)  # k
    ranked = np.lexsort((crossing_bytes, nearest_cut))
    cuts = ranked[np.diff(nearest_cut[ranked], prepend=-1) > 0]  # the least bytes(c) for each k
    cuts = cuts[(nearest_cut[cuts] > 0) & (nearest_cut[cuts] < num_groups)]

    is_start = np.zeros(num_ops, bool)
    is_start[cuts] = True
    # Operations that different devices support must not share a group.
    is_start |= np.diff(kinds[order], prepend=kinds[order[:1]]) != 0
    parts = np.empty(num_ops, np.int32)
    parts[order] = np.cumsum(is_start)
    return parts
