"""Placements from which every search starts: single devices, and results of fast methods.

All searches, learned or not, start from `evaluate_starts`, so that a comparison shows what they add
to the same placements. `SearchLimits.starts` leaves out the fast methods.
"""

import contextlib
import itertools
from collections.abc import Iterator

import numpy as np

from placement.errors import UserError
from placement.problem import Problem
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

_MAX_DIAGRAM_ROWS, _MAX_DIAGRAM_OPS = 128, 150  # rows of the states of a diagram, and its layers
# In graphs of more operations these would use up the time of the search: in a training step of NMT
# with eight layers they take more than 40 times as long as HEFT. A diagram takes some milliseconds
# for each operation.
_MAX_SLOW_OPS = 4_000
_SLOW = (baechi.m_etf,)
_SHARE = 0.1  # of the time; later methods do not contribute starts


def narrow_diagram(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Returns the placement of the narrowest diagram, and whether it is proven to be optimal.

    The placement is None if the graph is large or wide, or if the
    time ends before.
    """
    is_small = problem.graph.num_ops <= _MAX_DIAGRAM_OPS
    diagram = make_diagram(problem, _MAX_DIAGRAM_ROWS) if is_small else None
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


# Methods come by their gain per millisecond, measured on the suite: some time may not suffice for
# all, and a search begins before the last (`evaluate_starts`).
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.graph_cut,),
    "makespan": (
        list_scheduling.heft,
        list_scheduling.peft,
        partition.min_cut,
        human_expert.human_expert,
        baechi.m_etf,
        partition.metis,
        trivial.slices,
        baechi.m_topo,
        narrow_diagram,
    ),
    "max_load": (trivial.split_by_memory, pipedream.pipedream, ideals_dp.linearised_dp),
    "subgraph": (
        trivial.greedy,
        pipedream.pipedream,
        ideals_dp.linearised_dp,
        ideals_dp.dp_split,
    ),
}


def find_starts(
    problem: Problem, seed: int, limits: SearchLimits, *, with_diagram: bool = True
) -> Iterator[Solution]:
    """Yields the placement of each method for the problem's objective; none if starts are 'single'.

    Leaves out methods that refuse the problem, find no placement, or are slow on large graphs.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of all methods together.
      with_diagram: whether `narrow_diagram` is one of them.
    """
    is_large = problem.graph.num_ops > _MAX_SLOW_OPS
    for method in STARTS[problem.objective]:
        if limits.is_over() or limits.starts == "single":
            return
        if (is_large and method in _SLOW) or (method is narrow_diagram and not with_diagram):
            continue
        with contextlib.suppress(UserError):  # a method may refuse the problem
            result = method(problem, seed, limits)
            if result.placement is not None:
                yield result


def evaluate_starts(
    problem: Problem, seed: int, limits: SearchLimits, *, with_diagram: bool = True
) -> Iterator[Solution]:
    """Yields the single devices, then the results of `find_starts`, and reports each of them.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of the search. The starts take a tenth of the remaining seconds at most.
      with_diagram: whether `narrow_diagram` is one of them.

    Yields:
      A start with its value in the simulator. Its `evaluations` count all placements simulated so
      far, those that the fast methods simulated themselves included.
    """
    singles_s = base.report_single_device(problem, limits)
    if problem.objective != "makespan":  # these are the simulator's numbers under `makespan` alone
        singles_s = np.full_like(singles_s, np.inf)
    start_limits = limits.take_share(_SHARE, limits.budget, len(problem.devices))
    evaluations = 0
    singles = (Solution(placement) for placement in problem.single_devices)
    found = find_starts(problem, seed, start_limits, with_diagram=with_diagram)
    known_s = itertools.chain(singles_s, itertools.repeat(np.inf))
    for result, value_s in zip(itertools.chain(singles, found), known_s, strict=False):
        evaluations += max(1, result.evaluations)
        if evaluations > max(limits.budget, len(problem.devices)):
            return
        began_s = limits.elapsed_s()
        placement = np.asarray(result.placement, np.int32)
        if not np.isfinite(value_s):
            value_s = problem.value_s(placement)
        start_limits.extend(limits.elapsed_s() - began_s)  # the first value compiles the simulator
        limits.report(evaluations, float(value_s), placement)
        yield result._replace(placement=placement, value_s=float(value_s), evaluations=evaluations)
