"""The interface of solvers.

A solver is a function `find(problem, seed, limits) -> Solution`. `placement.methods.solve` gives it
a name, computes the value of its placement in the problem's simulator and checks its bound.

Costs and tables are float32, as the simulators read them; solvers add them up in float64. So what a
solver takes for the value of a placement may differ from the simulator's by its rounding,
`ROUNDING` at most.
"""

from collections.abc import Callable

import chex
import numpy as np

from placement.errors import UserError, missing_extra
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution

ROUNDING = 1e-5  # relative
# The scopes of a solution. A placement is contiguous if an order of the devices exists that every
# tensor follows (`placement.solvers.splits.contiguous`). `milp` checks each device by itself, as
# the paper's program does: no path leaves it and returns. This admits more placements, so that its
# bound holds for the contiguous ones as well.
ALL, CONTIGUOUS = "all", "contiguous"


# (problem, seed, limits) -> Solution. Randomness comes from the seed alone.
Find = Callable[[Instance, int, SearchLimits], Solution]


def sum_group_capacity(problem: Instance, group: np.ndarray) -> np.ndarray:
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


def find_equal_devices(columns: np.ndarray) -> np.ndarray:
    """Returns int [D]: for each device the first one with an equal column of [*, D] numbers."""
    chex.assert_rank(columns, 2)
    rows = np.ascontiguousarray(columns.T)
    return np.array(
        [next(d for d, first in enumerate(rows) if (first == row).all()) for row in rows]
    )


def make_missing_error(package: str) -> UserError:
    """Returns the error to raise if an optional package is not installed."""
    return UserError(missing_extra(package, "solvers"))
