"""Programs on CP-SAT, a constraint solver of OR-Tools, which is an optional package.

`solve_program` solves the integer programs that HiGHS also solves: clauses as they are, conditional
rows by enforcement literals. Times are whole numbers of a unit, 2**-30 of the horizon. Seconds that
are added are rounded down. So a bound of the program is a bound of the problem, and too low by one
unit per term at most. Values are the simulator's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import chex
import numpy as np

from placement.errors import import_extra
from placement.solvers import native
from placement.solvers.limits import SearchLimits
from placement.solvers.programs.program import Outcome, Program
from placement.types import Status

CP_MODEL = "ortools.sat.python.cp_model"
_HORIZON_UNITS = 2**30
# More strategies than processors: they share what they learn, and taking turns pays.
_NUM_WORKERS = 8
_HINT_SHARE = 0.1  # of the remaining time
_MAX_SUM_BITS = 50  # of a sum of bytes


def solve(
    cp_model: Any,
    model: Any,
    limits: SearchLimits,
    parameters: Mapping[str, int],
    on_solution: Callable[[Callable[[Any], Any]], None] | None = None,
) -> tuple[Any, Any]:
    """Solves a model within the limits.

    Args:
      cp_model: OR-Tools' module `CP_MODEL`.
      model: a `cp_model.CpModel`.
      limits: polled for their end.
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

    A separate search finds the values of the other variables. It also finds how equal devices are
    numbered, because the rows that break symmetries admit only one numbering.

    Args:
      cp_model: OR-Tools' module `CP_MODEL`.
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


def solve_program(
    program: Program,
    hint: np.ndarray | None,
    seed: int,
    limits: SearchLimits,
    on_solution: Callable[[np.ndarray], None],
) -> Outcome:
    """Solves a program: a `program_search.SolveProgram`.

    Raises:
      UserError: OR-Tools is not installed.
    """
    cp_model = import_extra(CP_MODEL, "solvers")
    model = cp_model.CpModel()
    unit_s = program.horizon_s / _HORIZON_UNITS
    booleans = [model.new_bool_var("") for _ in range(program.num_booleans)]
    times = [model.new_int_var(int(s / unit_s), _HORIZON_UNITS, "") for s in program.lower_s]

    def literal(number: int) -> Any:
        return booleans[number] if number >= 0 else ~booleans[~number]

    def weighted_sum(terms: Any) -> Any:
        numbers, weights = [b for b, _ in terms], [w for _, w in terms]
        return cp_model.LinearExpr.weighted_sum([booleans[b] for b in numbers], weights)

    for clause in program.clauses:
        model.add_bool_or([literal(number) for number in clause])
    for row in program.exactly_one:
        model.add_exactly_one([booleans[b] for b in row])
    for count in program.counts:
        total = sum(booleans[b] for b in count.booleans)
        model.add(total >= count.minimum).only_enforce_if(literal(count.condition))
    for memory in program.memory_limits:
        num_bytes = np.array([w for _, w in memory.terms])
        units, capacity = round_bytes(num_bytes, memory.capacity_bytes)
        terms = [(b, u) for (b, _), u in zip(memory.terms, units, strict=True)]
        model.add(weighted_sum(terms) <= capacity)
    for precedence in program.precedences:
        added = weighted_sum([(b, int(s / unit_s)) for b, s in precedence.terms])
        start = sum(times[t] for t in precedence.early) + added
        row = model.add(times[precedence.late] >= start)
        if precedence.conditions:
            row.only_enforce_if([literal(number) for number in precedence.conditions])
    model.minimize(times[program.total])
    if hint is not None:
        device_booleans = [
            {d: booleans[b] for d, b in enumerate(row)} for row in program.assignment.tolist()
        ]
        add_hint(cp_model, model, device_booleans, hint, program.first_equal_device, limits)

    def read_assignment(value: Callable[[Any], Any]) -> np.ndarray:
        return np.array([[value(booleans[b]) for b in row] for row in program.assignment], bool)

    status, solver = solve(
        cp_model,
        model,
        limits,
        {"num_workers": _NUM_WORKERS, "random_seed": seed % 2**31},
        lambda value: on_solution(read_assignment(value)),
    )
    if status == cp_model.INFEASIBLE:
        return Outcome(Status.INFEASIBLE, None, np.nan)
    bound_s = solver.best_objective_bound * unit_s
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Outcome(Status.TIME_LIMIT, None, max(bound_s, 0.0))
    outcome = Status.OPTIMAL if status == cp_model.OPTIMAL else Status.TIME_LIMIT
    return Outcome(outcome, read_assignment(solver.value), bound_s)
