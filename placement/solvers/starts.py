"""Fast methods for each objective, whose placements longer searches start from."""

import contextlib
from collections.abc import Iterator

from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base, graph_cut
from placement.solvers.diagrams import search as diagrams
from placement.solvers.heuristics import baechi, greedy, list_scheduling
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import ideals_dp, pipedream
from placement.types import Solution

# The fastest methods come first, because time may run out before the last.
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.graph_cut,),
    "makespan": (
        list_scheduling.heft,
        baechi.m_topo,
        list_scheduling.peft,
        baechi.m_etf,
        baechi.m_sct,
        diagrams.narrow_diagram,
    ),
    "max_load": (pipedream.pipedream, ideals_dp.linearised_dp),
    "subgraph": (
        greedy.fill_accelerators,
        pipedream.pipedream,
        ideals_dp.linearised_dp,
        ideals_dp.dp_split,
    ),
}


def find_starts(problem: Instance, seed: int, limits: SearchLimits) -> Iterator[Solution]:
    """Yields the placement of each method for the problem's objective.

    Leaves out methods that refuse the problem or find no placement.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of all methods together.
    """
    for method in STARTS[problem.objective]:
        if limits.is_over():
            return
        with contextlib.suppress(UserError):  # a method may refuse the problem
            result = method(problem, seed, limits)
            if result.placement is not None:
                yield result
