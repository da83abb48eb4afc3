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

import chex
import numpy as np

from placement.graphs import coarsen, dag
from placement.types import OpGraph


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
    order = dag.depth_first_order(graph.num_ops, graph.senders, graph.receivers)
    cuts = _cuts(_crossing_bytes(graph, order), weight[order], num_groups)
    starts = np.zeros(graph.num_ops, bool)
    starts[cuts] = True
    starts |= np.diff(kinds[order], prepend=kinds[order[:1]]) != 0
    parts = np.empty(graph.num_ops, np.int32)
    parts[order] = np.cumsum(starts)
    return coarsen.merge(graph, parts)


def _crossing_bytes(graph: OpGraph, order: np.ndarray) -> np.ndarray:
    """Sums float64 [N]: the tensors made before each position and read from there on."""
    place = np.argsort(order)
    made, read = place[graph.senders] + 1, place[graph.receivers] + 1
    begun = np.bincount(made, graph.edge_bytes, graph.num_ops + 1)
    return np.cumsum(begun - np.bincount(read, graph.edge_bytes, graph.num_ops + 1))[:-1]


def _cuts(crossing_bytes: np.ndarray, weight: np.ndarray, num_groups: int) -> np.ndarray:
    """Returns int [K]: where groups begin, K < `num_groups`; the first begins at 0 besides."""
    before = np.cumsum(weight) - weight
    share = before / max(float(weight.sum()), np.finfo(float).tiny) * num_groups
    slot = np.rint(share).astype(int)  # which cut a position is nearest to
    ranked = np.lexsort((crossing_bytes, slot))
    is_first = np.diff(slot[ranked], prepend=-1) > 0
    chosen = ranked[is_first]
    return chosen[(slot[chosen] > 0) & (slot[chosen] < num_groups)]
