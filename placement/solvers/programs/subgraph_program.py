"""The integer program of the latency objective (Tarnawski et al. 2020, section 5).

With finish times L[v] of tasks, and start[d] and finish[d] of accelerators' parts,

    total >= finish[d]                    finish[d] >= start[d] + load(d) of `program.load`
    L[v] >= L[u] + compute_s[v, host]     if v is on a host;   L[v] >= L[u] anyway
    start[d] >= L[u]                      if v is on part d and u is not, for edges u -> v
    L[v] >= finish[d]                     if v is on part d
    start[d] >= finish of the part before d on its accelerator
    total >= L[v] + the longest path from v with every task at its fastest, if v is on a host.

Departure: their program orders parts by these times alone, under which parts may wait for each
other where nothing takes time. Here the parts stand in an order, part d at place[d, k], in which no
path runs backward: with after[v, k], whether v is on or behind a part at place k or later,

    v on part d at place k           implies after[v, k] and not after[v, k + 1]
    after[u, k]                      implies after[v, k]             for edges u -> v
    v on part d at place k, u not    implies not after[u, k]         for edges u -> v.

Parts of one accelerator keep their order. Equal accelerators are used in order, so that with one
part each their places are known.
"""

import itertools

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers.programs import presolve, program


def build(
    problem: Instance, tasks: presolve.Presolved, horizon_s: float, lower_s: float
) -> program.Program:
    """Builds the program of the placements that are worth at most the horizon."""
    built = program.Program(horizon_s)
    program.assign(built, problem, tasks)
    built.total = built.time(lower_s)
    accelerator = np.asarray(problem.costs.accelerator)
    parts, hosts = np.flatnonzero(accelerator >= 0), np.flatnonzero(accelerator < 0)
    until, since = _paths(tasks)
    for one, other in _costly(tasks, parts, hosts, until, since, horizon_s):
        for a, b in zip(built.assigned[one], built.assigned[other], strict=True):
            built.clause(~a, b)
            built.clause(a, ~b)
    done = _on_hosts(built, tasks, hosts, until, since)
    _on_parts(built, tasks, accelerator, done)
    if len(parts):
        place = _places(built, accelerator)
        _keep_order(built, tasks, parts, place)
    return built


def _on_hosts(
    built: program.Program,
    tasks: presolve.Presolved,
    hosts: np.ndarray,
    until: np.ndarray,
    since: np.ndarray,
) -> list[int]:
    """Adds the times L[v] and what hosts do to them."""
    x = built.assigned[tasks.owner]
    done = [built.time(seconds) for seconds in until.tolist()]
    seconds = np.where(np.isfinite(tasks.task_s), tasks.task_s, 0.0)
    computing = [list(zip(x[v, hosts], seconds[v, hosts], strict=True)) for v in range(len(x))]
    for u, v in tasks.edges.T.tolist():
        built.after(done[v], [done[u]], computing[v])
    for v in range(len(x)):
        built.after(done[v], terms=computing[v])
        built.after(built.total, [done[v]], [(b, since[v]) for b in x[v, hosts]])
    return done


def _on_parts(
    built: program.Program, tasks: presolve.Presolved, accelerator: np.ndarray, done: list[int]
) -> None:
    """Adds the parts' times and what they do to those of tasks."""
    x = built.assigned[tasks.owner]
    last: dict[int, int] = {}
    for d in np.flatnonzero(accelerator >= 0).tolist():
        start, finish = built.time(), built.time()
        built.after(finish, [start], program.load(built, tasks, d))
        built.after(built.total, [finish])
        if accelerator[d] in last:
            built.after(start, [last[accelerator[d]]])
        last[accelerator[d]] = finish
        for v in range(len(x)):
            built.after(done[v], [finish], when=[x[v, d]])
        for u, v in tasks.edges.T.tolist():
            if tasks.owner[u] != tasks.owner[v]:
                built.after(start, [done[u]], when=[x[v, d], ~x[u, d]])


def _places(built: program.Program, accelerator: np.ndarray) -> np.ndarray:
    """Adds Booleans int [P, P]: whether a part stands at a place."""
    parts = np.flatnonzero(accelerator >= 0)
    place = built.booleans(len(parts), len(parts))
    built.exactly_one += [*place.tolist(), *place.T.tolist()]
    order: list[tuple[int, int]] = []  # pairs of parts, the earlier first
    numbers, first = np.unique(accelerator[parts], return_index=True)
    rows = {int(n): np.flatnonzero(accelerator[parts] == n).tolist() for n in numbers}
    last: dict[tuple[int, ...], int] = {}  # the first part of the last accelerator that is equal
    for number in numbers[np.argsort(first)].tolist():
        own = rows[number]
        order += itertools.pairwise(own)
        types = tuple(built.equal[parts[own]].tolist())
        if types in last:
            order.append((last[types], own[0]))
        last[types] = own[0]
    for one, other in order:
        for k in range(len(parts)):
            for earlier in range(k + 1):
                built.clause(~place[one, k], ~place[other, earlier])
    return place


def _keep_order(
    built: program.Program, tasks: presolve.Presolved, parts: np.ndarray, place: np.ndarray
) -> None:
    x = built.assigned[tasks.owner][:, parts]
    count = len(parts)
    after = built.booleans(len(x), count)
    for v, k in itertools.product(range(len(x)), range(count)):
        if k + 1 < count:
            built.clause(after[v, k], ~after[v, k + 1])
        for d in range(count):
            here = ~x[v, d], ~place[d, k]
            built.clause(*here, after[v, k])
            if k + 1 < count:
                built.clause(*here, ~after[v, k + 1])
    for u, v in tasks.edges.T.tolist():
        apart = tasks.owner[u] != tasks.owner[v]
        for k in range(count):
            built.clause(~after[u, k], after[v, k])
            for d in range(count if apart else 0):
                built.clause(~x[v, d], ~place[d, k], ~after[u, k], x[u, d])


def _paths(tasks: presolve.Presolved) -> tuple[np.ndarray, np.ndarray]:
    """Computes longest paths float64 [V] until a task's end and after it, at their fastest."""
    seconds = tasks.task_s.min(axis=1)
    count = len(seconds)
    starts, targets = dag.successors(count, *tasks.edges)
    until, since = dag.longest_paths(tasks.edges[0], tasks.edges[1], seconds), np.zeros(count)
    for v in dag.sort_nodes(count, *tasks.edges)[::-1].tolist():
        readers = targets[starts[v] : starts[v + 1]]
        since[v] = (seconds[readers] + since[readers]).max(initial=0.0)
    return until, since


def _costly(
    tasks: presolve.Presolved,
    parts: np.ndarray,
    hosts: np.ndarray,
    until: np.ndarray,
    since: np.ndarray,
    horizon_s: float,
) -> list[tuple[int, int]]:
    """Finds pairs of classes between which a transfer makes a path longer than the horizon."""
    if len(hosts) > 1:
        return []
    count = len(tasks.compute_s)
    before, behind = np.full(count, np.inf), np.full(count, np.inf)
    np.minimum.at(before, tasks.owner, until)
    np.minimum.at(behind, tasks.owner, tasks.task_s.min(axis=1) + since)
    least_s = np.minimum(tasks.in_s, tasks.out_s)[:, parts].min(axis=1, initial=np.inf)
    return [
        (source, int(reader))
        for tensor, source in enumerate(tasks.source.tolist())
        for reader in tasks.readers[tensor]
        if before[source] + least_s[tensor] + behind[reader] > horizon_s
    ]
