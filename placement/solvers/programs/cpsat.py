"""Programs on CP-SAT, a constraint solver of OR-Tools (`cpsat`; an optional package).

Under `makespan` the program is that of `placement.solvers.programs.cpsat_makespan`. Under the other
objectives CP-SAT solves the integer programs that HiGHS also solves
(`placement.solvers.programs.milp`): clauses as they are, conditional rows by enforcement literals.

Times are whole numbers of a unit, 2**-30 of the horizon. Seconds that are added are rounded down.
So a bound of the program is a bound of the problem, and too low by one unit per term at most.
Values are the simulator's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cpsat_makespan, cpsat_solver, program_search
from placement.solvers.programs.program import Outcome, Program
from placement.types import Solution, Status

_HORIZON_UNITS = 2**30
# More strategies than processors: they share what they learn, and taking turns pays.
_NUM_WORKERS = 8


def cpsat(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, over all placements.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    if problem.objective == "makespan":
        return cpsat_makespan.solve_makespan(problem, seed, limits)
    return program_search.search(problem, seed, limits, solve=solve)


def solve(
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
    cp_model = cpsat_solver.import_cp_model()
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
        units, capacity = cpsat_solver.round_bytes(num_bytes, memory.capacity_bytes)
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
        cpsat_solver.add_hint(
            cp_model, model, device_booleans, hint, program.first_equal_device, limits
        )

    def read_assignment(value: Callable[[Any], Any]) -> np.ndarray:
        return np.array([[value(booleans[b]) for b in row] for row in program.assignment], bool)

    status, solver = cpsat_solver.solve(
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
