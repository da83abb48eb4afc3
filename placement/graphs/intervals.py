"""Groups of operations for policies that cannot look at a hundred thousand one by one.

The operations are put in a depth-first topological order: of those that are ready, the one whose
last input was computed last goes first, so that the order follows a branch until it joins others.
Any cut of a topological order into intervals has an acyclic quotient, since every edge leads to a
later interval or stays within one. With W the weight of all operations and G groups, the cuts are

    c_k = argmin of bytes(c) over the positions c whose weight before them is nearest to k W / G,

within half a group either way, where bytes(c) is the size of the tensors made before c and read
after it. So groups weigh about the same, and their ends are where little passes. The cost is linear
in operations and edges.
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


def group(
    graph: OpGraph, weight: np.ndarray, kinds: np.ndarray, num_groups: int
) -> coarsen.Coarsening:
    """Groups consecutive operations of a depth-first order.

    Args:
      graph: N operations, each of a `colocation` class of its own.
      weight: float64 [N], at least 0: of each operation, such as its seconds.
      kinds: int [N]: operations of different kinds, such as those that other devices support, are
        in different groups.
      num_groups: how many groups there are at most, but for those that differ in kind alone.

    Returns:
      As `coarsen.coarsen`.
    """
    chex.assert_shape([weight, kinds], (graph.num_ops,))
    chex.assert_type([weight, kinds], [float, int])
    edges = Edges(graph.senders, graph.receivers, graph.edge_bytes)
    return coarsen.merge(graph, cut(edges, weight, kinds, num_groups))


def cut(edges: Edges, weight: np.ndarray, kinds: np.ndarray, num_groups: int) -> np.ndarray:
    """Cuts a depth-first order: the group of each operation, int32 [N].

    Args:
      edges: of an acyclic graph of N operations.
      weight, kinds, num_groups: as of `group`.
    """
    chex.assert_equal_shape([weight, kinds])
    num_ops = len(weight)
    order = dag.depth_first_order(num_ops, edges.senders, edges.receivers)
    cuts = _cuts(_crossing_bytes(edges, order), weight[order], num_groups)
    starts = np.zeros(num_ops, bool)
    starts[cuts] = True
    starts |= np.diff(kinds[order], prepend=kinds[order[:1]]) != 0
    parts = np.empty(num_ops, np.int32)
    parts[order] = np.cumsum(starts)
    return parts


def _crossing_bytes(edges: Edges, order: np.ndarray) -> np.ndarray:
    """Sums float64 [N]: the tensors made before each position and read from there on."""
    place, size = np.argsort(order), len(order) + 1
    made, read = place[edges.senders] + 1, place[edges.receivers] + 1
    begun = np.bincount(made, edges.num_bytes, size)
    return np.cumsum(begun - np.bincount(read, edges.num_bytes, size))[:-1]


def _cuts(crossing_bytes: np.ndarray, weight: np.ndarray, num_groups: int) -> np.ndarray:
    """Returns int [K]: where groups begin, K < `num_groups`; the first begins at 0 besides."""
    before = np.cumsum(weight) - weight
    share = before / max(float(weight.sum()), np.finfo(float).tiny) * num_groups
    slot = np.rint(share).astype(int)  # which cut a position is nearest to
    ranked = np.lexsort((crossing_bytes, slot))
    is_first = np.diff(slot[ranked], prepend=-1) > 0
    chosen = ranked[is_first]
    return chosen[(slot[chosen] > 0) & (slot[chosen] < num_groups)]
