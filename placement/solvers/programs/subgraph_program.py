"""The integer program of the latency objective (Tarnawski et al. 2020, section 5).

A part is an accelerator's set of tasks, which runs as a whole. With parts d, hosts i, finish times
Latency[v] of tasks, and Start[d] and Finish[d] of parts,

    minimise    TotalLatency
    subject to  (1)  TotalLatency >= Finish[d]
                (2)  Finish[d] >= Start[d] + load(d)                    as in `program.add_load`
                (3)  Latency[v] >= Latency[u] + compute_s[v, i] x[v, i]   for edges u -> v
                (4)  Latency[v] >= compute_s[v, i] x[v, i]
                (5)  Start[d] >= Latency[u]                             if x[v, d] and not x[u, d]
                (6)  Latency[v] >= Finish[d]                            if x[v, d]
                (7)  Start[d] >= Finish[the previous part on d's accelerator]
                (8)  TotalLatency >= Latency[v] + (longest path after v) x[v, i],

where every task on the path of line (8) takes its fastest time.

Departure: the paper orders parts by these times alone. Where nothing takes time, parts may then
wait for each other. Here the parts have places k in an order in which no path runs backward. With
place[d, k], and is_after[v, k] if v is on or behind a part at place k or later,

                (9)   x[v, d] and place[d, k] imply is_after[v, k] and not is_after[v, k + 1]
                (10)  is_after[u, k] implies is_after[v, k]
                (11)  x[v, d] and place[d, k] and not x[u, d] imply not is_after[u, k]

for edges u -> v. Parts of one accelerator keep their order, and equal accelerators are used in
order. So with one part each their places are known.
"""

import itertools

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers.programs.program import Program, TaskGraph, add_load, join_inseparable


def build(problem: Instance, tasks: TaskGraph, horizon_s: float, lower_s: float) -> Program:
    """Builds the program of all placements whose value is at most the horizon."""
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
    if len(parts):
        _order_parts(program, tasks, accelerator)
    return program


def _order_parts(program: Program, tasks: TaskGraph, accelerator: np.ndarray) -> None:
    """Adds the places of the parts: lines (9) to (11)."""
    parts = np.flatnonzero(accelerator >= 0)
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

    x = program.assignment[tasks.class_ids][:, parts]
    is_after = program.add_booleans(len(x), num_parts)
    for v, k in itertools.product(range(len(x)), range(num_parts)):
        if k + 1 < num_parts:
            program.add_clause(is_after[v, k], ~is_after[v, k + 1])
        for d in range(num_parts):
            program.add_clause(~x[v, d], ~place[d, k], is_after[v, k])
            if k + 1 < num_parts:
                program.add_clause(~x[v, d], ~place[d, k], ~is_after[v, k + 1])
    for u, v in tasks.edges.T.tolist():
        is_separable = tasks.class_ids[u] != tasks.class_ids[v]
        for k in range(num_parts):
            program.add_clause(~is_after[u, k], is_after[v, k])
            for d in range(num_parts if is_separable else 0):
                program.add_clause(~x[v, d], ~place[d, k], ~is_after[u, k], x[u, d])
