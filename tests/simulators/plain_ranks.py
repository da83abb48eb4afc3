"""Ranks operation by operation, of the means that the package takes: equal to the last bit."""

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import ranks


def upward_rank(problem: Problem) -> list[float]:
    graph = problem.graph
    rank = ranks.finite_mean(np.asarray(problem.costs.compute_s, np.float64)).tolist()
    delay_s = problem.mean_edge_delay_s.tolist()
    for op in dag.topological_order(graph)[::-1].tolist():
        leaving = np.flatnonzero(graph.senders == op).tolist()
        rank[op] += max((delay_s[e] + rank[graph.receivers[e]] for e in leaving), default=0.0)
    return rank


def optimistic_cost_s(problem: Problem, allowed: np.ndarray) -> np.ndarray:
    graph = problem.graph
    compute_s = np.where(allowed, np.asarray(problem.costs.compute_s, np.float64), np.inf)
    delay_s = problem.mean_edge_delay_s
    table = np.where(allowed, 0.0, np.inf)
    for op in dag.topological_order(graph)[::-1].tolist():
        for edge in np.flatnonzero(graph.senders == op):
            onward = table[graph.receivers[edge]] + compute_s[graph.receivers[edge]]
            table[op] = np.maximum(table[op], np.minimum(onward, onward.min() + delay_s[edge]))
    return table
