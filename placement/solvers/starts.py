"""What fast methods find for an objective: placements from which a search begins."""

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

# Those that take little time first, as it may end before the last.
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.find,),
    "makespan": (
        list_scheduling.heft,
        baechi.m_topo,
        list_scheduling.peft,
        baechi.m_etf,
        baechi.m_sct,
        diagrams.start,
    ),
    "max_load": (pipedream.pipedream, ideals_dp.linearised_dp),
    "subgraph": (
        greedy.find,
        pipedream.pipedream,
        ideals_dp.linearised_dp,
        ideals_dp.dp_split,
    ),
}


def find(problem: Instance, seed: int, limits: SearchLimits) -> Iterator[Solution]:
    """Yields what each method for the objective finds, until the limits are over.

    A method that refuses the problem, or that finds no placement, is left out.

    Args:
      problem: what is to be placed.
      seed: of all randomness.
      limits: of all methods together.
    """
    for method in STARTS[problem.objective]:
        if limits.over():
            return
        with contextlib.suppress(UserError):  # it is not for such a problem
            result = method(problem, seed, limits)
            if result.placement is not None:
                yield result
