"""Searches by integer and constraint programs: a warm start, then a better placement or a proof.

`milp` and `milp_noncontiguous` solve integer programs on HiGHS, `cpsat` solves the same on CP-SAT.
Under `makespan` the program of `cpsat` is that of `placement.solvers.programs.cpsat_makespan`.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy import optimize, sparse

from placement.problem import Problem
from placement.solvers import base, native
from placement.solvers.bounds import counting
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import (
    cpsat_makespan,
    cpsat_solver,
    formulations,
    warm_start,
)
from placement.solvers.programs.presolve import presolve
from placement.solvers.programs.program import Outcome, Program
from placement.types import Solution, Status

_HORIZON_UNITS = 100.0
_GAP = 1e-7  # relative, at which HiGHS may end
_SUM_PRECISION = 1e-9  # relative: the rounding of float64 sums

# (program, hint int [C] or None, seed, limits, on_solution) -> Outcome. The hint has the device of
# each class. A solver that can calls on_solution(assignment) with each better solution, from any
# thread.
SolveProgram = Callable[
    [Program, np.ndarray | None, int, SearchLimits, Callable[[np.ndarray], None]], Outcome
]

# For each objective, the function that builds its program of (problem, tasks, horizon_s, lower_s),
# whose times end at the horizon, and a lower bound of the objective.
_FORMULATIONS: dict[str, tuple[Callable[..., Program], Callable[[Problem], float]]] = {
    "max_load": (formulations.build_max_load, counting.bound_max_load),
    "subgraph": (formulations.build_subgraph, counting.bound_subgraph),
}


def milp(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """An integer program on HiGHS; under max_load, over contiguous placements."""
    contiguous = problem.objective == "max_load"
    return _search(problem, seed, limits, solve_highs, contiguous=contiguous)


def milp_noncontiguous(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """An integer program on HiGHS, over all placements."""
    return _search(problem, seed, limits, solve_highs)


def cpsat(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, over all placements; under makespan, in the given order.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    if problem.objective == "makespan":
        return cpsat_makespan.solve_makespan(problem, seed, limits)
    return _search(problem, seed, limits, cpsat_solver.solve_program)


def cpsat_free(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, over all placements and all orders of priority.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    return cpsat_makespan.solve_makespan(problem, seed, limits, is_order_free=True)


def _search(
    problem: Problem,
    seed: int,
    limits: SearchLimits,
    solve: SolveProgram,
    *,
    contiguous: bool = False,
) -> Solution:
    """Finds the best placement by an integer program.

    Args:
      problem: a problem with an objective in `_FORMULATIONS`.
      seed: of the warm start and of the solver.
      limits: the time limit and the budget of the warm start.
      solve: solves the program.
      contiguous: whether to admit only contiguous placements; under max_load alone.
    """
    build, compute_bound_s = _FORMULATIONS[problem.objective]
    lower_s = compute_bound_s(problem)
    scope = base.CONTIGUOUS if contiguous else base.ALL
    start = warm_start.find_warm_start(problem, seed, limits, contiguous=contiguous)
    best, value_s = start, np.inf  # the value of the program's last solution
    if start.value_s <= lower_s * (1 + _SUM_PRECISION):
        return start._replace(bound_s=start.value_s, status=Status.OPTIMAL, scope=scope)
    tasks = presolve(problem)
    if start.placement is not None:
        horizon_s, hint = start.value_s * (1 + base.ROUNDING), np.empty(len(tasks.compute_s), int)
        hint[tasks.decision_class] = start.placement
    else:  # the sum of all costs: no finite value is above it
        costs = (tasks.compute_s, tasks.receive_s, tasks.send_s)
        total_s = sum(float(np.where(np.isfinite(c), c, 0.0).sum()) for c in costs)
        horizon_s, hint = max(total_s, 1.0), None
    if contiguous:
        build = partial(build, contiguous=True)

    def report(assignment: np.ndarray) -> None:
        nonlocal best, value_s
        placement = assignment.argmax(axis=1)[tasks.decision_class]
        value_s = problem.value_s(placement)
        if value_s <= best.value_s:
            best = best._replace(placement=placement, value_s=value_s)
        limits.report(start.evaluations, best.value_s, best.placement)

    outcome = solve(build(problem, tasks, horizon_s, lower_s), hint, seed, limits, report)
    if outcome.assignment is not None:
        report(outcome.assignment)
    status, bound_s = outcome.status, min(max(lower_s, outcome.bound_s), best.value_s)
    if status == Status.INFEASIBLE and best.placement is not None:  # none within the horizon
        status, bound_s = Status.OPTIMAL, best.value_s
    is_proven = best.value_s <= bound_s * (1 + base.ROUNDING)
    if status == Status.OPTIMAL and np.isinf(value_s) and not is_proven:
        # The program's optimum exceeds a memory with copies of constants or with the tensors alive,
        # which it does not know. Its bound holds all the same.
        status = Status.FINISHED
    return best._replace(bound_s=bound_s, status=status, scope=scope)


def solve_highs(
    program: Program,
    hint: np.ndarray | None,
    seed: int,
    limits: SearchLimits,
    on_solution: Callable[[np.ndarray], None],
) -> Outcome:
    """Solves a program on HiGHS, a solver of integer programs that comes with SciPy.

    A clause becomes a row, the sum of its literals >= 1. A row that holds only under conditions
    becomes

        row + (the most by which the row can be violated) * (number of conditions that are false).

    Times are measured in hundredths of the horizon. SciPy's interface to HiGHS accepts no initial
    solution. Instead, the horizon excludes all placements that are worse than the warm start.
    """
    del hint, seed, on_solution  # HiGHS reports no solution before its end
    unit_s = program.horizon_s / _HORIZON_UNITS
    first_time = program.num_booleans  # times are numbered behind the Booleans
    columns: list[int] = []
    weights: list[float] = []
    row_starts, minima = [0], []

    def add_row(terms: Iterable[tuple[int, float]], minimum: float) -> None:
        """Adds sum of weight * variable >= minimum over literals and times."""
        for number, weight in terms:
            if number < 0:  # 1 - b in place of ~b
                number, weight, minimum = ~number, -weight, minimum - weight
            columns.append(number)
            weights.append(weight)
        row_starts.append(len(columns))
        minima.append(minimum)

    for clause in program.clauses:
        add_row([(number, 1.0) for number in clause], 1.0)
    for booleans in program.exactly_one:
        add_row([(b, 1.0) for b in booleans], 1.0)
        add_row([(b, -1.0) for b in booleans], -1.0)
    for count in program.counts:
        terms = [*((b, 1.0) for b in count.booleans), (count.condition, -float(count.minimum))]
        add_row(terms, 0.0)
    for memory in program.memory_limits:
        scale = max(memory.capacity_bytes, 1.0) / _HORIZON_UNITS
        add_row([(b, -w / scale) for b, w in memory.terms], -memory.capacity_bytes / scale)
    for precedence in program.precedences:
        terms = [(b, -seconds / unit_s) for b, seconds in precedence.terms]
        terms += [(first_time + precedence.late, 1.0)]
        terms += [(first_time + t, -1.0) for t in precedence.early]
        added = sum(seconds for _, seconds in precedence.terms) / unit_s
        latest = _HORIZON_UNITS * len(precedence.early) + added
        violation = max(latest - program.lower_s[precedence.late] / unit_s, 0.0)
        add_row([*terms, *((~number, violation) for number in precedence.conditions)], 0.0)

    num_variables = first_time + len(program.lower_s)
    matrix = sparse.csr_array((weights, columns, row_starts), shape=(len(minima), num_variables))
    matrix.sum_duplicates()
    lower = np.concatenate([np.zeros(first_time), np.array(program.lower_s) / unit_s])
    upper = np.concatenate([np.ones(first_time), np.full(len(program.lower_s), _HORIZON_UNITS)])
    run = partial(
        optimize.milp,
        np.eye(1, num_variables, first_time + program.total)[0],
        integrality=np.arange(num_variables) < first_time,
        bounds=optimize.Bounds(lower, upper),
        constraints=optimize.LinearConstraint(matrix, np.array(minima), np.inf),
        options={"time_limit": max(limits.remaining_s(), 0.01), "mip_rel_gap": _GAP},
    )
    result = native.call(run, limits)
    if result is None:
        return Outcome(Status.TIME_LIMIT, None, 0.0)
    if result.status == 2:
        return Outcome(Status.INFEASIBLE, None, np.nan)
    bound_s = 0.0 if result.mip_dual_bound is None else float(result.mip_dual_bound) * unit_s
    assignment = None if result.x is None else result.x[program.assignment] > 0.5
    return Outcome(Status.OPTIMAL if result.status == 0 else Status.TIME_LIMIT, assignment, bound_s)
