"""A search by an integer program: a warm start, then a better placement or a proof."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from placement.instance import Instance
from placement.solvers import base
from placement.solvers.bounds import counting
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import max_load_program, subgraph_program, warm_start
from placement.solvers.programs.presolve import presolve
from placement.solvers.programs.program import Outcome, Program
from placement.types import Solution, Status

_SUM_PRECISION = 1e-9  # relative: the rounding of float64 sums

# (problem, tasks, horizon_s, lower_s) -> the program whose times end at the horizon. That of
# max_load takes `contiguous` as well.
BuildProgram = Callable[..., Program]
# (program, hint int [C] or None, seed, limits, on_solution) -> Outcome. The hint has the device of
# each class. A solver that can calls on_solution(assignment) with each better solution, from any
# thread.
SolveProgram = Callable[
    [Program, np.ndarray | None, int, SearchLimits, Callable[[np.ndarray], None]], Outcome
]


class Formulation(NamedTuple):
    """The program of an objective and a lower bound of the objective."""

    build: BuildProgram
    compute_bound_s: Callable[[Instance], float]


FORMULATIONS: dict[str, Formulation] = {
    "max_load": Formulation(max_load_program.build, counting.bound_max_load),
    "subgraph": Formulation(subgraph_program.build, counting.bound_subgraph),
}


def search(
    problem: Instance,
    seed: int,
    limits: SearchLimits,
    *,
    solve: SolveProgram,
    contiguous: bool = False,
) -> Solution:
    """Finds the best placement by an integer program.

    Args:
      problem: a problem with an objective in `FORMULATIONS`.
      seed: of the warm start and of the solver.
      limits: the time limit and the budget of the warm start.
      solve: solves the program.
      contiguous: whether to admit only contiguous placements; under max_load alone.
    """
    formulation = FORMULATIONS[problem.objective]
    lower_s = formulation.compute_bound_s(problem)
    scope = base.CONTIGUOUS if contiguous else base.ALL
    start = warm_start.find_warm_start(problem, seed, limits, contiguous=contiguous)
    best, value_s, evaluations = start
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
    build = partial(formulation.build, contiguous=True) if contiguous else formulation.build

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
