"""What ranks operations by the path that follows them: HEFT's upward rank and PEFT's table.

    rank(v)   = mean compute_s[v] + max over edges e = (v, w) of ( mean delay_s[e] + rank(w) )
    oct(v, d) = max over edges e = (v, w) of min over d' of
                ( oct(w, d') + compute_s[w, d'] + (0 where d' = d, else mean delay_s[e]) )

Both are 0 beyond the last operation, and means are over what is finite.
"""

import chex
import numpy as np

from placement.graphs import dag
from placement.simulators.tensors import edge_delay_s
from placement.types import CostModel, OpGraph


def mean_delay_s(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Computes an edge's delay, float64 [E], the mean of the pairs of devices that are linked."""
    delay_s = edge_delay_s(graph, costs).astype(np.float64)
    apart = ~np.eye(delay_s.shape[-1], dtype=bool)
    return finite_mean(delay_s[:, apart])


def finite_mean(values: np.ndarray) -> np.ndarray:
    """Computes the mean [N] of the finite ones among [N, M]; zero where there is none."""
    chex.assert_rank(values, 2)
    chex.assert_type(values, float)
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)


def upward_rank(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Computes HEFT's upward rank, float64 [N] (Topcuoglu et al. 2002, equation 8).

    The longest path from each operation to the end of the graph, at means of finite costs.
    """
    compute_s = finite_mean(np.asarray(costs.compute_s, np.float64))
    delay_s = mean_delay_s(graph, costs).tolist()
    starts, edges = dag.successors(graph.num_ops, graph.senders, np.arange(graph.num_edges))
    start_list, edge_list = starts.tolist(), edges.tolist()
    receivers, rank = graph.receivers.tolist(), compute_s.tolist()
    for op in dag.topological_order(graph)[::-1].tolist():
        after = (
            delay_s[e] + rank[receivers[e]] for e in edge_list[start_list[op] : start_list[op + 1]]
        )
        rank[op] += max(after, default=0.0)
    return np.array(rank)


def priority_order(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Orders operations, int32 [N], by decreasing upward rank, topologically where it is equal."""
    topological = dag.topological_order(graph)
    rank = upward_rank(graph, costs)[topological]
    return topological[np.argsort(-rank, kind="stable")]


def optimistic_cost_s(graph: OpGraph, costs: CostModel, allowed: np.ndarray) -> np.ndarray:
    """Computes PEFT's table (Arabnejad and Barbosa 2014, equation 5), float64 [N, D].

    The least time from the end of an operation on a device to the end of the graph, if every
    descendant had its best device to itself; inf where `allowed`, bool [N, D], is false.
    """
    chex.assert_rank(allowed, 2)
    chex.assert_type(allowed, bool)
    compute_s = np.where(allowed, np.asarray(costs.compute_s, np.float64), np.inf)
    mean_s = mean_delay_s(graph, costs)
    table = np.where(allowed, 0.0, np.inf)
    starts, edges = dag.successors(graph.num_ops, graph.senders, np.arange(graph.num_edges))
    for op in dag.topological_order(graph)[::-1].tolist():
        leaving = edges[starts[op] : starts[op + 1]]
        if len(leaving):
            onward = table[graph.receivers[leaving]] + compute_s[graph.receivers[leaving]]
            elsewhere = onward.min(axis=1) + mean_s[leaving]
            table[op] = np.maximum(table[op], np.minimum(onward, elsewhere[:, None]).max(axis=0))
    return table
