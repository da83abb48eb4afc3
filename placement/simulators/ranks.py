"""Ranks of operations by the longest path that follows them: HEFT's upward rank, PEFT's table.

    rank(v)   = mean compute_s[v] + max over edges e = (v, w) of ( mean delay_s[e] + rank(w) )
    oct(v, d) = max over edges e = (v, w) of min over devices q of
                ( oct(w, q) + compute_s[w, q] + (0 if q = d, else mean delay_s[e]) )

Both maxima are 0 for an operation whose output nobody reads. Means are over finite values.
"""

import chex
import numpy as np

from placement.graphs import dag
from placement.types import Array, OpGraph


def finite_mean(values: np.ndarray) -> np.ndarray:
    """Computes the mean [N] of the finite values in each row of [N, M]; zero if there are none."""
    chex.assert_rank(values, 2)
    chex.assert_type(values, float)
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)


def compute_upward_rank(
    graph: OpGraph, compute_s: Array, mean_delay_s: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Computes HEFT's upward rank, float64 [N] (Topcuoglu et al. 2002, equation 8).

    Args:
      graph: N operations, E edges.
      compute_s: float [N, D].
      mean_delay_s: float64 [E].
      order: int32 [N], topological.
    """
    mean_s = finite_mean(np.asarray(compute_s, np.float64))
    edges = dag.sort_edges(order, graph.receivers)[::-1]
    receivers = graph.receivers[edges]
    columns = (graph.senders[edges], receivers, mean_delay_s[edges], mean_s[receivers])
    tail_s = [0.0] * graph.num_ops  # the longest path after the end of each operation
    for sender, receiver, delay, seconds in zip(*(c.tolist() for c in columns), strict=True):
        path_s = delay + (seconds + tail_s[receiver])
        if path_s > tail_s[sender]:
            tail_s[sender] = path_s
    return mean_s + tail_s


def optimistic_cost_s(
    graph: OpGraph, compute_s: np.ndarray, mean_delay_s: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Computes PEFT's optimistic cost table, float64 [N, D] (Arabnejad and Barbosa 2014, eq. 5).

    An entry is the least time from the end of the operation on the device to the end of the graph,
    if every descendant had its best device to itself; inf if the device cannot run the operation.

    Args:
      graph: N operations, E edges.
      compute_s: float64 [N, D]; inf if a device cannot run the operation.
      mean_delay_s: float64 [E].
      order: int32 [N], topological.
    """
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    table: list[list[float]] = np.where(np.isfinite(compute_s), 0.0, np.inf).T.tolist()  # [D, N]
    seconds: list[list[float]] = compute_s.T.tolist()
    edges = dag.sort_edges(order, graph.receivers)[::-1]
    columns = graph.senders[edges], graph.receivers[edges], mean_delay_s[edges]
    # The edges of one receiver follow one another: its paths [D] are computed once.
    path_receiver, paths_s, min_path_s = -1, [], 0.0
    for sender, receiver, delay in zip(*(c.tolist() for c in columns), strict=True):
        if receiver != path_receiver:
            paths_s = [a[receiver] + b[receiver] for a, b in zip(table, seconds, strict=True)]
            path_receiver, min_path_s = receiver, min(paths_s)
        other_device_s = min_path_s + delay
        for row, path_s in zip(table, paths_s, strict=True):
            cost_s = min(path_s, other_device_s)
            if cost_s > row[sender]:
                row[sender] = cost_s
    return np.stack([np.array(row) for row in table], axis=1)
