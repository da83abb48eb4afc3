"""OR-Tools' CP-SAT, an optional package: how it is imported, set up and run."""

from collections.abc import Callable
from typing import Any

from placement.solvers import base, native
from placement.solvers.limits import SearchLimits


def import_cp_model() -> Any:
    """Imports OR-Tools' module of CP-SAT.

    Raises:
      UserError: ortools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise base.missing("ortools") from error
    return cp_model


def make_solver(cp_model: Any, seed: int, limits: SearchLimits, *, num_workers: int) -> Any:
    """Makes a solver that ends when the time does."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.left_s()
    solver.parameters.num_workers = num_workers
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.catch_sigint_signal = False
    return solver


def solve(
    cp_model: Any,
    solver: Any,
    model: Any,
    limits: SearchLimits,
    on_solution: Callable[[Callable[[Any], Any]], None],
) -> Any:
    """Solves a model, and returns the solver's status.

    Args:
      cp_model: from `import_cp_model`.
      solver: from `make_solver`; it holds the solution afterwards.
      model: a `cp_model.CpModel`.
      limits: whose stop is looked for.
      on_solution: called with each better solution, as a function from variables to values.
    """

    class Callback(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            on_solution(self.value)

    callback = Callback()
    return native.call(lambda: solver.solve(model, callback), limits, solver.stop_search)
