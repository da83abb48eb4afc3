"""Solvers: classical and exact searches for a placement, and lower bounds.

`placement.methods.METHODS` names them; `placement.methods.solve` runs them.
"""

import numpy as np

from placement.problem import Problem
from placement.solvers.limits import SearchLimits

BUDGET = 32_000  # placements that a search evaluates by default


def lower_bound(problem: Problem, *, time_limit_s: float = 10.0, any_order: bool = False) -> float:
    """Computes a lower bound of the objective in seconds; -inf where none is known.

    Args:
      problem: the graph, its costs and the objective.
      time_limit_s: for the bound.
      any_order: whether the bound of `makespan` holds for any order of a device's operations, so
        for merged operations too (`placement.graphs.coarsen`), or for the order of priority alone.
    """
    if infeasible(problem):
        return float("-inf")
    limits = SearchLimits(time_limit_s, BUDGET)
    # Only the modules of this objective are imported.
    if problem.objective == "serial":
        from placement.solvers import graph_cut

        bound_s = graph_cut.graph_cut(problem, 0, limits).bound_s
    elif problem.objective == "makespan":
        from placement.solvers.bounds import makespan

        bound_s = makespan.bound_makespan(problem, limits)
    else:
        from placement.solvers.bounds import counting

        bound = {"max_load": counting.bound_max_load, "subgraph": counting.bound_subgraph}
        bound_s = bound[problem.objective](problem)
    if not any_order and bound_s < np.inf:
        bound_s = max(bound_s, lower_bound_in_order(problem, time_limit_s=limits.remaining_s()))
    return bound_s


def lower_bound_in_order(problem: Problem, *, time_limit_s: float = 10.0) -> float:
    """Computes the bound of `makespan` for the order of priority alone; -inf if there is none."""
    if problem.objective != "makespan" or infeasible(problem):
        return float("-inf")
    from placement.solvers.diagrams import search as diagrams

    return diagrams.compute_bound(problem, SearchLimits(time_limit_s, BUDGET))


def infeasible(problem: Problem) -> str | None:
    """Says why no placement can be feasible, where the limits alone show it."""
    decisions, memory = problem.decisions, problem.memory_limits
    unplaceable = np.flatnonzero(~decisions.allowed.any(axis=1))
    if len(unplaceable):
        op = problem.graph.op_names[decisions.first_ops[unplaceable[0]]]
        return f"no device supports operation {op!r} and all operations that are co-located with it"
    is_limited = memory.devices.any(axis=0)
    total_bytes, capacity = decisions.memory_bytes.sum(), memory.capacity_bytes.sum()
    if is_limited.all() and total_bytes > capacity:
        return (
            f"operations occupy {total_bytes:.0f} bytes, all devices together have {capacity:.0f}"
        )
    return None
