"""The interface of solvers.

A solver is a function `find(problem, seed, limits) -> Solution`. `placement.methods.solve` gives it
a name, computes the value of its placement in the problem's simulator and checks its bound.

Costs and tables are float32, as the simulators read them; solvers add them up in float64. So what a
solver takes for the value of a placement may differ from the simulator's by its rounding, which
grows with the graph (`bound_rounding`).
"""

from collections.abc import Callable

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import residency
from placement.solvers.limits import SearchLimits
from placement.types import Solution

ROUNDING = 1e-5  # relative: a value so close to a bound counts as equal to it
# The scopes of a solution. Under `makespan` some bounds hold only for the order of priority that
# the problem gives (`Problem.priority_order`), others for all orders. A placement is contiguous if
# an order of the devices exists that every tensor follows (`placement.solvers.splits.contiguous`).
# `milp` checks each device by itself, as the paper's program does: no path leaves it and returns.
# This admits more placements, so that its bound holds for the contiguous ones as well.
ALL, GIVEN_ORDER, CONTIGUOUS = "all", "given order", "contiguous"


def bound_rounding(problem: Problem) -> float:
    """Bounds the share by which the simulator's value may lie below a valid bound, or above.

    No addend is negative, so each addition in float32 changes a result by 2**-24 of it at most. A
    value adds up no more than twice as many numbers as there are operations and edges. Solvers
    round too, by `ROUNDING` at most.
    """
    return ROUNDING + 2.0**-23 * (problem.graph.num_ops + problem.graph.num_edges)


def report_single_device(problem: Problem, limits: SearchLimits) -> np.ndarray:
    """Reports the best single device as the first incumbent, before anything is compiled.

    Returns:
      The values of all, see `compute_single_device_values`.
    """
    values_s = compute_single_device_values(problem)
    device = int(np.argmin(values_s))
    if np.isfinite(values_s[device]):
        limits.report(1, float(values_s[device]), problem.single_devices[device])
    return values_s


def compute_single_device_values(problem: Problem) -> np.ndarray:
    """Computes the value with all operations on each device, on the host.

    Returns:
      float64 [D]; inf where a device cannot run all operations.
    """
    graph, costs, order = problem.graph, problem.costs, problem.priority_order
    compute_s = np.asarray(costs.compute_s, np.float32)
    # One addition after another in float32, as the simulator of `makespan` adds.
    start_s, finish_s = np.zeros_like(compute_s), np.zeros_like(compute_s)
    finish_s[order] = np.cumsum(compute_s[order], axis=0)
    start_s[order[1:]] = finish_s[order[:-1]]
    values_s = finish_s[order[-1]].astype(np.float64)
    if problem.objective == "subgraph":  # a host runs any number of operations at a time
        for host in np.flatnonzero(np.asarray(costs.accelerator) < 0).tolist():
            paths_s = dag.longest_paths(graph.senders, graph.receivers, compute_s[:, host])
            values_s[host] = paths_s.max()
    used_bytes = np.full(len(values_s), np.asarray(costs.memory_bytes, np.float64).sum())
    if (alive := problem.residency_tables) is not None:
        times = zip(start_s.T, finish_s.T, strict=True)
        used_bytes += [residency.compute_serial_peak_bytes(alive, *pair) for pair in times]
    limited = problem.memory_limits
    is_full = limited.devices & (used_bytes > limited.capacity_bytes[:, None])
    return np.where(is_full.any(axis=0), np.inf, values_s)


# (problem, seed, limits) -> Solution. Randomness comes from the seed alone.
Find = Callable[[Problem, int, SearchLimits], Solution]
