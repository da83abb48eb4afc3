"""Integer programs on HiGHS, which comes with SciPy.

A clause becomes a sum of literals >= 1, and what holds only if literals do is lifted by

    (what it may lack at most) * (number of the literals that do not hold).

Times are measured in hundredths of the horizon. SciPy's HiGHS takes no placement to start from:
the horizon cuts off what is worse than the one known, which is returned where none is better.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy import optimize, sparse

from placement.instance import Instance
from placement.solvers import native
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import program, program_search
from placement.types import Solution, Status

_UNITS = 100.0  # in a horizon
_GAP = 1e-7  # relative, at which a search may end


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """An integer program on HiGHS; under max_load, of contiguous placements."""
    contiguous = problem.objective == "max_load"
    return program_search.search(problem, seed, limits, backend=solve, contiguous=contiguous)


def find_noncontiguous(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """An integer program on HiGHS, of all placements."""
    return program_search.search(problem, seed, limits, backend=solve)


def solve(
    built: program.Program,
    hint: np.ndarray | None,
    seed: int,
    limits: SearchLimits,
    on_solution: Callable[[np.ndarray], None],
) -> program.Outcome:
    """Solves a program: a `program_search.Backend`.

    HiGHS gets neither the hint nor the seed, and tells what it found at its end.
    """
    del hint, seed, on_solution
    unit_s = built.horizon_s / _UNITS
    rows = _Rows(built.num_booleans)
    _add(rows, built, unit_s)
    count = built.num_booleans
    lower = np.concatenate([np.zeros(count), np.array(built.lower_s) / unit_s])
    upper = np.concatenate([np.ones(count), np.full(len(built.lower_s), _UNITS)])
    search = partial(
        optimize.milp,
        np.eye(1, len(lower), count + built.total)[0],
        integrality=np.arange(len(lower)) < count,
        bounds=optimize.Bounds(lower, upper),
        constraints=rows.constraint(len(lower)),
        options={"time_limit": max(limits.left_s(), 0.01), "mip_rel_gap": _GAP},
    )
    ended = native.call(search, limits)
    if ended is None:
        return program.Outcome(Status.TIME_LIMIT, None, 0.0)
    if ended.status == 2:
        return program.Outcome(Status.INFEASIBLE, None, np.nan)
    bound_s = 0.0 if ended.mip_dual_bound is None else float(ended.mip_dual_bound) * unit_s
    assigned = None if ended.x is None else ended.x[built.assigned] > 0.5
    return program.Outcome(
        Status.OPTIMAL if ended.status == 0 else Status.TIME_LIMIT, assigned, bound_s
    )


class _Rows:
    """Rows sum of weight * variable >= least that grow; Booleans come before times."""

    def __init__(self, num_booleans: int):
        self.num_booleans = num_booleans
        self.columns: list[int] = []
        self.weights: list[float] = []
        self.starts = [0]
        self.least: list[float] = []

    def add(self, terms: Iterable[tuple[int, float]], least: float) -> None:
        """Adds a row over literals, negative ones replaced, and times."""
        for number, weight in terms:
            if number < 0:  # 1 - b in place of ~b
                number, weight, least = ~number, -weight, least - weight
            self.columns.append(number)
            self.weights.append(weight)
        self.starts.append(len(self.columns))
        self.least.append(least)

    def constraint(self, num_variables: int) -> optimize.LinearConstraint:
        """Returns all rows."""
        data = self.weights, self.columns, self.starts
        matrix = sparse.csr_array(data, shape=(len(self.least), num_variables))
        matrix.sum_duplicates()
        return optimize.LinearConstraint(matrix, np.array(self.least), np.inf)


def _add(rows: _Rows, built: program.Program, unit_s: float) -> None:
    for clause in built.clauses:
        rows.add([(number, 1.0) for number in clause], 1.0)
    for booleans in built.exactly_one:
        rows.add([(b, 1.0) for b in booleans], 1.0)
        rows.add([(b, -1.0) for b in booleans], -1.0)
    for few in built.at_least:
        rows.add([*((b, 1.0) for b in few.booleans), (few.when, -float(few.least))], 0.0)
    for most in built.at_most:
        scale = max(most.capacity, 1.0) / _UNITS
        rows.add([(b, -w / scale) for b, w in most.terms], -most.capacity / scale)
    for after in built.afters:
        rows.add(*_lifted(built, after, unit_s))


def _lifted(
    built: program.Program, after: program.After, unit_s: float
) -> tuple[list[tuple[int, float]], float]:
    """Lifts to late - early - seconds + lack * (literals that do not hold) >= 0."""
    first = built.num_booleans
    terms = [(b, -seconds / unit_s) for b, seconds in after.terms]
    terms += [(first + after.late, 1.0), *((first + t, -1.0) for t in after.early)]
    added = sum(seconds for _, seconds in after.terms) / unit_s
    lack = _UNITS * len(after.early) + added - built.lower_s[after.late] / unit_s
    return [*terms, *((~number, max(lack, 0.0)) for number in after.when)], 0.0
