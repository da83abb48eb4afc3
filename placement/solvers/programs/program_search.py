"""Searches by integer and constraint programs: a warm start, then a better placement or a proof.

`milp` and `milp_noncontiguous` solve integer programs on HiGHS, `cpsat` solves the same on CP-SAT.
Under `makespan` the program of `cpsat` is that of `placement.solvers.programs.cpsat_makespan`.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from placement.instance import Instance
from placement.solvers import base, starts
from placement.solvers.bounds import counting
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import (
    cpsat_makespan,
    cpsat_solver,
    highs,
    max_load_program,
    subgraph_program,
)
from placement.solvers.programs.presolve import presolve
from placement.solvers.programs.program import Outcome, Program
from placement.types import Solution, Status

_SUM_PRECISION = 1e-9  # relative: the rounding of float64 sums

# (program, hint int [C] or None, seed, limits, on_solution) -> Outcome. The hint has the device of
# each class. A solver that can calls on_solution(assignment) with each better solution, from any
# thread.
SolveProgram = Callable[
    [Program, np.ndarray | None, int, SearchLimits, Callable[[np.ndarray], None]], Outcome
]

# For each objective, the function that builds its program of (problem, tasks, horizon_s, lower_s),
# whose times end at the horizon, and a lower bound of the objective.
_FORMULATIONS: dict[str, tuple[Callable[..., Program], Callable[[Instance], float]]] = {
    "max_load": (max_load_program.build, counting.bound_max_load),
    "subgraph": (subgraph_program.build, counting.bound_subgraph),
}


def milp(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """An integer program on HiGHS; under max_load, over contiguous placements."""
    contiguous = problem.objective == "max_load"
    return _search(problem, seed, limits, highs.solve_program, contiguous=contiguous)


def milp_noncontiguous(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """An integer program on HiGHS, over all placements."""
    return _search(problem, seed, limits, highs.solve_program)


def cpsat(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, over all placements; under makespan, in the given order.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    if problem.objective == "makespan":
        return cpsat_makespan.solve_makespan(problem, seed, limits)
    return _search(problem, seed, limits, cpsat_solver.solve_program)


def cpsat_free(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, over all placements and all orders of priority.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    return cpsat_makespan.solve_makespan(problem, seed, limits, is_order_free=True)


def _search(
    problem: Instance,
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
    start = starts.find_warm_start(problem, seed, limits, contiguous=contiguous)
    best, value_s = start, np.inf  # the value of the program's last solution
    if start.value_s <= lower_s * (1 + _SUM_PRECISION):
        return start._replace(bound_s=start.value_s, status=Status.OPTIMAL, scope=scope)
    tasks = presolve(problem)
    if start.placement is not None:
        horizon_s, hint = start.value_s * (1 + base.ROUNDING), tasks.to_classes(start.placement)
    else:  # the sum of all costs: no finite value is above it
        costs = (tasks.compute_s, tasks.receive_s, tasks.send_s)
        total_s = sum(float(np.where(np.isfinite(c), c, 0.0).sum()) for c in costs)
        horizon_s, hint = max(total_s, 1.0), None
    if contiguous:
        build = partial(build, contiguous=True)

    def report(assignment: np.ndarray) -> None:
        nonlocal best, value_s
        placement = tasks.to_operations(assignment.argmax(axis=1))
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
