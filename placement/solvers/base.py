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

from placement.errors import UserError
from placement.graphs import dag, opgraph
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


class Classes(NamedTuple):
    """A problem's co-location classes, the C things that are placed.

    Classes are numbered by their first operation, so that without co-location class n is
    operation n.
    """

    number: np.ndarray  # int32 [N]: the class of every operation
    compute_s: np.ndarray  # float64 [C, D]: inf where a device does not support all of the class
    memory_bytes: np.ndarray  # float64 [C]

    @property
    def allowed(self) -> np.ndarray:
        """bool [C, D]: the devices that can run a class."""
        return np.isfinite(self.compute_s)


class Memory(NamedTuple):
    """Memories with a limit; parts of one accelerator share theirs."""

    devices: np.ndarray  # bool [K, D]: whose memory it is
    capacity_bytes: np.ndarray  # float64 [K]


def classes(problem: Instance) -> Classes:
    """Returns the classes of a problem."""
    costs = problem.costs
    representative = opgraph.representatives(problem.graph)
    _, number = np.unique(representative, return_inverse=True)
    seconds = np.asarray(costs.compute_s, np.float64)
    compute_s = dag.part_sums(number, seconds)
    memory_bytes = np.bincount(number, np.asarray(costs.memory_bytes, np.float64))
    return Classes(number.astype(np.int32), compute_s, memory_bytes)


def in_order(problem: Instance, of: Classes) -> np.ndarray:
    """Returns int [C]: the classes by their first operation in topological order."""
    number = of.number[problem.topological_order]
    return number[np.sort(np.unique(number, return_index=True)[1])]


def memory(problem: Instance) -> Memory:
    """Returns the limited memories of a problem; none where nothing is limited."""
    costs = problem.costs
    capacity = np.asarray(costs.capacity_bytes, np.float64)
    accelerator = np.asarray(costs.accelerator)
    same = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    same |= np.eye(len(accelerator), dtype=bool)
    first = same.argmax(axis=1) == np.arange(len(accelerator))
    rows = first & np.isfinite(capacity)
    return Memory(same[rows], capacity[rows])


def group_capacity_bytes(problem: Instance, group: np.ndarray) -> np.ndarray:
    """Returns float64 [K]: the memory of all devices of a group, inf where one has no limit.

    Args:
      problem: of D devices.
      group: int [D], from 0: which group each device is of.
    """
    chex.assert_shape(group, (len(problem.devices),))
    chex.assert_type(group, int)
    limited = memory(problem)
    total = np.zeros(group.max() + 1)
    total[group[~limited.devices.any(axis=0)]] = np.inf
    for devices, capacity in zip(limited.devices, limited.capacity_bytes, strict=True):
        total[np.unique(group[devices])] += capacity
    return total


def equal_devices(columns: np.ndarray) -> np.ndarray:
    """Returns int [D]: of each device the first one whose column of [*, D] numbers is equal."""
    chex.assert_rank(columns, 2)
    rows = np.ascontiguousarray(columns.T)
    return np.array(
        [next(d for d, other in enumerate(rows) if (other == row).all()) for row in rows]
    )


def interchangeable(problem: Instance, compute_s: np.ndarray, delay_s: np.ndarray) -> np.ndarray:
    """Returns int [D]: of each device the first it can change places with and nothing changes.

    Args:
      problem: whose memories are looked at.
      compute_s: [N, D].
      delay_s: [E, D, D].
    """
    of, equal = memory(problem), np.arange(len(problem.devices))
    limits = _limits(of, equal)
    for device in range(len(equal)):
        for first in np.unique(equal[:device]).tolist():
            swap = np.arange(len(equal))
            swap[[first, device]] = device, first
            same = np.array_equal(compute_s[:, swap], compute_s)
            same = same and np.array_equal(delay_s[:, swap][:, :, swap], delay_s)
            if same and _limits(of, swap) == limits:
                equal[device] = first
                break
    return equal


def _limits(of: Memory, devices: np.ndarray) -> list[tuple[list[bool], float]]:
    rows = zip(of.devices[:, devices].tolist(), of.capacity_bytes.tolist(), strict=True)
    return sorted(rows)


def missing(package: str) -> UserError:
    """Returns what to raise where an optional package is not installed."""
    return UserError(f"{package} is not installed; pip install 'placement[solvers]'")
