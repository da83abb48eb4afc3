"""Integer programs on CP-SAT, of OR-Tools (an optional package).

Times are whole numbers of a unit, in which the horizon is about 2**30. Seconds that are added are
rounded down, so that a bound of the program is one of the problem, and no more than a 2**30-th a
term too low. Values are the simulator's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cp_sat, cpsat_makespan, program, program_search
from placement.types import Solution, Status

_UNITS = 2**30  # in a horizon
# More strategies than processors: they share what they learn, and taking turns pays.
_WORKERS = 8


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, of all placements.

    A search that the clock ends need not repeat.

    Raises:
      UserError: ortools is not installed.
    """
    if problem.objective == "makespan":
        return cpsat_makespan.find(problem, seed, limits)
    return program_search.search(problem, seed, limits, backend=solve)


def solve(
    built: program.Program,
    hint: np.ndarray | None,
    seed: int,
    limits: SearchLimits,
    on_solution: Callable[[np.ndarray], None],
) -> program.Outcome:
    """Solves a program: a `program_search.Backend`.

    Args:
      built: the program.
      hint: int [C], the device of each class to begin with, or None.
      seed: of the search.
      limits: when to stop.
      on_solution: called with each better solution.

    Raises:
      UserError: OR-Tools is not installed.
    """
    cp_model = cp_sat.import_cp_model()
    unit_s = built.horizon_s / _UNITS
    model, booleans, times = _model(cp_model, built, unit_s)
    model.minimize(times[built.total])
    if hint is not None:
        on = [{d: booleans[b] for d, b in enumerate(row)} for row in built.assigned.tolist()]
        cp_sat.hint(cp_model, model, on, hint, built.equal, limits)
    solver = cp_sat.make_solver(cp_model, seed, limits, num_workers=_WORKERS)

    def assigned(value: Callable[[Any], Any]) -> np.ndarray:
        return np.array([[value(booleans[b]) for b in row] for row in built.assigned], bool)

    status = cp_sat.solve(
        cp_model, solver, model, limits, lambda value: on_solution(assigned(value))
    )
    if status == cp_model.INFEASIBLE:
        return program.Outcome(Status.INFEASIBLE, None, np.nan)
    bound_s = solver.best_objective_bound * unit_s
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return program.Outcome(Status.TIME_LIMIT, None, max(bound_s, 0.0))
    ended = Status.OPTIMAL if status == cp_model.OPTIMAL else Status.TIME_LIMIT
    return program.Outcome(ended, assigned(solver.value), bound_s)


def _model(cp_model: Any, built: program.Program, unit_s: float) -> tuple[Any, list, list]:
    model = cp_model.CpModel()
    booleans = [model.new_bool_var("") for _ in range(built.num_booleans)]
    times = [model.new_int_var(int(s / unit_s), _UNITS, "") for s in built.lower_s]

    def literal(number: int) -> Any:
        return booleans[number] if number >= 0 else ~booleans[~number]

    def weighted(terms: Any, whole: Any) -> Any:
        numbers, weights = [b for b, _ in terms], [whole(w) for _, w in terms]
        return cp_model.LinearExpr.weighted_sum([booleans[b] for b in numbers], weights)

    for clause in built.clauses:
        model.add_bool_or([literal(number) for number in clause])
    for row in built.exactly_one:
        model.add_exactly_one([booleans[b] for b in row])
    for few in built.at_least:
        total = sum(booleans[b] for b in few.booleans)
        model.add(total >= few.least).only_enforce_if(literal(few.when))
    for most in built.at_most:
        bytes_, capacity = cp_sat.whole_bytes(np.array([w for _, w in most.terms]), most.capacity)
        terms = zip([b for b, _ in most.terms], bytes_, strict=True)
        model.add(weighted(list(terms), int) <= capacity)
    for after in built.afters:
        early = sum(times[t] for t in after.early)
        limit = early + weighted(after.terms, lambda s: int(s / unit_s))
        row = model.add(times[after.late] >= limit)
        if after.when:
            row.only_enforce_if([literal(number) for number in after.when])
    return model, booleans, times
