"""OR-Tools' CP-SAT, an optional package: its import, its runs and the hints it begins with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import chex
import numpy as np

from placement.solvers import base, native
from placement.solvers.limits import SearchLimits

_HINT_SHARE = 0.1  # of the remaining time
_MAX_SUM_BITS = 50  # of a sum of bytes


def import_cp_model() -> Any:
    """Imports OR-Tools' module of CP-SAT.

    Raises:
      UserError: ortools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise base.make_missing_error("ortools") from error
    return cp_model


def solve(
    cp_model: Any,
    model: Any,
    limits: SearchLimits,
    parameters: Mapping[str, int],
    on_solution: Callable[[Callable[[Any], Any]], None] | None = None,
) -> tuple[Any, Any]:
    """Solves a model within the limits.

    Args:
      cp_model: from `import_cp_model`.
      model: a `cp_model.CpModel`.
      limits: the time limit, and polled for a stop.
      parameters: further parameters of CP-SAT by name, such as `num_workers`.
      on_solution: called with each better solution, as a function from variables to values.

    Returns:
      The status, and the solver, which holds the solution.
    """

    class Callback(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if on_solution is not None:
                on_solution(self.value)

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.remaining_s()
    solver.parameters.catch_sigint_signal = False
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    callback = None if on_solution is None else Callback()
    status = native.call(lambda: solver.solve(model, callback), limits, solver.stop_search)
    return status, solver


def add_hint(
    cp_model: Any,
    model: Any,
    device_booleans: Sequence[Mapping[int, Any]],
    class_devices: np.ndarray,
    first_equal: np.ndarray,
    limits: SearchLimits,
) -> None:
    """Adds a hint to all variables: a solution with the given devices, up to their numbering.

    A search of its own finds the values of the other variables. It also finds how equal devices are
    numbered, because the rows that break symmetries admit only one numbering.

    Args:
      cp_model: from `import_cp_model`.
      model: a `cp_model.CpModel`.
      device_booleans: for each class, the Booleans that it is on a device.
      class_devices: int [C], the device of each class.
      first_equal: int [D], for each device the first that is equal.
      limits: a tenth of the remaining time is spent at most. No hint is added if that is too short.
    """
    chex.assert_rank([class_devices, first_equal], 1)
    chex.assert_type([class_devices, first_equal], int)
    hint_model = model.clone()
    equal_devices = [np.flatnonzero(first_equal == first).tolist() for first in first_equal]
    # is_renamed[d, e]: the hint's device d is called e.
    is_renamed = {
        (d, e): hint_model.new_bool_var("") for d, equal in enumerate(equal_devices) for e in equal
    }
    for d, equal in enumerate(equal_devices):
        hint_model.add_exactly_one(is_renamed[d, e] for e in equal)
        hint_model.add_exactly_one(is_renamed[e, d] for e in equal)
    for booleans, d in zip(device_booleans, class_devices.tolist(), strict=True):
        for e, boolean in booleans.items():
            hint_model.add(boolean == is_renamed.get((d, e), 0))
    status, solver = solve(
        cp_model,
        hint_model,
        limits.take_share(_HINT_SHARE, 0),
        {"num_workers": 1, "random_seed": 0},
    )
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        for index in range(len(model.proto.variables)):
            variable = model.get_int_var_from_proto_index(index)
            model.add_hint(variable, solver.value(variable))


def round_bytes(num_bytes: np.ndarray, capacity: float) -> tuple[list[int], int]:
    """Rounds bytes [C] and a capacity down to whole units, as small as sums of integers allow.

    A float32 loses nothing, unless it is a millionth of the capacity or less.
    """
    chex.assert_rank(num_bytes, 1)
    chex.assert_type(num_bytes, float)
    unit = 2.0 ** (np.ceil(np.log2(max(num_bytes.sum(), capacity, 1.0))) - _MAX_SUM_BITS)
    return np.floor(num_bytes / unit).astype(int).tolist(), int(capacity / unit)
