"""Search and proof of optimality for `makespan` by wider and wider decision diagrams.

A restricted diagram finds a placement. A relaxed diagram then tries to refute its latency, and
latencies halfway to the largest refuted one (a destructive bound; Klein and Scholl 1999). If no
state had to be left out, the placement is optimal. Bounds and proofs hold for the order of priority
that the problem gives.

Graphs that are series of narrow modules, such as convolutional networks, have few states at a time
and are solved in a fraction of a second. Recurrent networks of several layers have many states, and
the bounds here are no better than others (`placement.solvers.bounds.makespan`).
"""

import numpy as np

from placement.errors import UserError
from placement.problem import Problem
from placement.solvers import base
from placement.solvers.bounds import makespan
from placement.solvers.diagrams.sweep import (
    INITIAL_WIDTH,
    MAX_ROWS,
    Diagram,
    make_diagram,
    sweep,
)
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_WIDTH_FACTOR = 4
_MAX_BOUND_WIDTH = 4096  # of diagrams that only compute a bound
_MAX_HALVINGS = 4  # attempts of one width to halve the gap between the bound and the best latency


def diagram(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Widens diagrams until the placement is proven to be optimal.

    If the time limit ends the search, its result may not repeat. Evaluations are the number of
    operations placed over N, which is the work of simulating so many placements.

    Raises:
      UserError: too many tensors are alive at a time.
    """
    diagram = make_diagram(problem)
    if diagram is None:
        raise UserError(
            f"graph {problem.graph.name!r} has more than {MAX_ROWS} tensors alive at a "
            "time; diagram is for narrower ones: give another method"
        )
    base.report_single_device(problem, limits)
    max_s = makespan.compute_longest_s(diagram.edges, diagram.windows.compute_s)
    best, value_s, bound_s, evaluations, width = None, np.inf, 0.0, 0, INITIAL_WIDTH
    while True:
        swept = sweep(diagram, min(value_s, max_s), width, limits, relaxed=False)
        evaluations += swept.evaluations
        if swept.placement is not None:
            swept_value_s = problem.value_s(swept.placement)
            if swept_value_s < value_s:
                best, value_s = swept.placement, swept_value_s
        limits.report(evaluations, value_s, best)
        if swept.exact:
            if best is None and swept.placement is None:
                return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
            bound_s = max(bound_s, swept.bound_s)
        else:
            bound_s, num_evaluations = _raise_bound(
                diagram, bound_s, min(value_s, max_s), width, limits
            )
            evaluations += num_evaluations
            limits.report(evaluations, value_s, best)
        is_proven = value_s <= bound_s * (1 + base.ROUNDING)
        # An exact sweep without the optimum: its placement exceeds a memory with the tensors alive
        # or with copies of constants, which diagrams do not know. Wider ones would not help.
        if is_proven or limits.is_over() or evaluations >= limits.budget or swept.exact:
            status = Status.TIME_LIMIT if limits.is_over() else Status.FINISHED
            return Solution(
                best,
                bound_s=bound_s,
                status=Status.OPTIMAL if is_proven else status,
                evaluations=evaluations,
                scope=base.GIVEN_ORDER,
            )
        width *= _WIDTH_FACTOR


def compute_bound(problem: Problem, limits: SearchLimits) -> float:
    """Computes a lower bound of the latency of every placement, in seconds, within the limits.

    It holds for the problem's order of priority.
    """
    diagram = make_diagram(problem)
    if diagram is None:
        return 0.0
    best_s = makespan.compute_longest_s(diagram.edges, diagram.windows.compute_s)
    bound_s, width = 0.0, INITIAL_WIDTH
    while width <= _MAX_BOUND_WIDTH and not limits.is_over():
        swept = sweep(diagram, best_s, width, limits, relaxed=False)
        best_s = min(best_s, swept.latency_s)
        if swept.exact:
            return swept.bound_s
        bound_s, _ = _raise_bound(diagram, bound_s, best_s, width, limits)
        if best_s <= bound_s * (1 + base.ROUNDING):
            break
        width *= _WIDTH_FACTOR
    return bound_s


def _raise_bound(
    diagram: Diagram, bound_s: float, best_s: float, width: int, limits: SearchLimits
) -> tuple[float, int]:
    """Raises a lower bound towards the best known latency; returns it and the evaluations."""
    evaluations, open_s, attempt_s = 0, best_s, best_s
    for _ in range(_MAX_HALVINGS):
        swept = sweep(diagram, attempt_s, width, limits, relaxed=True)
        evaluations += swept.evaluations
        bound_s = max(bound_s, swept.bound_s)
        if swept.bound_s < attempt_s:
            open_s = attempt_s
        if limits.is_over() or open_s <= bound_s * (1 + base.ROUNDING):
            break
        attempt_s = float(np.sqrt(bound_s * open_s))
    return bound_s, evaluations
