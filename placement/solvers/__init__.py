"""Solvers: classical and exact searches for a placement, behind one interface."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placement import arguments, simulators
from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base, graph_cut
from placement.solvers.bounds import counting, makespan
from placement.solvers.diagrams import search as diagrams
from placement.solvers.heuristics import (
    baechi,
    genetic,
    greedy,
    large_neighbourhood,
    list_scheduling,
    local_search,
    trivial,
)
from placement.solvers.limits import Observe, SearchLimits, unobserved
from placement.solvers.programs import cpsat, milp
from placement.solvers.splits import ideals_dp, pipedream
from placement.types import OUT_OF_MEMORY, Problem, Solution, Status

BUDGET = 32_000


class Solver(NamedTuple):
    """A solver and the objectives that it is made for."""

    find: base.Find
    objectives: tuple[str, ...]
    seeded: bool = True  # whether the seed may change what it finds


_NONE = {
    base.ALL: "no placement keeps all limits, as {} proved",
    base.CONTIGUOUS: "no contiguous placement keeps all limits, as {} proved",
}
ANY = tuple(simulators.OBJECTIVES)
SOLVERS: dict[str, Solver] = {
    "random": Solver(trivial.random, ANY),
    "round_robin": Solver(trivial.round_robin, ANY, seeded=False),
    "topological": Solver(trivial.topological, ANY, seeded=False),
    "local_search": Solver(local_search.local_search, ANY),
    "annealing": Solver(local_search.annealing, ANY),
    "genetic": Solver(genetic.find, ANY),
    "brute_force": Solver(trivial.brute_force, ANY, seeded=False),
    "graph_cut": Solver(graph_cut.find, ("serial",), seeded=False),
    "ideals_dp": Solver(ideals_dp.ideals_dp, ("max_load",), seeded=False),
    "dp_split": Solver(ideals_dp.dp_split, ("subgraph",), seeded=False),
    "linearised_dp": Solver(ideals_dp.linearised_dp, ("max_load",), seeded=False),
    "pipedream": Solver(pipedream.pipedream, ("max_load",), seeded=False),
    "milp": Solver(milp.find, ("max_load", "subgraph")),
    "milp_noncontiguous": Solver(milp.find_noncontiguous, ("max_load",)),
    "cpsat": Solver(cpsat.find, ("makespan", "max_load", "subgraph")),
    "greedy": Solver(greedy.find, ("subgraph",), seeded=False),
    "heft": Solver(list_scheduling.heft, ("makespan",), seeded=False),
    "peft": Solver(list_scheduling.peft, ("makespan",), seeded=False),
    "m_topo": Solver(baechi.m_topo, ("makespan",), seeded=False),
    "m_etf": Solver(baechi.m_etf, ("makespan",), seeded=False),
    "m_sct": Solver(baechi.m_sct, ("makespan",), seeded=False),
    "lns": Solver(large_neighbourhood.lns, ("makespan",)),
    "diagram": Solver(diagrams.find, ("makespan",), seeded=False),
}


_BOUNDS: dict[str, Callable[[Instance, SearchLimits], float]] = {
    "serial": lambda problem, limits: graph_cut.find(problem, 0, limits).bound_s,
    "makespan": makespan.makespan,
    "max_load": lambda problem, _: counting.max_load(problem),
    "subgraph": lambda problem, _: counting.subgraph(problem),
}


def solve(
    name: str,
    problem: Problem,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    budget: int = BUDGET,
    observe: Observe = unobserved,
    stop: Callable[[], bool] = lambda: False,
) -> Solution:
    """Searches for the best placement of a problem with one of `SOLVERS`.

    Args:
      name: of the solver.
      problem: what is to be placed; an `Instance` keeps what is derived from it.
      seed: of all randomness.
      time_limit_s: when to stop. Building a model and a step that has begun are not cut off.
      budget: how many placements to evaluate at most; exact solvers look at it where they improve
        the placement that they start from, if at all.
      observe: told after every step of a search how many were evaluated, what the best is worth and
        the best itself, int [N], inf and None while none can run, and what other numbers it has, by
        name; from any thread.
      stop: whether to end before the time is over, with the best until then.

    Returns:
      The placement found, with its value from the problem's simulator. `bound_s` is a lower bound
      of the placements in `scope`, nan where the solver has none. A problem that is proven to have
      no feasible placement has status 'infeasible: why'; where merely none was found the status is
      'failed: why'. The value of either is inf.

    Raises:
      UserError: no such solver, or none for this objective; or the solver cannot be used on this
        problem, such as an enumeration of too many placements: one line.
    """
    check(name, problem.objective)
    limits = SearchLimits(time_limit_s, budget, observe, stop)
    return run(name, SOLVERS[name].find, Instance.from_problem(problem), seed, limits)


def run(name: str, find: base.Find, problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Runs a search, values what it found in the problem's simulator and checks its bound.

    Args:
      name: of the search, for what is said of it.
      find: the search.
      problem, seed: as of `solve`.
      limits: which began now.

    Returns:
      As `solve` does.
    """
    reason = infeasible(problem)
    result = Solution(None) if reason else find(problem, seed, limits)
    if result.status == Status.TIME_LIMIT and limits.stopped():
        result = result._replace(status=Status.INTERRUPTED)
    search_s = limits.spent_s()
    placement, value_s = result.placement, np.inf
    if placement is not None:
        placement = np.asarray(placement, np.int32)
        value_s = problem.value_s(placement)
        if np.isinf(value_s) and result.status == Status.OPTIMAL:
            # Exact solvers know what operations always occupy, not what is alive over time.
            result = result._replace(status=Status.FINISHED)
    else:
        placement = _anything(problem)
    status, bound_s = result.status, _bound(result, value_s, name)
    if reason or status == Status.INFEASIBLE:
        status, reason = Status.INFEASIBLE, reason or _NONE[result.scope].format(name)
    elif np.isinf(value_s) and _runs_out(problem, result.placement):
        status, reason = Status.FAILED, OUT_OF_MEMORY
    elif np.isinf(value_s) and status != Status.INTERRUPTED:
        status, reason = Status.FAILED, f"{status}, no feasible placement found"
    return result._replace(
        placement=placement,
        value_s=value_s,
        bound_s=bound_s,
        status=status,
        search_s=search_s,
        reason=reason or "",
    )


def lower_bound(problem: Problem, *, time_limit_s: float = 10.0, any_order: bool = False) -> float:
    """Computes a lower bound of the objective in seconds; -inf where none is known.

    Args:
      problem: what is to be placed.
      time_limit_s: for the bound.
      any_order: whether it is to hold for `makespan` in any order of a device's operations, so for
        merged operations too (`placement.graphs.coarsen`), and not in the order of priority alone.
    """
    instance = Instance.from_problem(problem)
    if infeasible(instance):
        return float("-inf")
    limits = SearchLimits(time_limit_s, BUDGET)
    bound_s = _BOUNDS[problem.objective](instance, limits)
    if problem.objective == "makespan" and not any_order and bound_s < np.inf:
        bound_s = max(bound_s, diagrams.bound(instance, limits))
    return bound_s


def check(name: str, objective: str) -> None:
    """Refuses what is no solver, or none of this objective, with a UserError of one line."""
    arguments.check("solver", name, SOLVERS)
    if objective not in SOLVERS[name].objectives:
        able = ", ".join(other for other in SOLVERS if objective in SOLVERS[other].objectives)
        raise UserError(
            f"method {name!r} is for objective {' or '.join(SOLVERS[name].objectives)}, not "
            f"{objective!r}; for {objective!r} there are {able}"
        )


def infeasible(problem: Instance) -> str | None:
    """Says why no placement can be feasible, where a look at the limits shows it."""
    classes, memory = problem.classes, problem.memory_limits
    stuck = np.flatnonzero(~classes.allowed.any(axis=1))
    if len(stuck):
        op = problem.graph.op_names[int(np.argmax(classes.ids == stuck[0]))]
        return f"no device runs operation {op!r} and all that is co-located with it"
    limited = memory.devices.any(axis=0)
    needed, capacity = classes.memory_bytes.sum(), memory.capacity_bytes.sum()
    if limited.all() and needed > capacity:
        return f"operations occupy {needed:.0f} bytes, all devices together have {capacity:.0f}"
    return None


def _runs_out(problem: Instance, placement: np.ndarray | None) -> bool:
    return placement is not None and problem.exceeds_memory(placement)


def _bound(result: Solution, value_s: float, name: str) -> float:
    """Returns the bound on the simulator's scale, where a value may be below it by rounding."""
    if np.isnan(result.bound_s):
        return result.bound_s
    slack = base.ROUNDING * abs(result.bound_s)
    if value_s < result.bound_s - slack:
        raise AssertionError(f"{name}: value {value_s} is below its bound {result.bound_s}")
    if result.status == Status.OPTIMAL and value_s > result.bound_s + slack:
        raise AssertionError(f"{name}: 'optimal' at {value_s}, but the bound is {result.bound_s}")
    return value_s if result.status == Status.OPTIMAL else min(result.bound_s, value_s)


def _anything(problem: Instance) -> np.ndarray:
    """Returns int32 [N]: each operation where it computes fastest, to have something to show."""
    return np.asarray(problem.costs.compute_s).argmin(axis=1).astype(np.int32)
