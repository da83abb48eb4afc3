"""The headroom of a problem: how much any placement can gain over the best single device."""

from typing import NamedTuple

import numpy as np

from placement import solvers
from placement.graphs import dag
from placement.instance import Instance


class Room(NamedTuple):
    """The range of a problem's values, in seconds of its objective."""

    single: int  # the best single device
    single_s: float  # its value; inf where no single device can run everything
    bound_s: float  # a lower bound of all placements; -inf where none is known
    optimal: bool  # whether a placement with value `bound_s` is known: only under `serial`
    # The longest path on the best single device as a share of its time: 1 where no two operations
    # can run at the same time, nan without a single device.
    chain: float


def find(problem: Instance, *, time_limit_s: float = 10.0) -> Room:
    """Bounds what any placement of a problem can gain, before any search.

    The bound is a minimum cut under `serial`, which is exact for two devices, and
    `solvers.lower_bound` under the other objectives.

    Args:
      problem: the problem.
      time_limit_s: for the bound.
    """
    num_ops, num_devices = problem.costs.compute_s.shape
    placements = np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_ops))
    values_s = np.array([problem.value_s(placement) for placement in placements])
    single, chain = int(values_s.argmin()), np.nan
    if np.isfinite(values_s[single]):
        seconds = np.asarray(problem.costs.compute_s, np.float64)[:, single]
        path_s = dag.longest_paths(problem.graph.senders, problem.graph.receivers, seconds)
        chain = float(path_s.max() / seconds.sum()) if seconds.any() else 1.0
    if problem.objective == "serial":
        solution = solvers.solve("graph_cut", problem, time_limit_s=time_limit_s)
        bound_s, optimal = solution.bound_s, solution.status == "optimal"
    else:
        bound_s, optimal = solvers.lower_bound(problem, time_limit_s=time_limit_s), False
    return Room(single, float(values_s[single]), bound_s, optimal, chain)
