"""Programs on HiGHS, a solver of integer programs that comes with SciPy.

A clause becomes a row, the sum of its literals >= 1. A row that holds only under conditions becomes

    row + (the most by which the row can be violated) * (number of conditions that are false).

Times are measured in hundredths of the horizon. SciPy's interface to HiGHS accepts no initial
solution. Instead, the horizon excludes all placements that are worse than the warm start, and the
warm start is returned if no better one is found.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy import optimize, sparse

from placement.solvers import native
from placement.solvers.limits import SearchLimits
from placement.solvers.programs.program import Outcome, Program
from placement.types import Status

_HORIZON_UNITS = 100.0
_GAP = 1e-7  # relative, at which a search may end


def solve_program(
    program: Program,
    hint: np.ndarray | None,
    seed: int,
    limits: SearchLimits,
    on_solution: Callable[[np.ndarray], None],
) -> Outcome:
    """Solves a program: a `program_search.SolveProgram`.

    HiGHS uses neither the hint nor the seed, and reports no solution before its end.
    """
    del hint, seed, on_solution
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
