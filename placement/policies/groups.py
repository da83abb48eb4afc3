"""Problems whose operations are merged or co-located in groups, so that a policy places these."""

import dataclasses

import numpy as np

from placement.costs import tables
from placement.graphs import coarsen, intervals
from placement.problem import Problem
from placement.simulators import ranks


def merge(problem: Problem, coarsening: coarsen.Coarsening) -> tuple[Problem, np.ndarray]:
    """Returns the problem of placing groups, and the group of each operation, int32 [N]."""
    costs = tables.coarse_costs(problem.costs, coarsening.assignment, coarsening.edges)
    return problem._replace(graph=coarsening.graph, costs=costs), coarsening.assignment


def merge_intervals(problem: Problem, num_groups: int) -> tuple[Problem, np.ndarray]:
    """Merges consecutive operations that the same devices can run; groups take similar times.

    Args:
      problem: N operations without co-location.
      num_groups: see `graphs.intervals.assign_groups`.

    Returns:
      As `merge`.
    """
    coarsening = intervals.group_consecutive_ops(
        problem.graph, *_weights_and_kinds(problem), num_groups
    )
    return merge(problem, coarsening)


def colocate_intervals(problem: Problem, num_groups: int) -> Problem:
    """Co-locates consecutive decisions' operations, as `merge_intervals` does.

    Decisions are in the order of their first operations. In a training graph these are the
    operations of the forward pass, which their gradients and updates follow.
    """
    edges = edges_between_first_ops(problem)
    weight, kinds = _weights_and_kinds(problem)
    return colocate(problem, intervals.assign_groups(edges, weight, kinds, num_groups))


def colocate(problem: Problem, decision_group: np.ndarray) -> Problem:
    """Co-locates the operations of decisions that have equal groups, int [K]."""
    colocation = decision_group[problem.decision]
    return problem._replace(graph=dataclasses.replace(problem.graph, colocation=colocation))


def edges_between_first_ops(problem: Problem) -> intervals.Edges:
    """Returns the edges between the first operations of decisions; the ends are decisions."""
    graph, decision = problem.graph, problem.decision
    is_first = np.isin(np.arange(graph.num_ops), problem.decisions.first_ops)
    edges = np.flatnonzero(is_first[graph.senders] & is_first[graph.receivers])
    senders, receivers = graph.senders[edges], graph.receivers[edges]
    return intervals.Edges(decision[senders], decision[receivers], graph.edge_bytes[edges])


def _weights_and_kinds(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Returns each decision's weight, float [K], and a number for its set of devices, int [K]."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    mean_s = np.bincount(problem.decision, ranks.finite_mean(compute_s))
    kinds = np.unique(problem.decisions.allowed, axis=0, return_inverse=True)[1]
    return mean_s + mean_s.mean(), kinds.ravel()  # no weight is zero
