"""Placements of fast methods for each objective, from which longer and exact searches start."""

import contextlib
from collections.abc import Iterator

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.problem import Problem
from placement.solvers import base, graph_cut
from placement.solvers.bounds import makespan
from placement.solvers.diagrams.sweep import INITIAL_WIDTH, make_diagram, sweep
from placement.solvers.heuristics import (
    baechi,
    human_expert,
    list_scheduling,
    local_search,
    partition,
    trivial,
)
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import ideals_dp, pipedream
from placement.types import Solution, Status

_MAX_DIAGRAM_ROWS = 128  # rows of the states of a diagram
# In graphs of more operations these would use up the time of the search: in a training step of NMT
# with eight layers they take more than 40 times as long as HEFT.
_MAX_SLOW_OPS = 4_000
_SLOW = (baechi.m_etf, baechi.m_sct)
# Of a warm start.
_STARTS_SHARE, _IMPROVEMENT_SHARE = 0.06, 0.04  # of the remaining time
_MIN_STARTS_S = 1.0  # if so much remains, so that short limits are not worse than heuristics
_EVALUATIONS_PER_CLASS = 128  # while improving


def narrow_diagram(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Returns the placement of the narrowest diagram, and whether it is proven to be optimal.

    The placement is None if the graph is wide or the time ends before.
    """
    diagram = make_diagram(problem, _MAX_DIAGRAM_ROWS)
    if diagram is None:
        return Solution(None)
    max_s = makespan.compute_longest_s(diagram.edges, diagram.windows.compute_s)
    restricted = sweep(diagram, max_s, INITIAL_WIDTH, limits, relaxed=False)
    if restricted.placement is None:
        return Solution(None)
    relaxed = sweep(diagram, restricted.latency_s, INITIAL_WIDTH, limits, relaxed=True)
    is_optimal = restricted.latency_s <= relaxed.bound_s * (1 + base.ROUNDING)
    status = Status.OPTIMAL if is_optimal else Status.FINISHED
    return Solution(
        restricted.placement, bound_s=relaxed.bound_s, status=status, scope=base.GIVEN_ORDER
    )


# The fastest methods come first, because time may run out before the last.
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.graph_cut,),
    "makespan": (
        human_expert.human_expert,
        trivial.slices,
        partition.min_cut,
        partition.metis,
        list_scheduling.heft,
        baechi.m_topo,
        list_scheduling.peft,
        baechi.m_etf,
        narrow_diagram,
        baechi.m_sct,
    ),
    "max_load": (pipedream.pipedream, ideals_dp.linearised_dp),
    "subgraph": (
        trivial.greedy,
        pipedream.pipedream,
        ideals_dp.linearised_dp,
        ideals_dp.dp_split,
    ),
}


def find_starts(problem: Problem, seed: int, limits: SearchLimits) -> Iterator[Solution]:
    """Yields the placement of each method for the problem's objective.

    Leaves out methods that refuse the problem, find no placement, or are slow on large graphs.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of all methods together.
    """
    is_large = problem.graph.num_ops > _MAX_SLOW_OPS
    for method in STARTS[problem.objective]:
        if limits.is_over():
            return
        if is_large and method in _SLOW:
            continue
        with contextlib.suppress(UserError):  # a method may refuse the problem
            result = method(problem, seed, limits)
            if result.placement is not None:
                yield result


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
            is_inside = placement == device
            is_between = reach[is_inside].any(axis=0) & reach[:, is_inside].any(axis=1)
            if (is_between & ~is_inside).any():
                return False
        return True

    share = max(_STARTS_SHARE, _MIN_STARTS_S / max(_MIN_STARTS_S, limits.remaining_s()))
    results = find_starts(problem, seed, limits.take_share(share, limits.budget))
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
    budget = min(budget, _EVALUATIONS_PER_CLASS * len(problem.classes.compute_s))
    if contiguous or budget < local_search.NUM_CHAINS:
        return best
    improvement_limits = limits.take_share(_IMPROVEMENT_SHARE, budget, best.evaluations)
    improved = local_search.local_search(problem, seed, improvement_limits, best.placement)
    best = best._replace(evaluations=best.evaluations + improved.evaluations)
    if improved.placement is not None:
        take(improved.placement, best.evaluations + 1)
    return best
