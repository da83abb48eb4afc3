"""The presolved form of a problem: tasks that move together, and the tensors between them.

A *task* is an operation, or several operations that merge without loss. A *class* is the tasks that
share a device. A tensor t has a source class and reader classes other than its source. As in
`placement.simulators.max_load`, receiving it costs receive_s[t, d] and sending it send_s[t, d].
Tensors with equal source and readers are added up.

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

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import max_load
from placement.solvers.programs.program import TaskGraph


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
    order = np.argsort(tensor, kind="stable")
    ends = np.cumsum(np.bincount(tensor, minlength=len(edge)))[:-1]
    # Without any tensor `split` returns one piece, an empty one.
    readers = np.split(op_class[graph.receivers[order]], ends)[: len(edge)]
    # Tensors that leave their class are added to one of equal source and readers.
    source_and_readers: dict[tuple[int, ...], int] = {}
    number = np.full(len(edge), -1)
    sources = op_class[graph.senders[edge]].tolist()
    for index, (source, tensor_readers) in enumerate(zip(sources, readers, strict=True)):
        outside = sorted(set(tensor_readers.tolist()) - {source})
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
