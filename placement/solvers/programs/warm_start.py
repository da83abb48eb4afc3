"""The placement from which an exact search starts."""

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.solvers import base, starts
from placement.solvers.heuristics import local_search
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_STARTS_SHARE, _IMPROVEMENT_SHARE = 0.06, 0.04  # of the remaining time
_MIN_STARTS_S = 1.0  # if so much remains, so that short limits are not worse than heuristics
_EVALUATIONS_PER_DECISION = 128  # while improving


def find_warm_start(
    problem: Problem, seed: int, limits: SearchLimits, *, contiguous: bool = False
) -> Solution:
    """Finds a placement from which an exact search starts: the best of fast methods, improved.

    An exact search needs it as a horizon, as a hint and to fall back on. It is the best single
    device or result of `find_starts`, improved by local search. Local search ignores contiguity, so
    that it is left out for contiguous placements.

    Args:
      problem: the problem.
      seed: of all randomness.
      limits: a tenth of the remaining time is spent at most, or a second, not counting the
        compilation of the simulator.
      contiguous: whether to admit only contiguous placements.

    Returns:
      The placement with its value and the evaluations; None and inf if none is feasible.
    """
    base.report_single_device(problem, limits)
    if contiguous:  # paths within the forward or within the backward operations, bool [N, N]
        backward = problem.graph.backward
        reach = dag.reachability(problem.graph) & (backward[:, None] == backward)

    def is_admitted(placement: np.ndarray) -> bool:
        """Whether no path leaves a device and returns to it, where that matters."""
        for device in np.unique(placement) if contiguous else ():
            is_inside = problem.expand(placement) == device
            is_between = reach[is_inside].any(axis=0) & reach[:, is_inside].any(axis=1)
            if (is_between & ~is_inside).any():
                return False
        return True

    share = max(_STARTS_SHARE, _MIN_STARTS_S / max(_MIN_STARTS_S, limits.remaining_s()))
    results = starts.find_starts(problem, seed, limits.take_share(share, limits.budget))
    placements = [*problem.single_devices, *(result.placement for result in results)]
    best = Solution(None, np.inf)

    def take(placement: np.ndarray, evaluations: int) -> None:
        nonlocal best
        best = best._replace(evaluations=evaluations)
        value_s = problem.value_s(placement)
        if value_s < best.value_s and is_admitted(placement):
            best = best._replace(placement=placement, value_s=value_s)
        limits.report(evaluations, best.value_s, best.placement)

    for number, placement in enumerate(placements[: limits.budget], start=1):
        take(np.asarray(placement), number)
    # The result of the local search is evaluated once more.
    budget = limits.budget - best.evaluations - 1
    budget = min(budget, _EVALUATIONS_PER_DECISION * problem.num_decisions)
    if contiguous or budget < local_search.NUM_CHAINS:
        return best
    improvement_limits = limits.take_share(_IMPROVEMENT_SHARE, budget, best.evaluations)
    improved = local_search.local_search(problem, seed, improvement_limits, best.placement)
    best = best._replace(evaluations=best.evaluations + improved.evaluations)
    if improved.placement is not None:
        take(improved.placement, best.evaluations + 1)
    return best
