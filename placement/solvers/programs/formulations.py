"""The integer programs of `max_load` and `subgraph` (Tarnawski et al. 2020, sections 4 and 5)."""

import itertools

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.solvers.bounds import counting
from placement.solvers.programs.program import Count, Program, TaskGraph


def build_max_load(
    problem: Problem,
    tasks: TaskGraph,
    horizon_s: float,
    lower_s: float,
    *,
    contiguous: bool = False,
) -> Program:
    """Builds the program of `max_load` of placements whose value is at most the horizon.

    With CommIn, CommOut and load(d) as in `add_load`,

        minimise    MaxLoad
        subject to  (1)  MaxLoad >= load(d)
                    (2)  sum_d x[v, d] = 1
                    (3)  sum_v memory[v] x[v, d] <= capacity[d].

    A placement is contiguous if no path leaves a device and returns to it. For such placements a
    variable z[v, d] says whether v is on d or leads to a task on d:

                    (4)  z[v, d] >= x[v, d]
                    (5)  z[u, d] >= z[v, d]                        for edges u -> v
                    (6)  z[v, d] <= x[v, d] - x[u, d] + 1          for edges u -> v.

    The edges are those within the forward and within the backward pass: co-location may join the
    two, so that with all edges no path of a training graph could leave a device.

    Departures: three kinds of constraints are added that leave some optimum in place.
    1. Equal devices are used in order. With classes sorted by falling cost, a class may be on the
       second of them only if an earlier class is on the first.
    2. Some device computes more of the heavy classes than it could below the lower bound
       (`placement.solvers.bounds.counting.Pigeonhole`).
    3. Classes are not separated where the transfer would exceed the horizon.

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


def build_subgraph(problem: Problem, tasks: TaskGraph, horizon_s: float, lower_s: float) -> Program:
    """Builds the program of `subgraph` of placements whose value is at most the horizon.

    A part is an accelerator's set of tasks, which runs as a whole. With parts d, hosts i, finish
    times Latency[v] of tasks, and Start[d] and Finish[d] of parts,

        minimise  TotalLatency
        s.t.  (1)  TotalLatency >= Finish[d]
              (2)  Finish[d] >= Start[d] + load(d)                    as in `add_load`
              (3)  Latency[v] >= Latency[u] + compute_s[v, i] x[v, i]   for edges u -> v
              (4)  Latency[v] >= compute_s[v, i] x[v, i]
              (5)  Start[d] >= Latency[u]                             if x[v, d] and not x[u, d]
              (6)  Latency[v] >= Finish[d]                            if x[v, d]
              (7)  Start[d] >= Finish[the previous part on d's accelerator]
              (8)  TotalLatency >= Latency[v] + (longest path after v) x[v, i],

    where every task on the path of line (8) takes its fastest time.

    Departure: the paper orders parts by these times alone. Where nothing takes time, parts may then
    wait for each other. Here the parts have places in an order in which no path runs backward.
    """
    program = Program(problem, tasks, horizon_s, lower_s)
    accelerator = np.asarray(problem.costs.accelerator)
    parts, hosts = np.flatnonzero(accelerator >= 0), np.flatnonzero(accelerator < 0)
    x, num_tasks = program.assignment[tasks.class_ids], len(tasks.class_ids)
    edges = tasks.edges.T.tolist()

    # Longest paths float64 [V] until a task's end and after it, with every task at its fastest.
    senders, receivers = tasks.edges
    fastest_s = tasks.task_s.min(axis=1)
    until_end_s = dag.longest_paths(senders, receivers, fastest_s)
    after_end_s = np.zeros(num_tasks)
    from_start_s = dag.longest_paths(receivers, senders, fastest_s)
    np.maximum.at(after_end_s, senders, from_start_s[receivers])
    before_class_s, behind_class_s = np.full((2, len(tasks.compute_s)), np.inf)
    np.minimum.at(before_class_s, tasks.class_ids, until_end_s)
    np.minimum.at(behind_class_s, tasks.class_ids, fastest_s + after_end_s)
    join_inseparable(program, problem, tasks, before_class_s, behind_class_s)

    # Hosts: lines (3), (4) and (8).
    latency = [program.add_time(seconds) for seconds in until_end_s.tolist()]
    seconds = np.where(np.isfinite(tasks.task_s), tasks.task_s, 0.0)
    host_terms = [list(zip(x[v, hosts], seconds[v, hosts], strict=True)) for v in range(num_tasks)]
    for u, v in edges:
        program.add_precedence(latency[v], [latency[u]], host_terms[v])
    for v in range(num_tasks):
        program.add_precedence(latency[v], terms=host_terms[v])
        terms = [(boolean, after_end_s[v]) for boolean in x[v, hosts]]
        program.add_precedence(program.total, [latency[v]], terms)

    # Parts: lines (1), (2) and (5) to (7).
    last_finish: dict[int, int] = {}  # by accelerator
    for d in parts.tolist():
        start, finish = program.add_time(), program.add_time()
        program.add_precedence(finish, [start], add_load(program, tasks, d))
        program.add_precedence(program.total, [finish])
        if accelerator[d] in last_finish:
            program.add_precedence(start, [last_finish[accelerator[d]]])
        last_finish[accelerator[d]] = finish
        for v in range(num_tasks):
            program.add_precedence(latency[v], [finish], conditions=[x[v, d]])
        for u, v in edges:
            if tasks.class_ids[u] != tasks.class_ids[v]:
                program.add_precedence(start, [latency[u]], conditions=[x[v, d], ~x[u, d]])

    # The parts have places k in an order in which no path runs backward. is_after[v, k] says that v
    # is on or behind a part at place k or later. For edges u -> v
    #     (9)   x[v, d] and place[d, k] imply is_after[v, k] and not is_after[v, k + 1]
    #     (10)  is_after[u, k] implies is_after[v, k]
    #     (11)  x[v, d] and place[d, k] and not x[u, d] imply not is_after[u, k]
    # Parts of one accelerator keep their order, and equal accelerators are used in order.
    num_parts = len(parts)
    place = program.add_booleans(num_parts, num_parts)
    program.exactly_one += [*place.tolist(), *place.T.tolist()]
    ordered_pairs: list[tuple[int, int]] = []  # of parts, the earlier one first
    accelerators, first = np.unique(accelerator[parts], return_index=True)
    last_equal: dict[tuple[int, ...], int] = {}  # the first part of the last equal accelerator
    for number in accelerators[np.argsort(first)].tolist():
        members = np.flatnonzero(accelerator[parts] == number).tolist()
        ordered_pairs += itertools.pairwise(members)
        kinds = tuple(program.first_equal_device[parts[members]].tolist())
        if kinds in last_equal:
            ordered_pairs.append((last_equal[kinds], members[0]))
        last_equal[kinds] = members[0]
    for early, late in ordered_pairs:
        for k in range(num_parts):
            for earlier_place in range(k + 1):
                program.add_clause(~place[early, k], ~place[late, earlier_place])

    x = x[:, parts]
    is_after = program.add_booleans(len(x), num_parts)
    for v, k in itertools.product(range(len(x)), range(num_parts)):
        if k + 1 < num_parts:
            program.add_clause(is_after[v, k], ~is_after[v, k + 1])
        for d in range(num_parts):
            program.add_clause(~x[v, d], ~place[d, k], is_after[v, k])
            if k + 1 < num_parts:
                program.add_clause(~x[v, d], ~place[d, k], ~is_after[v, k + 1])
    for u, v in edges:
        is_separable = tasks.class_ids[u] != tasks.class_ids[v]
        for k in range(num_parts):
            program.add_clause(~is_after[u, k], is_after[v, k])
            for d in range(num_parts if is_separable else 0):
                program.add_clause(~x[v, d], ~place[d, k], ~is_after[u, k], x[u, d])
    return program


def add_load(program: Program, tasks: TaskGraph, device: int) -> list[tuple[int, float]]:
    """Adds the communication of a device, and returns its load as terms seconds * Boolean.

    With the notation of Tarnawski et al. 2020, for every tensor t of class u and reader class v,

        CommIn[t, d] >= x[v, d] - x[u, d]
        CommOut[t, d] >= x[u, d] - x[v, d]
        load(d) = sum_c compute_s[c, d] x[c, d]
                  + sum_t receive_s[t, d] CommIn[t, d] + send_s[t, d] CommOut[t, d].
    """
    x = program.assignment[:, device]
    seconds = tasks.compute_s[:, device]
    terms = [(int(x[c]), seconds[c]) for c in np.flatnonzero(np.isfinite(seconds) & (seconds > 0))]

    def add_transfer(cost_s: float) -> list[int] | None:
        """Returns a new Boolean at this cost, none where it is infinite, None where it is free."""
        if cost_s == 0:
            return None
        if np.isinf(cost_s):
            return []
        boolean = program.add_boolean()
        terms.append((boolean, float(cost_s)))
        return [boolean]

    for tensor, source in enumerate(tasks.source.tolist()):
        received = add_transfer(tasks.receive_s[tensor, device])
        sent = add_transfer(tasks.send_s[tensor, device])
        for reader in tasks.readers[tensor]:
            if received is not None:
                program.add_clause(~x[reader], x[source], *received)
            if sent is not None:
                program.add_clause(x[reader], ~x[source], *sent)
    return terms


def join_inseparable(
    program: Program,
    problem: Problem,
    tasks: TaskGraph,
    preceding_s: np.ndarray,
    following_s: np.ndarray,
) -> None:
    """Keeps two classes together if a transfer between them would exceed the horizon.

    Several hosts exchange tensors for free, so that nothing is inseparable then.

    `preceding_s`, float64 [C], always precedes the transfer of a class's tensor, and `following_s`
    always follows the arrival of a tensor at a class.
    """
    is_accelerator = np.asarray(problem.costs.accelerator) >= 0
    if (~is_accelerator).sum() > 1:
        return
    transfer_s = np.minimum(tasks.receive_s, tasks.send_s)[:, is_accelerator]
    min_transfer_s = transfer_s.min(axis=1, initial=np.inf)
    x = program.assignment
    for tensor, source in enumerate(tasks.source.tolist()):
        for reader in tasks.readers[tensor]:
            path_s = preceding_s[source] + min_transfer_s[tensor] + following_s[reader]
            if path_s > program.horizon_s:
                for a, b in zip(x[source], x[reader], strict=True):
                    program.add_clause(~a, b)
                    program.add_clause(a, ~b)
