"""Searches by integer and constraint programs: a warm start, then a better placement or a proof.

`milp` and `milp_noncontiguous` solve integer programs on HiGHS, `cpsat` solves the same on CP-SAT.
Under `makespan` the program of `cpsat` is that of `placement.solvers.programs.cpsat_makespan`.

`presolve` makes tasks of the operations: a *task* is an operation, or several operations that merge
without loss. A *class* is the tasks that share a device. A tensor t has a source class and reader
classes other than its source. As in `placement.simulators.max_load`, receiving it costs
receive_s[t, d] and sending it send_s[t, d]. Tensors with equal source and readers are added up.

Two tasks u -> v merge if one of them, z, takes no time on any device and no memory, and if

    (1)  z = v: everything that v reads is produced by u and read by v alone, and costs no less
         than what v produces: the sums over tensors from u to v of receive_s[d] and send_s[d]
         are at least those over tensors that v produces; or
    (2)  z = u: everything that u produces is read by v alone, and costs no less than what u reads.

Then z can move to the other task's device without loss. The transfers that this adds, on either
device, cost no more than those between u and v that it removes. No operation waits longer, and no
new cycle or way back to a device arises. Only operations that are not co-located merge, and only
within the forward or within the backward pass.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy import optimize, sparse

from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import max_load
from placement.solvers import base, native
from placement.solvers.bounds import counting
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import (
    cpsat_makespan,
    cpsat_solver,
    formulations,
    warm_start,
)
from placement.solvers.programs.program import Outcome, Program, TaskGraph
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


def presolve(problem: Problem) -> TaskGraph:
    """Merges all tasks of a problem that merge without loss."""
    task_ids = np.arange(problem.graph.num_ops)
    is_colocated = np.bincount(problem.decision)[problem.decision] > 1
    while True:
        tasks = _build(problem, task_ids)
        num_tasks = len(tasks.class_ids)
        single_task = np.empty(len(tasks.compute_s), int)  # of a class without co-location
        single_task[tasks.class_ids] = np.arange(num_tasks)
        produced: list[list[int]] = [[] for _ in range(num_tasks)]  # tensors of each task
        read: list[list[int]] = [[] for _ in range(num_tasks)]
        for tensor, source in enumerate(single_task[tasks.source].tolist()):
            produced[source].append(tensor)
            for reader in single_task[tasks.readers[tensor]].tolist():
                read[reader].append(tensor)

        # Each task's partner, or itself; a task merges once in a round.
        cost_s = np.concatenate([tasks.receive_s, tasks.send_s], axis=1)
        memory_bytes = tasks.memory_bytes[tasks.class_ids]
        is_free = ~is_colocated & (tasks.task_s == 0).all(axis=1) & (memory_bytes == 0)
        partner, can_merge = np.arange(num_tasks), ~is_colocated
        for task in np.flatnonzero(is_free).tolist():
            sources = {int(single_task[tasks.source[t]]) for t in read[task]}
            readers = {int(r) for t in produced[task] for r in single_task[tasks.readers[t]]}
            is_sole_reader = all(len(tasks.readers[t]) == 1 for t in read[task])
            read_s, produced_s = cost_s[read[task]].sum(axis=0), cost_s[produced[task]].sum(axis=0)
            if len(sources) == 1 and is_sole_reader and (read_s >= produced_s).all():
                neighbour = sources.pop()
            elif len(readers) == 1 and (produced_s >= read_s).all():
                neighbour = readers.pop()
            else:
                continue
            is_same_pass = tasks.backward[task] == tasks.backward[neighbour]
            if is_same_pass and can_merge[task] and can_merge[neighbour]:
                partner[task] = neighbour
                can_merge[[task, neighbour]] = False
        if (partner == np.arange(num_tasks)).all():
            return tasks
        _, merged = np.unique(partner, return_inverse=True)
        _, first = np.unique(merged, return_index=True)
        task_ids, is_colocated = merged[task_ids], is_colocated[first]


def _build(problem: Problem, task_ids: np.ndarray) -> TaskGraph:
    graph, costs = problem.graph, problem.costs
    _, first = np.unique(task_ids, return_index=True)
    _, class_ids = np.unique(problem.decision[first], return_inverse=True)  # merging left gaps
    task_s = dag.sum_by_part(task_ids, np.asarray(costs.compute_s, np.float64))
    memory_bytes = np.asarray(costs.memory_bytes, np.float64)
    if memory_bytes.sum() <= problem.memory_limits.capacity_bytes.min(initial=np.inf):
        memory_bytes = 0 * memory_bytes  # everything fits into any memory

    _, edge, tensor = np.unique(graph.tensors, return_index=True, return_inverse=True)
    receive_s, send_s = max_load.compute_link_costs(
        problem.edge_transfer_s[edge].astype(np.float64), np.asarray(costs.accelerator)
    )
    op_class = class_ids[task_ids]
    readers = dag.list_by_node(len(edge), tensor, op_class[graph.receivers])
    # Tensors that leave their class are added to one of equal source and readers.
    source_and_readers: dict[tuple[int, ...], int] = {}
    number = np.full(len(edge), -1)
    sources = op_class[graph.senders[edge]].tolist()
    for index, (source, tensor_readers) in enumerate(zip(sources, readers, strict=True)):
        outside = sorted(set(tensor_readers) - {source})
        if outside:
            key = (source, *outside)
            number[index] = source_and_readers.setdefault(key, len(source_and_readers))
    leaves = number >= 0
    total_receive_s = np.zeros((len(source_and_readers), receive_s.shape[1]))
    total_send_s = np.zeros_like(total_receive_s)
    np.add.at(total_receive_s, number[leaves], receive_s[leaves])
    np.add.at(total_send_s, number[leaves], send_s[leaves])
    return TaskGraph(
        decision_class=op_class[problem.decisions.first_ops],
        class_ids=class_ids,
        edges=np.stack(dag.quotient(graph.senders, graph.receivers, task_ids)),
        backward=graph.backward[first],
        task_s=task_s,
        compute_s=dag.sum_by_part(class_ids, task_s),
        memory_bytes=dag.sum_by_part(class_ids, dag.sum_by_part(task_ids, memory_bytes)),
        source=np.array([key[0] for key in source_and_readers], int),
        readers=tuple(np.array(key[1:], int) for key in source_and_readers),
        receive_s=total_receive_s,
        send_s=total_send_s,
    )


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
