"""What there is to gain by placing at all, known before any search."""

from typing import NamedTuple

import numpy as np

from placement import solvers
from placement.graphs import dag
from placement.instance import Instance
from placement.types import Status


class Room(NamedTuple):
    """What placements can be worth, in seconds of the problem's objective."""

    single: int  # the best single device
    single_s: float  # what it takes; inf where none can run everything
    bound_s: float  # no placement is below; -inf where nothing is known
    optimal: bool  # whether there is a placement at the bound: of `serial` alone
    # The longest path on the best single device, over its time: 1 where nothing can run beside
    # anything. nan without a single device.
    chain: float


def find(problem: Instance, *, time_limit_s: float = 10.0) -> Room:
    """Bounds what any placement of a problem can gain.

    Under `serial` by a minimum cut, which is exact for two devices; under the other objectives by
    `solvers.lower_bound`.

    Args:
      problem: what is to be placed.
      time_limit_s: for the bound.
    """
    num_ops, num_devices = problem.costs.compute_s.shape
    each = np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_ops))
    single_s = np.array([problem.value_s(row) for row in each])
    single, chain = int(single_s.argmin()), np.nan
    if np.isfinite(single_s[single]):
        seconds = np.asarray(problem.costs.compute_s, np.float64)[:, single]
        longest_s = dag.longest_paths(problem.graph.senders, problem.graph.receivers, seconds)
        chain = float(longest_s.max() / seconds.sum()) if seconds.any() else 1.0
    if problem.objective == "serial":
        solution = solvers.solve("graph_cut", problem, time_limit_s=time_limit_s)
        bound_s, optimal = solution.bound_s, solution.status == Status.OPTIMAL
    else:
        bound_s, optimal = solvers.lower_bound(problem, time_limit_s=time_limit_s), False
    return Room(single, float(single_s[single]), bound_s, optimal, chain)
