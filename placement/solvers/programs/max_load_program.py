"""The integer program of the throughput objective (Tarnawski et al. 2020, section 4).

With CommIn, CommOut and load(d) as in `program.add_load`,

    minimise    MaxLoad
    subject to  (1)  MaxLoad >= load(d)
                (2)  sum_d x[v, d] = 1
                (3)  sum_v memory[v] x[v, d] <= capacity[d].

A placement is contiguous if no path leaves a device and returns to it. For such placements a
variable z[v, d] says whether v is on d or leads to a task on d:

                (4)  z[v, d] >= x[v, d]
                (5)  z[u, d] >= z[v, d]                        for edges u -> v
                (6)  z[v, d] <= x[v, d] - x[u, d] + 1          for edges u -> v.

The edges are those within the forward pass and those within the backward pass, each of which is
contiguous by itself. Co-location may join the two passes, so that with all edges no path of a
training graph could leave a device.

Departures: three kinds of constraints are added that leave some optimum in place.

1. Equal devices are used in order. With classes sorted by falling cost, a class may be on the
   second of them only if an earlier class is on the first.
2. Some device computes more of the heavy classes than it could below the lower bound
   (`placement.solvers.bounds.counting.Pigeonhole`).
3. Classes are not separated where the transfer would exceed the horizon.
"""

import numpy as np

from placement.instance import Instance
from placement.solvers.bounds import counting
from placement.solvers.programs.program import Count, Program, TaskGraph, add_load, join_inseparable


def build(
    problem: Instance,
    tasks: TaskGraph,
    horizon_s: float,
    lower_s: float,
    *,
    contiguous: bool = False,
) -> Program:
    """Builds the program of all placements whose value is at most the horizon.

    Args:
      problem: a problem with the objective max_load.
      tasks: the presolved problem.
      horizon_s: the largest load of a device.
      lower_s: a lower bound of the busiest device's load.
      contiguous: whether to admit only contiguous placements.
    """
    program = Program(problem, tasks, horizon_s, lower_s)
    for device in range(len(problem.devices)):
        program.add_precedence(program.total, terms=add_load(program, tasks, device))
    zeros = np.zeros(len(tasks.compute_s))
    join_inseparable(program, problem, tasks, zeros, zeros)

    x, first_equal = program.assignment, program.first_equal_device
    order = np.argsort(-tasks.compute_s.min(axis=1), kind="stable")
    for device, first in enumerate(first_equal.tolist()):
        equal_before = np.flatnonzero(first_equal[:device] == first)
        if len(equal_before):
            for rank, c in enumerate(order):
                program.add_clause(~x[c, device], *x[order[:rank], equal_before[-1]])

    heavy = counting.pigeonhole(tasks.compute_s)
    is_crowded = []
    for device, capacity in enumerate(heavy.capacity.tolist()):
        if capacity < len(heavy.members):
            is_crowded.append(program.add_boolean())
            members = x[heavy.members, device].tolist()
            program.counts.append(Count(members, capacity + 1, is_crowded[-1]))
    program.add_clause(*is_crowded)

    if contiguous:
        x = x[tasks.class_ids]
        z = program.add_booleans(*x.shape)
        for leads, is_on in zip(z.ravel(), x.ravel(), strict=True):
            program.add_clause(leads, ~is_on)
        for u, v in tasks.edges.T.tolist():
            if tasks.backward[u] == tasks.backward[v]:
                for d in range(x.shape[1]):
                    program.add_clause(z[u, d], ~z[v, d])
                    program.add_clause(~x[u, d], x[v, d], ~z[v, d])
    return program
