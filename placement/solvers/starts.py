"""Placements of fast methods for each objective, from which longer searches start."""

import contextlib
from collections.abc import Iterator

from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base, graph_cut
from placement.solvers.bounds import makespan
from placement.solvers.diagrams.sweep import INITIAL_WIDTH, make_diagram, sweep
from placement.solvers.heuristics import (
    baechi,
    human_expert,
    list_scheduling,
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


def narrow_diagram(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Returns the placement of the narrowest diagram, and whether it is proven to be optimal.

    There is no placement if the graph is wide or if the time ends before.
    """
    del seed
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


def partition_accelerators(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Returns the placement of `min_cut`; raises UserError if pymetis is not installed."""
    del limits
    return Solution(partition.min_cut(problem, seed=seed))


def partition_devices(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Returns the placement of `metis`; raises UserError if pymetis is not installed."""
    del limits
    return Solution(partition.metis(problem, seed=seed))


# The fastest methods come first, because time may run out before the last.
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.graph_cut,),
    "makespan": (
        human_expert.human_expert,
        trivial.slices,
        partition_accelerators,
        partition_devices,
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


def find_starts(problem: Instance, seed: int, limits: SearchLimits) -> Iterator[Solution]:
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
