"""The front of latency against output error under `serial`, by parametric minimum cuts.

Errors add up as a model: a placement p has the error sum_n errors[n, p[n]]. For a multiplier m >= 0
the placement that minimises

    latency_s(p) + m * error(p)

is a minimum cut (`graph_cut`), because m * errors are costs of operations like `compute_s`. All
such placements form the lower convex hull of all placements in the plane of error and latency. Each
is the fastest of all placements whose error is no larger. Between two successive vertices of the
hull there may be faster placements for a given error, which no multiplier finds.

The hull is found from its ends inwards. Two neighbours a and b, of which a is faster, define the
multiplier at which both cost the same,

    m = (latency_s(b) - latency_s(a)) / (error(a) - error(b)).

If a third placement costs less at this multiplier, it is a vertex between them, and both halves are
searched in the same way. Otherwise no vertex is between them (Eisner and Severance 1976).
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.instance import Instance
from placement.solvers.graph_cut import collect_costs, evaluate, minimise
from placement.solvers.limits import SearchLimits

_ROUNDING = 1e-6  # relative: the gain of a new vertex must exceed it


class FrontPoint(NamedTuple):
    """A vertex of the front."""

    placement: np.ndarray  # int32 [N]
    latency_s: float
    error: float


def error_front(problem: Instance, errors: np.ndarray, limits: SearchLimits) -> list[FrontPoint]:
    """Finds the placements that are fastest for some multiplier of the error.

    With two devices the hull is exact; with more it is as good as alpha-expansion. Memory limits
    are ignored.

    Args:
      problem: with objective `serial`.
      errors: float [N, D], at least 0: the error that each operation adds on each device; inf where
        it must not be on the device.
      limits: after them the vertices found so far are returned. Both ends are always found.

    Returns:
      The vertices, the fastest first: latencies increase and errors decrease. The last one has the
      least error possible. Empty if no placement can run.
    """
    chex.assert_shape(errors, np.shape(problem.costs.compute_s))
    classes, costs = problem.classes, collect_costs(problem)
    class_errors = np.zeros_like(costs.compute_s)
    np.add.at(class_errors, classes.ids, errors)
    compute_s = np.where(np.isinf(class_errors), np.inf, costs.compute_s)
    class_errors[np.isinf(compute_s)] = 0.0  # the infinite times forbid these

    def solve(compute_s: np.ndarray) -> FrontPoint | None:
        placement, _ = minimise(costs._replace(compute_s=compute_s), limits)
        latency_s = evaluate(costs, placement)
        rows = np.arange(len(placement))
        if np.isinf(latency_s) or np.isinf(compute_s[rows, placement]).any():
            return None
        error = float(class_errors[rows, placement].sum())
        return FrontPoint(placement[classes.ids].astype(np.int32), latency_s, error)

    fastest = solve(compute_s)
    if fastest is None:
        return []
    least_error = np.where(np.isinf(compute_s), np.inf, class_errors).min(axis=1, keepdims=True)
    most_accurate = solve(np.where(class_errors <= least_error, compute_s, np.inf))
    if most_accurate is None or most_accurate.error >= fastest.error:
        return [fastest]

    front = [fastest]
    pending = [(fastest, most_accurate)]
    while pending:
        left, right = pending.pop()
        middle = None
        if not limits.is_over():
            multiplier = (right.latency_s - left.latency_s) / (left.error - right.error)
            middle = solve(compute_s + multiplier * class_errors)
            if middle is not None:
                cost_s, bound_s = (
                    point.latency_s + multiplier * point.error for point in (middle, left)
                )
                if cost_s >= bound_s * (1 - _ROUNDING):
                    middle = None
        if middle is None:
            front.append(right)
        else:
            pending += [(middle, right), (left, middle)]
    return front
