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
    """A constraint program on CP-SAT, over all placements.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    if problem.objective == "makespan":
        return cpsat_makespan.solve_makespan(problem, seed, limits, starts.find_warm_start)
    return _search(problem, seed, limits, cpsat_solver.solve_program)


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
    best, value_s, evaluations = start.placement, start.value_s, start.evaluations
    if value_s <= lower_s * (1 + _SUM_PRECISION):
        return Solution(
            best, bound_s=value_s, status=Status.OPTIMAL, evaluations=evaluations, scope=scope
        )
    tasks = presolve(problem)
    if best is not None:
        horizon_s, hint = value_s * (1 + base.ROUNDING), tasks.to_classes(best)
    else:  # the sum of all costs: no finite value is above it
        costs = (tasks.compute_s, tasks.receive_s, tasks.send_s)
        total_s = sum(float(np.where(np.isfinite(c), c, 0.0).sum()) for c in costs)
        horizon_s, hint = max(total_s, 1.0), None
    if contiguous:
        build = partial(build, contiguous=True)

    def evaluate(assignment: np.ndarray) -> tuple[np.ndarray, float]:
        placement = tasks.to_operations(assignment.argmax(axis=1))
        return placement, problem.value_s(placement)

    def report(assignment: np.ndarray) -> None:
        placement, seconds = evaluate(assignment)
        limits.report(start.evaluations, seconds, placement)

    outcome = solve(build(problem, tasks, horizon_s, lower_s), hint, seed, limits, report)
    if outcome.assignment is not None:
        placement, seconds = evaluate(outcome.assignment)
        evaluations += 1
        if seconds <= value_s:
            best, value_s = placement, seconds
        limits.report(evaluations, value_s, best)
    if outcome.status == "infeasible" and best is not None:  # nothing is better than the horizon
        return Solution(
            best, bound_s=value_s, status=Status.OPTIMAL, evaluations=evaluations, scope=scope
        )
    bound_s = min(max(lower_s, outcome.bound_s), value_s)
    return Solution(
        best, bound_s=bound_s, status=outcome.status, evaluations=evaluations, scope=scope
    )
