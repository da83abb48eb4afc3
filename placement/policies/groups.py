"""Problems whose operations are merged or co-located in groups, so that a policy places these.

Large groups are intervals of a depth-first topological order, which follows a branch until it joins
others. The quotient of such intervals is acyclic, because every edge leads to a later one or stays
within one. With W the weight of all operations and G groups, the cuts are

    c_k = argmin of bytes(c) over the positions c whose preceding weight is nearest to k W / G,

within half a group either way. Here bytes(c) is the size of the tensors that are produced before c
and read after it. So groups have about the same weight, and little passes between them. The cost is
linear in operations and edges.
"""

import dataclasses
from typing import NamedTuple

import chex
import numpy as np

from placement.costs import tables
from placement.graphs import coarsen, dag
from placement.problem import Problem
from placement.simulators import ranks


class Edges(NamedTuple):
    """E edges, each a tensor."""

    senders: np.ndarray  # int [E]
    receivers: np.ndarray  # int [E]
    num_bytes: np.ndarray  # int64 [E]


def merge(problem: Problem, coarsening: coarsen.Coarsening) -> tuple[Problem, np.ndarray]:
    """Returns the problem of placing groups, and the group of each operation, int32 [N]."""
    costs = tables.coarse_costs(problem.costs, coarsening.assignment, coarsening.edges)
    return problem._replace(graph=coarsening.graph, costs=costs), coarsening.assignment


def merge_intervals(problem: Problem, num_groups: int) -> tuple[Problem, np.ndarray]:
    """Merges consecutive operations, of a problem without co-location, as `merge` does."""
    graph = problem.graph
    edges = Edges(graph.senders, graph.receivers, graph.edge_bytes)
    parts = assign_groups(edges, *_weights_and_kinds(problem), num_groups)
    return merge(problem, coarsen.merge(graph, parts))


def colocate_intervals(problem: Problem, num_groups: int) -> Problem:
    """Co-locates consecutive decisions' operations, as `merge_intervals` does.

    Decisions are in the order of their first operations. In a training graph these are the
    operations of the forward pass, which their gradients and updates follow.
    """
    edges = edges_between_first_ops(problem)
    weight, kinds = _weights_and_kinds(problem)
    return colocate(problem, assign_groups(edges, weight, kinds, num_groups))


def colocate(problem: Problem, decision_group: np.ndarray) -> Problem:
    """Co-locates the operations of decisions that have equal groups, int [K]."""
    colocation = decision_group[problem.decision]
    return problem._replace(graph=dataclasses.replace(problem.graph, colocation=colocation))


def edges_between_first_ops(problem: Problem) -> Edges:
    """Returns the edges between the first operations of decisions; the ends are decisions."""
    graph, decision = problem.graph, problem.decision
    is_first = np.isin(np.arange(graph.num_ops), problem.decisions.first_ops)
    edges = np.flatnonzero(is_first[graph.senders] & is_first[graph.receivers])
    senders, receivers = graph.senders[edges], graph.receivers[edges]
    return Edges(decision[senders], decision[receivers], graph.edge_bytes[edges])


def assign_groups(
    edges: Edges, weight: np.ndarray, kinds: np.ndarray, num_groups: int
) -> np.ndarray:
    """Cuts a depth-first order: returns the group of each operation, int32 [N].

    Args:
      edges: of an acyclic graph of N operations.
      weight: float64 [N], at least 0: of each operation, such as its seconds.
      kinds: int [N]: operations of different kinds, such as those that different devices support,
        are in different groups.
      num_groups: the largest number of groups, not counting those that differ in kind alone.
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


def _weights_and_kinds(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Returns each decision's weight, float [K], and a number for its set of devices, int [K]."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    mean_s = np.bincount(problem.decision, ranks.finite_mean(compute_s))
    kinds = np.unique(problem.decisions.allowed, axis=0, return_inverse=True)[1]
    return mean_s + mean_s.mean(), kinds.ravel()  # no weight is zero
