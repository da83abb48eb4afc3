"""Makespan by constraint programming (CP-SAT), in the given order of priority or in any.

Each device runs its operations in the order of priority that the problem gives, so the least
latency is the optimum for this order. If the order is free, a device still runs one operation at a
time. The order of the starts is then the solution's order of priority, and bounds hold for all
orders. `_build_model` has the constraints.

Seconds are rounded down to whole units, so that the solver's bound is valid. A path of N operations
and its N - 1 delays loses less than 2 N units. With

    unit = value of the warm start * ROUNDING / (4 N)

that is half of `base.ROUNDING`. An optimum of the rounded problem counts as an optimum if the
simulator's value of it agrees with the bound.

One worker searches, so that a run can be repeated. Linear relaxations are off. They are weak here,
because half an operation on either of two devices needs no transfer, and make proofs many times
slower.
"""

import itertools
from collections.abc import Callable
from math import ceil, inf
from typing import Any

import numpy as np

from placement.errors import UserError, import_extra
from placement.problem import Problem
from placement.solvers import base
from placement.solvers.bounds import makespan as makespan_lib
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cpsat_solver, warm_start
from placement.types import Solution, Status

_MAX_ROWS = 1_000_000  # pairs of operations on devices that edges join


def solve_makespan(
    problem: Problem,
    seed: int,
    limits: SearchLimits,
    *,
    is_order_free: bool = False,
) -> Solution:
    """Finds the optimum, or the best placement and bound at the time limit.

    Args:
      problem: the problem.
      seed: of the warm start and of the solver.
      limits: the time limit and the budget of the warm start.
      is_order_free: whether the solution may have another order of priority.

    Raises:
      UserError: ortools is not installed, or the program would take gigabytes.
    """
    cp_model = import_extra(cpsat_solver.CP_MODEL, "solvers")
    num_rows = len(problem.dependencies.senders) * len(problem.devices) ** 2
    if num_rows > _MAX_ROWS:
        raise UserError(
            f"The constraint program of graph {problem.graph.name!r} would have {num_rows} rows; "
            f"cpsat takes at most {_MAX_ROWS}: give a smaller graph, fewer devices or another "
            "method"
        )
    start = warm_start.find_warm_start(problem, seed, limits)
    best, value_s, evaluations = start.placement, start.value_s, start.evaluations
    bound_s = makespan_lib.bound_makespan(problem, limits)
    if bound_s == inf:
        return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
    if value_s <= bound_s * (1 + base.ROUNDING):
        return Solution(best, bound_s=bound_s, status=Status.OPTIMAL, evaluations=evaluations)
    scope, order = base.ALL if is_order_free else base.GIVEN_ORDER, problem.order
    model, device_booleans, op_starts, unit_s = _build_model(
        cp_model, problem, value_s, is_order_free=is_order_free
    )
    if best is not None:
        first_equal = problem.interchangeable_devices
        cpsat_solver.add_hint(cp_model, model, device_booleans, best, first_equal, limits)

    compute_s = np.asarray(problem.costs.compute_s, np.float64)

    def read_solution(
        value: Callable[[Any], Any],
    ) -> tuple[np.ndarray, np.ndarray | None, float]:
        """Returns a solution's placement and order, and their value in the simulator."""
        devices = [next(d for d, x in row.items() if value(x)) for row in device_booleans]
        placement, order = np.array(devices), problem.order
        if is_order_free:
            # Of operations that start at the same time, those that take no time come first, and an
            # input comes before its readers.
            op_compute_s = compute_s[np.arange(len(compute_s)), problem.expand(placement)]
            start, duration = [value(s) for s in op_starts], np.floor(op_compute_s / unit_s)
            order = np.lexsort((np.argsort(problem.topological_order), duration, start))
        return placement, order, problem.with_order(order).value_s(placement)

    def report(value: Callable[[Any], Any]) -> None:
        nonlocal best, order, value_s
        placement, solution_order, seconds = read_solution(value)
        if seconds < value_s or best is None:
            best, order, value_s = placement, solution_order, seconds
        limits.report(evaluations, value_s, best)

    parameters = {"num_workers": 1, "random_seed": seed % 2**31, "linearization_level": 0}
    status, solver = cpsat_solver.solve(cp_model, model, limits, parameters, report)
    if status == cp_model.INFEASIBLE and best is None:
        return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        report(solver.value)
    bound_s = max(bound_s, solver.best_objective_bound * unit_s)
    if status == cp_model.INFEASIBLE:  # nothing is as fast as the warm start, but for rounding
        bound_s = value_s
    is_proven = value_s <= bound_s * (1 + base.ROUNDING)
    # The optimum may exceed a memory with copies of constants or with the tensors alive, which the
    # program does not know. Its bound holds all the same.
    outcome = Status.FINISHED if status == cp_model.OPTIMAL else Status.TIME_LIMIT
    outcome = Status.OPTIMAL if is_proven else outcome
    return Solution(
        best,
        bound_s=bound_s,
        status=outcome,
        evaluations=evaluations,
        order=order,
        scope=scope,
    )


def _build_model(
    cp_model: Any, problem: Problem, value_s: float, *, is_order_free: bool
) -> tuple[Any, list[dict[int, Any]], list[Any], float]:
    """Builds the model of placements whose latency is at most that of the warm start.

    For every decision k and device d that supports it, x(k, d) says whether k takes d, and x(v, d)
    is that of the decision about operation v, which has a start s(v), a whole number. For every
    device d, f(d, v) is the time at which d is free after the operations up to v in order of
    priority, and v' precedes v in that order. Then

        minimise    w
        subject to  (1)  w >= s(v) + compute(v, d) x(v, d)
                    (2)  sum over d of x(k, d) = 1
                    (3)  s(v) >= s(u) + compute(u, a) + delay(u, v, a, b)   if x(u, a) and x(v, b),
                                                                             for edges u -> v
                    (4)  s(v) >= f(d, v')                                   if x(v, d)
                    (5)  f(d, v) >= s(v) + compute(v, d)                    if x(v, d)
                    (6)  f(d, v) >= f(d, v')
                    (7)  the memory limits.

    If the order is free, lines (4) to (6) are left out. Three kinds of constraints follow from
    these and help the proof:

        (8)  the operations on a device do not overlap
        (9)  heads and tails (`placement.solvers.bounds.makespan`) of a placement at least as fast
             as the warm start
        (10) of two interchangeable devices, the one of lower number takes an operation first.

    Args:
      cp_model: OR-Tools' module.
      problem: the problem.
      value_s: the latency of the warm start, or inf.
      is_order_free: whether lines (4) to (6) are left out.

    Returns:
      The model; for each decision, its Boolean x on each open device; for each operation, its
      start; the seconds of a unit.
    """
    model, decision, memory = cp_model.CpModel(), problem.decision, problem.memory_limits

    # The edges and windows in whole units; the windows are inf where a device is closed.
    edges = makespan_lib.collect_edges(problem)
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    limit_s = value_s if value_s < inf else makespan_lib.compute_longest_s(edges, compute_s)
    unit_s = limit_s * base.ROUNDING / (4 * len(compute_s)) or 1.0
    limit = ceil(limit_s / unit_s * (1 + base.ROUNDING))
    edges = edges._replace(delay_s=np.floor(edges.delay_s / unit_s))
    windows = makespan_lib.compute_windows(edges, np.floor(problem.allowed_compute_s / unit_s))
    windows = makespan_lib.close_windows(decision, edges, windows, limit)
    head, compute, tail = windows

    # The variables x, s and w.
    is_open = np.ones((problem.num_decisions, len(problem.devices)), bool)
    np.logical_and.at(is_open, decision, np.isfinite(compute))
    decision_x = [
        {d: model.new_bool_var("") for d in np.flatnonzero(row).tolist()} for row in is_open
    ]
    x = [decision_x[k] for k in decision.tolist()]  # of operations
    earliest, latest = head.min(axis=1), limit - (compute + tail).min(axis=1)
    start = [
        model.new_int_var(int(low), max(int(low), int(high)), "")
        for low, high in zip(earliest, latest, strict=True)
    ]
    shortest = windows.compute_through_s().min(axis=1).max()
    latency = model.new_int_var(int(shortest), limit, "")
    model.minimize(latency)

    for booleans in decision_x:  # line (2)
        model.add_exactly_one(booleans.values())
    for v, booleans in enumerate(x):  # lines (1) and (9)
        remaining = {d: int(compute[v, d] + tail[v, d]) for d in booleans}
        model.add(latency >= start[v] + sum(remaining[d] * y for d, y in booleans.items()))
        model.add(start[v] >= sum(int(head[v, d]) * y for d, y in booleans.items()))
    for u, v, delay in zip(*edges, strict=True):  # line (3)
        model.add(start[v] >= start[u] + sum(int(compute[u, a]) * y for a, y in x[u].items()))
        for a, is_sender_there in x[u].items():
            for b, is_receiver_there in x[v].items():
                if np.isinf(delay[a, b]):
                    model.add_bool_or([~is_sender_there, ~is_receiver_there])
                elif delay[a, b] > 0:
                    row = model.add(start[v] >= start[u] + int(compute[u, a] + delay[a, b]))
                    row.only_enforce_if([is_sender_there, is_receiver_there])
    for device in range(len(problem.devices)):  # lines (4) to (6) and (8)
        free, intervals = 0, []
        for v in problem.priority_order.tolist():
            if device not in x[v]:
                continue
            is_there, duration = x[v][device], int(compute[v, device])
            intervals.append(
                model.new_optional_fixed_size_interval_var(start[v], duration, is_there, "")
            )
            if not is_order_free:
                next_free = model.new_int_var(0, limit, "")
                model.add(start[v] >= free).only_enforce_if(is_there)
                model.add(next_free >= start[v] + duration).only_enforce_if(is_there)
                model.add(next_free >= free)
                free = next_free
        model.add_no_overlap(intervals)
    for devices, capacity_bytes in zip(memory.devices, memory.capacity_bytes, strict=True):
        units, capacity = cpsat_solver.round_bytes(problem.decisions.memory_bytes, capacity_bytes)
        terms = [
            units[k] * y
            for k, booleans in enumerate(decision_x)
            for d, y in booleans.items()
            if devices[d]
        ]
        model.add(sum(terms) <= capacity)  # line (7)

    # Line (10).
    first_equal = problem.interchangeable_devices
    decision_order = problem.order_decisions(problem.priority_order).tolist()
    for first in np.unique(first_equal):
        for low, high in itertools.pairwise(np.flatnonzero(first_equal == first).tolist()):
            earlier: list[Any] = []
            for booleans in (decision_x[k] for k in decision_order):
                if high in booleans:
                    model.add_bool_or([*earlier, ~booleans[high]])
                earlier += [booleans[low]] if low in booleans else []
    return model, decision_x, start, unit_s
