"""What every solver is given and returns.

A solver is a function `find(problem, seed, limits) -> SearchResult`; `placement.solvers.solve`
gives it a name, recomputes the value of what it found by the shared simulator and checks its bound.

Costs and tables are float32, as the simulators read them; solvers add them up in float64. So what a
solver takes for the value of a placement may differ from the simulator's by its rounding,
`ROUNDING` at most.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np

from placement.errors import UserError, missing_extra
from placement.instance import Instance
from placement.solvers.limits import SearchLimits

ROUNDING = 1e-5  # relative
ALL, CONTIGUOUS = "all", "contiguous"  # of `SearchResult.scope`


class SearchResult(NamedTuple):
    """What a solver found."""

    placement: np.ndarray | None  # int [N]; None where it found none
    bound_s: float = float("nan")  # a proven lower bound of the placements in `scope`
    # 'optimal' (in `scope`), 'finished', 'time limit', 'interrupted' or 'infeasible'
    status: str = "finished"
    evaluations: int = 0  # placements simulated
    # What the bound and the status hold for: ALL placements, or the CONTIGUOUS ones alone, in which
    # an order of the devices exists that every tensor follows
    # (`placement.solvers.splits.contiguous`). `milp` looks at each device by itself, as the paper's
    # program does: no path leaves it and returns. That admits more placements, so that its bound
    # holds for these as well.
    scope: str = ALL


# (problem, seed, limits) -> SearchResult. Randomness comes from the seed alone.
Find = Callable[[Instance, int, SearchLimits], SearchResult]


def group_capacity_bytes(problem: Instance, group: np.ndarray) -> np.ndarray:
    """Returns float64 [K]: the memory of all devices of a group, inf if one has no limit.

    Args:
      problem: a problem with D devices.
      group: int [D]: the group of each device, numbered from 0.
    """
    chex.assert_shape(group, (len(problem.devices),))
    chex.assert_type(group, int)
    limited = problem.memory_limits
    total = np.zeros(group.max() + 1)
    total[group[~limited.devices.any(axis=0)]] = np.inf
    for devices, capacity in zip(limited.devices, limited.capacity_bytes, strict=True):
        total[np.unique(group[devices])] += capacity
    return total


def equal_devices(columns: np.ndarray) -> np.ndarray:
    """Returns int [D]: for each device the first one with an equal column of [*, D] numbers."""
    chex.assert_rank(columns, 2)
    rows = np.ascontiguousarray(columns.T)
    return np.array(
        [next(d for d, first in enumerate(rows) if (first == row).all()) for row in rows]
    )


def missing(package: str) -> UserError:
    """Returns the error to raise if an optional package is not installed."""
    return UserError(missing_extra(package, "solvers"))
