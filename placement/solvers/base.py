"""What every solver is given and returns.

A solver is a function `find(problem, seed, limits) -> SearchResult`; `placement.solvers.solve`
gives it a name, recomputes the value of what it found by the shared simulator and checks its bound.

Costs and tables are float32, as the simulators read them; solvers add them up in float64. So what a
solver takes for the value of a placement may differ from the simulator's by its rounding,
`ROUNDING` at most.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import dag, opgraph
from placement.solvers.limits import SearchLimits
from placement.types import Problem

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
Find = Callable[[Problem, int, SearchLimits], SearchResult]


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


def classes(problem: Problem) -> Classes:
    """The classes of a problem."""
    costs = problem.costs
    representative = opgraph.representatives(problem.graph)
    _, number = np.unique(representative, return_inverse=True)
    seconds = np.asarray(costs.compute_s, np.float64)
    compute_s = np.zeros((number.max() + 1, seconds.shape[1]))
    np.add.at(compute_s, number, seconds)
    memory_bytes = np.bincount(number, np.asarray(costs.memory_bytes, np.float64))
    return Classes(number.astype(np.int32), compute_s, memory_bytes)


def in_order(problem: Problem, of: Classes) -> np.ndarray:
    """int [C]: the classes by their first operation in topological order."""
    number = of.number[dag.topological_order(problem.graph)]
    return number[np.sort(np.unique(number, return_index=True)[1])]


def memory(problem: Problem) -> Memory:
    """The limited memories of a problem; none where nothing is limited."""
    costs = problem.costs
    capacity = np.asarray(costs.capacity_bytes, np.float64)
    accelerator = np.asarray(costs.accelerator)
    same = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    same |= np.eye(len(accelerator), dtype=bool)
    first = same.argmax(axis=1) == np.arange(len(accelerator))
    rows = first & np.isfinite(capacity)
    return Memory(same[rows], capacity[rows])


def missing(package: str) -> UserError:
    """What to raise where an optional package is not installed."""
    return UserError(f"{package} is not installed; pip install 'placement[solvers]'")


def import_cp_model() -> Any:
    """OR-Tools' module of CP-SAT.

    Raises:
      UserError: ortools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise missing("ortools") from error
    return cp_model


def on_solution(cp_model: Any, found: Callable[[Any], None]) -> Any:
    """A callback for CP-SAT, which calls found(callback) with each better solution.

    `callback.value(variable)` is what the solution gives a variable.
    """

    class Callback(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            found(self)

    return Callback()
