"""Searches by integer and constraint programs: a warm start, then a better placement or a proof.

`milp` and `milp_noncontiguous` solve integer programs on HiGHS, `cpsat` solves the same on CP-SAT.
Under `makespan` the program of `cpsat` is that of `placement.solvers.programs.cpsat_makespan`.
"""

from collections.abc import Callable
from functools import partial

import chex
import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers import base, starts
from placement.solvers.bounds import counting
from placement.solvers.heuristics import local_search
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
from placement.types import OpGraph, Solution, Status

_SUM_PRECISION = 1e-9  # relative: the rounding of float64 sums

# Of the warm start.
_NUM_SHARES = 24
_BATCH_SIZE = 64  # candidates simulated at once
_CANDIDATES_SHARE, _IMPROVEMENT_SHARE = 0.06, 0.04  # of the remaining time
_MIN_CANDIDATES_S = 1.0  # if so much remains: a short limit is no worse than the heuristics alone
_EVALUATIONS_PER_CLASS = 128  # while improving

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
        return cpsat_makespan.solve_makespan(problem, seed, limits, find_warm_start)
    return _search(problem, seed, limits, cpsat_solver.solve_program)


def cpsat_free(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A constraint program on CP-SAT, over all placements and all orders of priority.

    Two runs may differ if the time limit ends them.

    Raises:
      UserError: ortools is not installed.
    """
    return cpsat_makespan.solve_makespan(problem, seed, limits, find_warm_start, is_order_free=True)


def find_warm_start(
    problem: Instance, seed: int, limits: SearchLimits, *, contiguous: bool = False
) -> Solution:
    """Finds a placement from which an exact search starts: the best of fast methods, improved.

    An exact search needs it as a horizon, as a hint and to fall back on. The candidates are

    1. the results of `placement.solvers.starts.find_starts`;
    2. for several shares T of the total load, the classes in topological order dealt to one device
       after another, each of which is full when it has computed for T or its memory is full;
    3. every device alone.

    The best of them in the simulator is improved by steepest descent over moves of a single class,
    and then by local search. The latter ignores contiguity, so that for contiguous
    placements the descent is all.

    Args:
      problem: the problem.
      seed: of the improvement.
      limits: a tenth of the remaining time is spent at most, or a second, not counting the
        compilation of the simulator. The descent takes half of the budget at most.
      contiguous: whether to admit only contiguous placements.

    Returns:
      The placement with its value and the evaluations; None and inf if none is feasible.
    """
    base.report_single_device(problem, limits)
    classes = problem.classes
    reach = reachability_within_passes(problem.graph) if contiguous else None

    def take_best(
        start: Solution, candidates: np.ndarray, limits: SearchLimits, budget: int
    ) -> Solution:
        """Returns the best of a start and of as many candidates int [M, N] as the limits permit.

        The budget is that of all evaluations so far.
        """
        candidates = candidates[: budget - start.evaluations]
        batches_s: list[np.ndarray] = []
        for first in range(0, len(candidates), _BATCH_SIZE):
            if batches_s and limits.is_over():
                break
            rows = candidates[first : first + _BATCH_SIZE]
            batch = np.resize(rows, (_BATCH_SIZE, candidates.shape[1]))  # one compilation
            batches_s.append(np.asarray(problem.evaluate(batch))[: len(rows)])
        values_s = np.concatenate([np.zeros(0), *batches_s])
        placement, value_s = start.placement, start.value_s
        for row in np.argsort(values_s, kind="stable"):
            if not values_s[row] < value_s:
                break
            if reach is None or is_contiguous(candidates[row], reach):
                placement, value_s = candidates[row], float(values_s[row])
        evaluations = start.evaluations + len(values_s)
        limits.report(evaluations, value_s, placement)
        return Solution(placement, value_s, evaluations=evaluations)

    share = max(_CANDIDATES_SHARE, _MIN_CANDIDATES_S / max(_MIN_CANDIDATES_S, limits.remaining_s()))
    results = starts.find_starts(problem, seed, limits.take_share(share, limits.budget))
    placements = [result.placement for result in results if result.placement is not None]
    candidates = np.stack([*placements, *_deal_classes(problem)[:, classes.ids]])
    start = take_best(Solution(None, np.inf), candidates, limits, limits.budget)  # compiles

    limits = limits.take_share(_IMPROVEMENT_SHARE, limits.budget)
    budget = limits.budget if contiguous else limits.budget // 2
    rng, previous_s = np.random.default_rng(seed), np.inf
    while start.placement is not None and start.value_s < previous_s:
        if limits.is_over() or start.evaluations >= budget:
            break
        previous_s = start.value_s
        class_devices, can_move = start.placement[classes.first_ops], classes.allowed.copy()
        can_move[np.arange(len(class_devices)), class_devices] = False
        moved_class, device = np.nonzero(can_move)
        moves = np.repeat(class_devices[None], len(moved_class), axis=0)
        moves[np.arange(len(moved_class)), moved_class] = device
        start = take_best(start, rng.permutation(moves)[:, classes.ids], limits, budget)
    budget = limits.budget - start.evaluations - 1  # the result is evaluated once more
    if contiguous or budget < local_search.NUM_CHAINS:
        return start
    placement = candidates[0] if start.placement is None else start.placement
    budget = min(budget, _EVALUATIONS_PER_CLASS * len(classes.compute_s))
    polish_limits = limits.take_share(1.0, budget, start.evaluations)
    polished = local_search.local_search(problem, seed, polish_limits, placement)
    start = start._replace(evaluations=start.evaluations + polished.evaluations)
    if polished.placement is None:
        return start
    return take_best(start, polished.placement[None], limits, limits.budget)


def is_contiguous(placement: np.ndarray, reach: np.ndarray) -> bool:
    """Whether no path leaves a device and returns to it.

    Args:
      placement: int [N].
      reach: bool [N, N], whether a path leads from i to j.
    """
    chex.assert_rank([placement, reach], [1, 2])
    chex.assert_type([placement, reach], [int, bool])
    for device in np.unique(placement):
        is_inside = placement == device
        is_between = reach[is_inside].any(axis=0) & reach[:, is_inside].any(axis=1)
        if (is_between & ~is_inside).any():
            return False
    return True


def reachability_within_passes(graph: OpGraph) -> np.ndarray:
    """Returns bool [N, N]: the paths within the forward or within the backward operations."""
    reach, backward = dag.reachability(graph), graph.backward
    return reach & (backward[:, None] == backward)


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
    start = find_warm_start(problem, seed, limits, contiguous=contiguous)
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


def _deal_classes(problem: Instance) -> np.ndarray:
    """Returns placements of classes int [M, C]: dealt to devices in turn, or all on one device."""
    classes, memory, order = problem.classes, problem.memory_limits, problem.class_order

    def deal(devices: np.ndarray, share_s: float) -> np.ndarray:
        """Deals int [C] to devices in turn, each up to its share; the last one gets the rest."""
        free_bytes = memory.capacity_bytes.copy()
        placement = np.full(len(order), -1)
        current, load_s = 0, 0.0
        for c in order.tolist():
            for position in range(current, len(devices)):
                device = devices[position]
                seconds = classes.compute_s[c, device]
                memories = memory.devices[:, device]
                fits = (free_bytes[memories] >= classes.memory_bytes[c]).all()
                device_load_s = load_s if position == current else 0.0
                is_light = device_load_s == 0 or device_load_s + seconds <= share_s
                is_last = position == len(devices) - 1
                if np.isfinite(seconds) and fits and (is_light or is_last):
                    current, load_s = position, device_load_s + seconds
                    free_bytes[memories] -= classes.memory_bytes[c]
                    placement[c] = device
                    break
            if placement[c] < 0:  # the fastest device with free memory, else the fastest
                is_small = classes.memory_bytes[c] > free_bytes
                is_full = (memory.devices & is_small[:, None]).any(axis=0)
                device = int((classes.compute_s[c] + np.where(is_full, 1e30, 0.0)).argmin())
                free_bytes[memory.devices[:, device]] -= classes.memory_bytes[c]
                placement[c] = device
        return placement

    accelerator = np.asarray(problem.costs.accelerator)
    devices = np.argsort(accelerator < 0, kind="stable")  # hosts come last
    total_s = np.where(classes.allowed, classes.compute_s, np.inf).min(axis=1).sum()
    shares = np.geomspace(1 / len(devices), 1.5, _NUM_SHARES)
    candidates = [deal(devices, total_s * share) for share in shares]
    candidates += [deal(np.roll(devices, -d), np.inf) for d in devices]
    return np.stack(candidates)
