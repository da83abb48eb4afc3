"""Search and proof of `makespan` by decision diagrams, wider and wider ones.

A restricted diagram finds a placement, whose latency a relaxed one then tries to refute: that, and
latencies halfway to the largest that was refuted (a destructive bound; Klein and Scholl 1999).
Where nothing had to be left out the placement is optimal. Graphs that are series of narrow modules,
such as networks of convolutions, have few states at a time, and so are solved in a fraction of a
second; of recurrent networks of several layers, whose states are many, the bounds here are no
better than others (`placement.solvers.bounds.makespan`).
"""

from typing import NamedTuple

import numpy as np

from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.bounds import makespan
from placement.solvers.diagrams import layers
from placement.solvers.diagrams.sweep import sweep
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_NARROWEST, _WIDER = 64, 4
_WIDEST = 4096  # of a bound alone
_QUICK = 128  # rows of tensors that a start may have
_HALVINGS = 4  # of what is between the bound and the best, with one width


class _Refuted(NamedTuple):
    """What relaxed diagrams proved."""

    bound_s: float
    evaluations: int


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Widens diagrams until the placement is proven to be optimal.

    A search that the clock ends need not repeat. Evaluations are operations that were placed, over
    those of a placement: what simulating so many placements would take.

    Raises:
      UserError: too many tensors are alive at a time.
    """
    del seed
    of = layers.make(problem)
    if of is None:
        raise UserError(
            f"graph {problem.graph.name!r} has more than {layers.MOST} tensors alive at a time; "
            "diagram is for narrower ones: give another method"
        )
    most_s = makespan.longest_s(of.edges, of.windows.compute_s)
    best, value_s, bound_s, evaluations, width = None, np.inf, 0.0, 0, _NARROWEST
    while True:
        swept = sweep(of, min(value_s, most_s), width, limits, relaxed=False)
        evaluations += swept.evaluations
        if swept.placement is not None:
            seconds = problem.value_s(swept.placement)
            if seconds < value_s:
                best, value_s = swept.placement, seconds
        limits.tell(evaluations, value_s, best)
        if swept.exact:
            if best is None and swept.placement is None:
                return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
            bound_s = max(bound_s, swept.bound_s)
        else:
            proved = _refute(of, bound_s, min(value_s, most_s), width, limits)
            bound_s, evaluations = proved.bound_s, evaluations + proved.evaluations
            limits.tell(evaluations, value_s, best)
        if value_s <= bound_s * (1 + base.ROUNDING):
            return Solution(best, bound_s=bound_s, status=Status.OPTIMAL, evaluations=evaluations)
        # What is exact and yet not the best cannot run: tensors that are alive do not fit.
        if limits.over() or evaluations >= limits.budget or swept.exact:
            ended = Status.TIME_LIMIT if limits.over() else Status.FINISHED
            return Solution(best, bound_s=bound_s, status=ended, evaluations=evaluations)
        width *= _WIDER


def start(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Finds what the narrowest diagram does, and whether that is proven; nothing of wide graphs.

    Nothing either where the time ends before.
    """
    del seed
    of = layers.make(problem, _QUICK)
    if of is None:
        return Solution(None)
    most_s = makespan.longest_s(of.edges, of.windows.compute_s)
    found = sweep(of, most_s, _NARROWEST, limits, relaxed=False)
    if found.placement is None:
        return Solution(None)
    proved = sweep(of, found.latency_s, _NARROWEST, limits, relaxed=True)
    proven = found.latency_s <= proved.bound_s * (1 + base.ROUNDING)
    status = Status.OPTIMAL if proven else Status.FINISHED
    return Solution(found.placement, bound_s=proved.bound_s, status=status)


def bound(problem: Instance, limits: SearchLimits) -> float:
    """Bounds the latency of every placement from below, in seconds: what was proved in time."""
    of = layers.make(problem)
    if of is None:
        return 0.0
    most_s = makespan.longest_s(of.edges, of.windows.compute_s)
    bound_s, best_s, width = 0.0, most_s, _NARROWEST
    while width <= _WIDEST and not limits.over():
        swept = sweep(of, best_s, width, limits, relaxed=False)
        best_s = min(best_s, swept.latency_s)
        if swept.exact:
            return swept.bound_s
        bound_s = _refute(of, bound_s, best_s, width, limits).bound_s
        if best_s <= bound_s * (1 + base.ROUNDING):
            break
        width *= _WIDER
    return bound_s


def _refute(
    of: layers.Diagram, bound_s: float, best_s: float, width: int, limits: SearchLimits
) -> _Refuted:
    """Raises a bound towards the best latency known."""
    evaluations, open_s, tried_s = 0, best_s, best_s
    for _ in range(_HALVINGS):
        swept = sweep(of, tried_s, width, limits, relaxed=True)
        evaluations += swept.evaluations
        bound_s = max(bound_s, swept.bound_s)
        if swept.bound_s < tried_s:
            open_s = tried_s
        if limits.over() or open_s <= bound_s * (1 + base.ROUNDING):
            break
        tried_s = float(np.sqrt(bound_s * open_s))
    return _Refuted(bound_s, evaluations)
