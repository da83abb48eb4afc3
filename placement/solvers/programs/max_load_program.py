"""The integer program of the throughput objective (Tarnawski et al. 2020, section 4).

    minimise total    total >= load(d) of `program.load`,    x as in `program.assign`

Contiguous placements, in which no path leaves a device and returns to it, are those for which there
are z[v, d], whether a task leads to one on device d, itself included:

    z[v, d] >= x[v, d];    z[u, d] >= z[v, d] and x[u, d] - x[v, d] + z[v, d] <= 1 for edges u -> v

over edges within the forward or within the backward operations: each are contiguous for themselves,
as co-location may join the two, and then no path of a training graph could leave a device.

Added are two things that no optimum lacks. Equal devices are entered in order: a class may be on
the second of them only if an earlier class, in order of falling cost, is on the first. And some
device takes more of the heavy classes than it has room for below the bound (`bounds.Pigeonhole`).
Tensors that cost more than the horizon stay inside, where no two hosts exchange them for free.
"""

import numpy as np

from placement.instance import Instance
from placement.solvers.bounds import counting
from placement.solvers.programs import presolve, program


def build(
    problem: Instance,
    tasks: presolve.Presolved,
    horizon_s: float,
    lower_s: float,
    *,
    contiguous: bool = False,
) -> program.Program:
    """Builds the program of the placements that are worth at most the horizon.

    Args:
      problem: whose objective is max_load.
      tasks: the same without what need not be decided.
      horizon_s: what no load exceeds.
      lower_s: a bound of the busiest device's load.
      contiguous: whether contiguous placements alone are in it.
    """
    built = program.Program(horizon_s)
    program.assign(built, problem, tasks)
    built.total = built.time(lower_s)
    for device in range(len(problem.devices)):
        built.after(built.total, terms=program.load(built, tasks, device))
    for one, other in costly(problem, tasks, horizon_s).T.tolist():
        for a, b in zip(built.assigned[one], built.assigned[other], strict=True):
            built.clause(~a, b)
            built.clause(a, ~b)
    _enter_in_order(built, tasks)
    _crowd(built, tasks)
    if contiguous:
        _keep_contiguous(built, tasks)
    return built


def costly(problem: Instance, tasks: presolve.Presolved, horizon_s: float) -> np.ndarray:
    """Finds pairs of classes int [2, P] that tensors join whose transfer costs more."""
    pays = np.asarray(problem.costs.accelerator) >= 0
    if not len(tasks.source) or (~pays).sum() > 1:
        return np.zeros((2, 0), int)
    least_s = np.minimum(tasks.in_s, tasks.out_s)[:, pays].min(axis=1, initial=np.inf)
    pairs = [
        (tasks.source[t], reader)
        for t in np.flatnonzero(least_s > horizon_s)
        for reader in tasks.readers[t]
    ]
    return np.array(pairs, int).reshape(-1, 2).T


def _enter_in_order(built: program.Program, tasks: presolve.Presolved) -> None:
    x, equal = built.assigned, built.equal
    order = np.argsort(-tasks.compute_s.min(axis=1), kind="stable")
    for device, first in enumerate(equal.tolist()):
        earlier = np.flatnonzero(equal[:device] == first)
        if len(earlier):
            for rank, number in enumerate(order):
                built.clause(~x[number, device], *x[order[:rank], earlier[-1]])


def _crowd(built: program.Program, tasks: presolve.Presolved) -> None:
    heavy = counting.pigeonhole(tasks.compute_s)
    crowded = []
    for device, room in enumerate(heavy.room.tolist()):
        if room < len(heavy.members):
            crowded.append(built.boolean())
            members = built.assigned[heavy.members, device].tolist()
            built.at_least.append(program.AtLeast(members, room + 1, crowded[-1]))
    built.clause(*crowded)


def _keep_contiguous(built: program.Program, tasks: presolve.Presolved) -> None:
    x = built.assigned[tasks.owner]
    leads = built.booleans(*x.shape)
    for one, other in zip(leads.ravel(), x.ravel(), strict=True):
        built.clause(one, ~other)
    for u, v in tasks.edges.T.tolist():
        if tasks.backward[u] == tasks.backward[v]:
            for d in range(x.shape[1]):
                built.clause(leads[u, d], ~leads[v, d])
                built.clause(~x[u, d], x[v, d], ~leads[v, d])
