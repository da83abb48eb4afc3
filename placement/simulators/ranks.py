"""What ranks operations by the path that follows them: HEFT's upward rank and PEFT's table.

    rank(v)   = mean compute_s[v] + max over edges e = (v, w) of ( mean delay_s[e] + rank(w) )
    oct(v, d) = max over edges e = (v, w) of min over d' of
                ( oct(w, d') + compute_s[w, d'] + (0 where d' = d, else mean delay_s[e]) )

Both are 0 beyond the last operation, and means are over what is finite.
"""

import chex
import numpy as np

from placement.graphs import dag
from placement.types import Array, OpGraph


def mean_delay_s(delay_s: np.ndarray) -> np.ndarray:
    """Computes each edge's mean delay, float64 [E], over the pairs of devices that are linked.

    Args:
      delay_s: float32 [E, D, D], of `tensors.edge_delay_s`.
    """
    apart = ~np.eye(delay_s.shape[-1], dtype=bool)
    return finite_mean(delay_s.astype(np.float64)[:, apart])


def finite_mean(values: np.ndarray) -> np.ndarray:
    """Computes the mean [N] of the finite ones among [N, M]; zero where there is none."""
    chex.assert_rank(values, 2)
    chex.assert_type(values, float)
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)


def upward_rank(
    graph: OpGraph, compute_s: Array, mean_delay_s: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Computes HEFT's upward rank, float64 [N] (Topcuoglu et al. 2002, equation 8).

    The longest path from each operation to the end of the graph, at means of finite costs.

    Args:
      graph: N operations, E edges.
      compute_s: float [N, D].
      mean_delay_s: float64 [E].
      order: int32 [N], topological.
    """
    compute_s = finite_mean(np.asarray(compute_s, np.float64))
    edges = dag.sort_edges(order, graph.receivers)[::-1]
    receivers = graph.receivers[edges]
    path_s = (mean_delay_s[edges], compute_s[receivers])
    columns = (graph.senders[edges], receivers, *path_s)
    onward_s = [0.0] * graph.num_ops  # from the end of an operation
    for sender, receiver, delay, seconds in zip(*(c.tolist() for c in columns), strict=True):
        path = delay + (seconds + onward_s[receiver])
        if path > onward_s[sender]:
            onward_s[sender] = path
    return compute_s + onward_s


def priority_order(rank: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Orders operations, int32 [N], by decreasing upward rank, topologically where it is equal.

    Args:
      rank: float64 [N], of `upward_rank`.
      order: int32 [N], topological.
    """
    return order[np.argsort(-rank[order], kind="stable")]


def optimistic_cost_s(
    graph: OpGraph, compute_s: np.ndarray, mean_delay_s: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Computes PEFT's table (Arabnejad and Barbosa 2014, equation 5), float64 [N, D].

    The least time from the end of an operation on a device to the end of the graph, if every
    descendant had its best device to itself; inf where the device cannot run the operation.

    Args:
      graph: N operations, E edges.
      compute_s: float64 [N, D]; inf where a device cannot run the operation.
      mean_delay_s: float64 [E].
      order: int32 [N], topological.
    """
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    table: list[list[float]] = np.where(np.isfinite(compute_s), 0.0, np.inf).T.tolist()
    seconds: list[list[float]] = compute_s.T.tolist()
    edges = dag.sort_edges(order, graph.receivers)[::-1]
    columns = graph.senders[edges], graph.receivers[edges], mean_delay_s[edges]
    last, onward, least = -1, [], 0.0
    for sender, receiver, delay in zip(*(c.tolist() for c in columns), strict=True):
        if receiver != last:
            onward = [a[receiver] + b[receiver] for a, b in zip(table, seconds, strict=True)]
            last, least = receiver, min(onward)
        elsewhere = least + delay
        for of_device, path in zip(table, onward, strict=True):
            if path > elsewhere:
                path = elsewhere
            if path > of_device[sender]:
                of_device[sender] = path
    return np.stack([np.array(of_device) for of_device in table], axis=1)
