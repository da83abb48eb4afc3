"""OR-Tools' CP-SAT, an optional package: how it is imported, set up and run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import chex
import numpy as np

from placement.solvers import base, native
from placement.solvers.limits import SearchLimits

_HINT_SHARE = 0.1  # of the time that is left
_BITS = 50  # of a sum of bytes


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


def whole_bytes(bytes_: np.ndarray, capacity: float) -> tuple[list[int], int]:
    """Returns bytes [C] and a capacity in whole units: as small as sums of integers allow.

    What is a float32 loses nothing, unless it is a millionth of the capacity or less.
    """
    chex.assert_rank(bytes_, 1)
    chex.assert_type(bytes_, float)
    unit = 2.0 ** (np.ceil(np.log2(max(bytes_.sum(), capacity, 1.0))) - _BITS)
    return np.floor(bytes_ / unit).astype(int).tolist(), int(capacity / unit)


def hint(
    cp_model: Any,
    model: Any,
    on: Sequence[Mapping[int, Any]],
    device: np.ndarray,
    equal: np.ndarray,
    limits: SearchLimits,
) -> None:
    """Hints at a solution in which classes are on given devices, all variables included.

    What the other variables are is found by a search of its own. So is which of equal devices goes
    by which number: rows that break symmetries admit but one choice.

    Args:
      cp_model: from `import_cp_model`.
      model: a `cp_model.CpModel`.
      on: of each class, the Booleans that it is on a device.
      device: int [C], the device of each class.
      equal: int [D], of each device the first that is equal.
      limits: a tenth of what is left is spent at most; after that there is no hint.
    """
    chex.assert_rank([device, equal], 1)
    chex.assert_type([device, equal], int)
    narrow = model.clone()
    like = [np.flatnonzero(equal == first).tolist() for first in equal]
    named = {(d, e): narrow.new_bool_var("") for d, others in enumerate(like) for e in others}
    for d, others in enumerate(like):
        narrow.add_exactly_one(named[d, e] for e in others)
        narrow.add_exactly_one(named[e, d] for e in others)
    for row, d in zip(on, device.tolist(), strict=True):
        for e, boolean in row.items():
            narrow.add(boolean == named.get((d, e), 0))
    solver = make_solver(cp_model, 0, limits.part(_HINT_SHARE, 0), num_workers=1)
    status = native.call(lambda: solver.solve(narrow), limits, solver.stop_search)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        for index in range(len(model.proto.variables)):
            variable = model.get_int_var_from_proto_index(index)
            model.add_hint(variable, solver.value(variable))


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
