"""A search by an integer program: a placement known beforehand, then a better one or a proof."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from placement.instance import Instance
from placement.solvers import base
from placement.solvers.bounds import counting
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import max_load_program, subgraph_program, warm_start
from placement.solvers.programs.presolve import Presolved, presolve
from placement.solvers.programs.program import Outcome, Program
from placement.types import Solution, Status

_EXACT = 1e-9  # relative: what float64 sums differ by

# (problem, tasks, horizon_s, lower_s) -> the program whose times end at the horizon. That of
# max_load takes `contiguous` as well.
Build = Callable[..., Program]
# (program, hint int [C] or None, seed, limits, on_solution) -> Outcome. A backend that can is to
# call on_solution(assigned) with each solution better than all before, in any thread.
Backend = Callable[
    [Program, np.ndarray | None, int, SearchLimits, Callable[[np.ndarray], None]], Outcome
]


class Formulation(NamedTuple):
    """An objective as programs see it."""

    build: Build
    lower_s: Callable[[Instance], float]


FORMULATIONS: dict[str, Formulation] = {
    "max_load": Formulation(max_load_program.build, counting.max_load),
    "subgraph": Formulation(subgraph_program.build, counting.subgraph),
}


def search(
    problem: Instance,
    seed: int,
    limits: SearchLimits,
    *,
    backend: Backend,
    contiguous: bool = False,
) -> Solution:
    """Finds the best placement by a backend, or the best contiguous one (under max_load).

    Args:
      problem: whose objective is in `FORMULATIONS`.
      seed: of the placement to begin with and of the backend.
      limits: when to stop.
      backend: solves the program.
      contiguous: whether contiguous placements alone count.
    """
    formulation = FORMULATIONS[problem.objective]
    lower_s, scope = formulation.lower_s(problem), base.CONTIGUOUS if contiguous else base.ALL
    start = warm_start.find(problem, seed, limits, contiguous=contiguous)
    best, value_s = start.placement, start.value_s
    if value_s <= lower_s * (1 + _EXACT):
        return Solution(
            best, bound_s=value_s, status=Status.OPTIMAL, evaluations=start.evaluations, scope=scope
        )
    tasks = presolve(problem)
    horizon_s = value_s * (1 + base.ROUNDING) if best is not None else _any_value(tasks)
    build = partial(formulation.build, contiguous=True) if contiguous else formulation.build
    program = build(problem, tasks, horizon_s, lower_s)
    hint = None if best is None else tasks.lower(best)
    evaluations = start.evaluations

    def valued(assigned: np.ndarray) -> tuple[np.ndarray, float]:
        placement = tasks.lift(assigned.argmax(axis=1))
        return placement, problem.value_s(placement)

    def tell(assigned: np.ndarray) -> None:
        placement, seconds = valued(assigned)
        limits.tell(evaluations, seconds, placement)

    outcome = backend(program, hint, seed, limits, tell)
    if outcome.assigned is not None:
        solution, solution_s = valued(outcome.assigned)
        evaluations += 1
        if solution_s <= value_s:
            best, value_s = solution, solution_s
        limits.tell(evaluations, value_s, best)
    if outcome.status == Status.INFEASIBLE and best is not None:
        # Nothing within the horizon is better.
        return Solution(
            best, bound_s=value_s, status=Status.OPTIMAL, evaluations=evaluations, scope=scope
        )
    bound_s = min(max(lower_s, outcome.bound_s), value_s)
    return Solution(
        best, bound_s=bound_s, status=outcome.status, evaluations=evaluations, scope=scope
    )


def _any_value(tasks: Presolved) -> float:
    """Sums all that computing and transfer could cost: no finite value is above."""
    costs = (tasks.compute_s, tasks.in_s, tasks.out_s)
    total = sum(float(np.where(np.isfinite(c), c, 0.0).sum()) for c in costs)
    return max(total, 1.0)
