"""The interface of solvers.

A solver is a function `find(problem, seed, limits) -> Solution`. `placement.methods.solve` gives it
a name, computes the value of its placement in the problem's simulator and checks its bound.

Costs and tables are float32, as the simulators read them; solvers add them up in float64. So what a
solver takes for the value of a placement may differ from the simulator's by its rounding, which
grows with the graph (`bound_rounding`).
"""

from collections.abc import Callable

import numpy as np

from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution

ROUNDING = 1e-5  # relative: a value so close to a bound counts as equal to it
# The scopes of a solution. Under `makespan` some bounds hold only for the order of priority that
# the problem gives (`Instance.priority_order`), others for all orders. A placement is contiguous if
# an order of the devices exists that every tensor follows (`placement.solvers.splits.contiguous`).
# `milp` checks each device by itself, as the paper's program does: no path leaves it and returns.
# This admits more placements, so that its bound holds for the contiguous ones as well.
ALL, GIVEN_ORDER, CONTIGUOUS = "all", "given order", "contiguous"


def find_scope(problem: Instance) -> str:
    """Returns the scope of a proof that counts on the simulator's order of priority."""
    return GIVEN_ORDER if problem.objective == "makespan" else ALL


def bound_rounding(problem: Instance) -> float:
    """Bounds the share by which the simulator's value may lie below a valid bound, or above.

    No addend is negative, so each addition in float32 changes a result by 2**-24 of it at most. A
    value adds up no more than twice as many numbers as there are operations and edges. Solvers
    round too, by `ROUNDING` at most.
    """
    return ROUNDING + 2.0**-23 * (problem.graph.num_ops + problem.graph.num_edges)


def report_single_device(problem: Instance, limits: SearchLimits) -> None:
    """Reports the best single device as the first incumbent, before anything is compiled."""
    values_s = problem.single_device_values_s
    device = int(np.argmin(values_s))
    if np.isfinite(values_s[device]):
        limits.report(1, float(values_s[device]), problem.single_devices[device])


# (problem, seed, limits) -> Solution. Randomness comes from the seed alone.
Find = Callable[[Instance, int, SearchLimits], Solution]
