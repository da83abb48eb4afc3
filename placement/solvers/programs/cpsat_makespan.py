"""Makespan by constraint programming (CP-SAT), with the simulator's order of priority.

For every class c of co-located operations and device d that supports it, x(c, d) says whether c is
on d; for every operation v of class c, a whole number s(v) is its start. Then

    sum over d of x(c, d) = 1
    x(u, a) and x(v, b)  ->  s(v) >= s(u) + compute(u, a) + delay(u, v, a, b)     for edges u -> v
    x(v, d)  ->  s(v) >= f(d, before v),    f(d, v) >= s(v) + compute(v, d)
    f(d, v) >= f(d, before v)
    minimise  w >= s(v) + compute(v, d) x(v, d)

where f(d, v) is when device d is free after the operations up to v, in order of priority: each
device runs its operations in that order, so that the least w is the simulator's optimum and not
that of schedules it would not run. What follows from these and helps the proof is added: that a
device's operations do not overlap, heads and tails (`placement.solvers.bounds.makespan`) of what is
at least as fast as the placement known at the start, and of interchangeable devices, that the one
of lower number takes an operation first.

Seconds are rounded down to whole units, so that the solver's bound is valid. A path of N operations
and its N - 1 delays loses less than 2 N units; with

    unit = value of the known placement * ROUNDING / (4 N)

that is half of `base.ROUNDING`, and an optimum of the rounded problem counts as one where the
simulator's value of it agrees with the bound.

One worker searches, which repeats itself, without linear relaxations: they are weak here, as half
an operation on either of two devices crosses nothing, and proofs are many times slower with them.
"""

import itertools
from collections.abc import Callable
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from placement.errors import UserError
from placement.instance import ColocationClasses, Instance
from placement.solvers import base
from placement.solvers.bounds import makespan as makespan_lib
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cp_sat, warm_start
from placement.types import Solution, Status

_LARGEST = 1_000_000  # pairs of operations on devices that edges join: rows of the program


class _Whole(NamedTuple):
    """The problem in whole units."""

    classes: ColocationClasses
    order: list[int]  # of priority
    edges: makespan_lib.Edges
    windows: makespan_lib.Windows  # of what takes `limit` at most; inf where a device is closed
    limit: int


class _Variables(NamedTuple):
    """What the solver decides."""

    on: list[dict[int, Any]]  # for every class, device -> x
    start: list[Any]  # for every operation
    latency: Any


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Finds the optimum, or the best placement and bound when time is over.

    Raises:
      UserError: ortools is not installed, or the program would take gigabytes.
    """
    cp_model = cp_sat.import_cp_model()
    pairs = len(problem.dependencies.senders) * len(problem.devices) ** 2
    if pairs > _LARGEST:
        raise UserError(
            f"graph {problem.graph.name!r} has edges between {pairs} pairs of operations on "
            f"devices; cpsat takes at most {_LARGEST}: give a smaller graph, fewer devices or "
            "another method"
        )
    start = warm_start.find(problem, seed, limits)
    best, value_s, evaluations = start
    bound_s = makespan_lib.makespan(problem, limits)
    if bound_s == inf:
        return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
    if value_s <= bound_s * (1 + base.ROUNDING):
        return Solution(best, bound_s=bound_s, status=Status.OPTIMAL, evaluations=evaluations)
    whole, unit_s = _whole(problem, value_s)
    model = cp_model.CpModel()
    variables = _variables(model, whole)
    _add_constraints(model, problem, whole, variables)
    if best is not None:
        device, equal = best[whole.classes.first_ops], problem.interchangeable_devices
        cp_sat.hint(cp_model, model, variables.on, device, equal, limits)

    def valued(value: Callable[[Any], Any]) -> tuple[np.ndarray, float]:
        home = [next(d for d, x in row.items() if value(x)) for row in variables.on]
        placement = np.array(home)[whole.classes.ids]
        return placement, problem.value_s(placement)

    def tell(value: Callable[[Any], Any]) -> None:
        placement, seconds = valued(value)
        limits.tell(evaluations, seconds, placement)

    solver = cp_sat.make_solver(cp_model, seed, limits, num_workers=1)
    solver.parameters.linearization_level = 0
    status = cp_sat.solve(cp_model, solver, model, limits, tell)
    if status == cp_model.INFEASIBLE and best is None:
        return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        solution, solution_s = valued(solver.value)
        if solution_s < value_s:
            best, value_s = solution, solution_s
    bound_s = max(bound_s, solver.best_objective_bound * unit_s)
    proven = value_s <= bound_s * (1 + base.ROUNDING)
    return Solution(
        best,
        bound_s=bound_s,
        status=Status.OPTIMAL if proven else Status.TIME_LIMIT,
        evaluations=evaluations,
    )


def _whole(problem: Instance, value_s: float) -> tuple[_Whole, float]:
    """Returns the problem in whole units, and the seconds of a unit."""
    classes, edges = problem.classes, makespan_lib.edges_of(problem)
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    limit_s = value_s if value_s < inf else makespan_lib.longest_s(edges, compute_s)
    unit_s = limit_s * base.ROUNDING / (4 * len(compute_s)) or 1.0
    limit = ceil(limit_s / unit_s * (1 + base.ROUNDING))
    edges = edges._replace(delay_s=np.floor(edges.delay_s / unit_s))
    compute = np.floor(problem.allowed_compute_s / unit_s)
    windows = makespan_lib.windows_of(edges, compute)
    windows = makespan_lib.closed(classes, edges, windows, limit)
    order = problem.priority_order.tolist()
    return _Whole(classes, order, edges, windows, limit), unit_s


def _variables(model: Any, whole: _Whole) -> _Variables:
    is_open = np.ones(whole.classes.compute_s.shape, bool)
    np.logical_and.at(is_open, whole.classes.ids, np.isfinite(whole.windows.compute_s))
    on = [{d: model.new_bool_var("") for d in np.flatnonzero(row).tolist()} for row in is_open]
    earliest = whole.windows.head_s.min(axis=1)
    latest = whole.limit - (whole.windows.compute_s + whole.windows.tail_s).min(axis=1)
    start = [
        model.new_int_var(int(low), max(int(low), int(high)), "")
        for low, high in zip(earliest, latest, strict=True)
    ]
    shortest = whole.windows.through_s().min(axis=1).max()
    return _Variables(on, start, model.new_int_var(int(shortest), whole.limit, ""))


def _add_constraints(model: Any, problem: Instance, whole: _Whole, variables: _Variables) -> None:
    for row in variables.on:
        model.add_exactly_one(row.values())
    _add_windows(model, whole, variables)
    _add_delays(model, whole, variables)
    for device in range(len(problem.devices)):
        _add_order(model, whole, variables, device)
    _add_memory(model, problem, whole, variables)
    _add_symmetry(model, problem, whole, variables)
    model.minimize(variables.latency)


def _add_windows(model: Any, whole: _Whole, variables: _Variables) -> None:
    head, compute, tail = whole.windows
    for op, number in enumerate(whole.classes.ids.tolist()):
        start, on = variables.start[op], variables.on[number]
        after = {d: int(compute[op, d] + tail[op, d]) for d in on}
        model.add(variables.latency >= start + sum(after[d] * x for d, x in on.items()))
        model.add(start >= sum(int(head[op, d]) * x for d, x in on.items()))


def _add_delays(model: Any, whole: _Whole, variables: _Variables) -> None:
    compute, number = whole.windows.compute_s, whole.classes.ids.tolist()
    for sender, receiver, delay in zip(*whole.edges, strict=True):
        before, after = variables.on[number[sender]], variables.on[number[receiver]]
        began, start = variables.start[sender], variables.start[receiver]
        model.add(start >= began + sum(int(compute[sender, a]) * x for a, x in before.items()))
        for a, x in before.items():
            for b, y in after.items():
                if np.isinf(delay[a, b]):
                    model.add_bool_or([~x, ~y])
                elif delay[a, b] > 0:
                    seconds = int(compute[sender, a] + delay[a, b])
                    model.add(start >= began + seconds).only_enforce_if([x, y])


def _add_order(model: Any, whole: _Whole, variables: _Variables, device: int) -> None:
    """Adds that a device runs what it has one by one, in order of priority."""
    free, intervals = 0, []
    for op in whole.order:
        on = variables.on[whole.classes.ids[op]].get(device)
        if on is None:
            continue
        seconds, start = int(whole.windows.compute_s[op, device]), variables.start[op]
        model.add(start >= free).only_enforce_if(on)
        following = model.new_int_var(0, whole.limit, "")
        model.add(following >= free)
        model.add(following >= start + seconds).only_enforce_if(on)
        intervals.append(model.new_optional_fixed_size_interval_var(start, seconds, on, ""))
        free = following
    model.add_no_overlap(intervals)


def _add_memory(model: Any, problem: Instance, whole: _Whole, variables: _Variables) -> None:
    memory = problem.memory_limits
    for devices, capacity_bytes in zip(memory.devices, memory.capacity_bytes, strict=True):
        needed, capacity = cp_sat.whole_bytes(whole.classes.memory_bytes, capacity_bytes)
        inside = [
            needed[number] * x
            for number, row in enumerate(variables.on)
            for d, x in row.items()
            if devices[d]
        ]
        model.add(sum(inside) <= capacity)


def _add_symmetry(model: Any, problem: Instance, whole: _Whole, variables: _Variables) -> None:
    """Adds that of two interchangeable devices the first takes a class first."""
    equal = problem.interchangeable_devices
    groups = [np.flatnonzero(equal == first).tolist() for first in np.unique(equal)]
    for device, other in itertools.chain.from_iterable(map(itertools.pairwise, groups)):
        earlier: list[Any] = []
        for number in _class_order(whole):
            on = variables.on[number]
            if other in on:
                model.add_bool_or([*earlier, ~on[other]])
            earlier += [on[device]] if device in on else []


def _class_order(whole: _Whole) -> list[int]:
    return list(dict.fromkeys(whole.classes.ids[whole.order].tolist()))
