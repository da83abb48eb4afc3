"""A problem as integer programs see it: what moves together, and the tensors between.

A *task* is an operation, or several that are one without loss; a *class* is the tasks that share a
device. A tensor t has a source class s and reader classes R other than s, and costs in_s[t, d] and
out_s[t, d] as in `placement.simulators.max_load`. Tensors with equal source and readers are added.

Two tasks u -> v become one, where one of them, z, computes for nothing on every device and occupies
no memory, and

    z = v: all that v reads is made by u and read by v alone, and sends no less than v does:
           sum over tensors of v of in_s[d] and out_s[d] <= that of the tensors from u to v;
    z = u: all that u makes is read by v alone, and sends no less than u receives.

For then z may move to the other's device without loss: what the other's device pays in place of the
tensors between u and v is no more than those, and so is what the old device pays that now lacks z;
nothing waits for longer, no new cycle and no new way back to a device arises. It is asked of
operations that co-location leaves alone, and that are both forward or both backward.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.simulators import max_load
from placement.solvers import base


class Presolved(NamedTuple):
    """N operations in V tasks in C classes, and K tensors."""

    task: np.ndarray  # int [N]
    owner: np.ndarray  # int [V]: the class of a task
    edges: np.ndarray  # int [2, Q]: senders and receivers, the distinct edges between tasks
    backward: np.ndarray  # bool [V]
    task_s: np.ndarray  # float64 [V, D]
    compute_s: np.ndarray  # float64 [C, D]
    memory_bytes: np.ndarray  # float64 [C]
    source: np.ndarray  # int [K]: the class that makes a tensor
    readers: tuple[np.ndarray, ...]  # K of int: the other classes that read it, at least one
    in_s: np.ndarray  # float64 [K, D]
    out_s: np.ndarray  # float64 [K, D]

    def lift(self, of_classes: np.ndarray) -> np.ndarray:
        """Returns the devices int [N] of operations, of those [C] of classes."""
        chex.assert_shape(of_classes, self.compute_s.shape[:1])
        chex.assert_type(of_classes, int)
        return of_classes[self.owner[self.task]]

    def lower(self, placement: np.ndarray) -> np.ndarray:
        """Returns the devices int [C] of classes, of those [N] of operations."""
        chex.assert_shape(placement, self.task.shape)
        chex.assert_type(placement, int)
        of_tasks = np.empty(len(self.owner), int)
        of_tasks[self.task] = placement
        of_classes = np.empty(len(self.compute_s), int)
        of_classes[self.owner] = of_tasks
        return of_classes


def presolve(problem: Instance) -> Presolved:
    """Merges the tasks of a problem that can be merged without loss."""
    graph = problem.graph
    task = np.arange(graph.num_ops)
    fixed = np.bincount(problem.classes.ids)[problem.classes.ids] > 1
    while True:
        current = _build(problem, task)
        partner = _mergers(current, fixed)
        if (partner == np.arange(len(partner))).all():
            return current
        _, number = np.unique(partner, return_inverse=True)
        _, first = np.unique(number, return_index=True)
        task, fixed = number[task], fixed[first]


def equal_devices(problem: Instance, tasks: Presolved) -> np.ndarray:
    """Returns int [D]: of each device the first that costs the same and is as large."""
    is_accelerator = np.asarray(problem.costs.accelerator) >= 0
    capacity_bytes = np.asarray(problem.costs.capacity_bytes)
    rows = [is_accelerator[None], capacity_bytes[None], tasks.task_s, tasks.in_s, tasks.out_s]
    return base.equal_devices(np.concatenate(rows))


def _build(problem: Instance, task: np.ndarray) -> Presolved:
    graph, costs = problem.graph, problem.costs
    classes = problem.classes
    _, first = np.unique(task, return_index=True)
    owner = classes.ids[first]
    _, owner = np.unique(owner, return_inverse=True)  # merged tasks leave gaps
    task_s = dag.part_sums(task, np.asarray(costs.compute_s, np.float64))
    memory_bytes = dag.part_sums(owner, dag.part_sums(task, _needed_bytes(problem)))
    _, edge, number = np.unique(graph.tensors, return_index=True, return_inverse=True)
    transfer_fixed_s = problem.edge_transfer_s[edge].astype(np.float64)
    in_s, out_s = max_load.link_s(transfer_fixed_s, np.asarray(costs.accelerator))
    home = owner[task]
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(edge)))[:-1]
    # Without a tensor there is one piece all the same, an empty one.
    readers = np.split(home[graph.receivers[order]], ends)[: len(edge)]
    source, readers_, in_s, out_s = _distinct(home[graph.senders[edge]], readers, in_s, out_s)
    return Presolved(
        task=task,
        owner=owner,
        edges=np.stack(dag.quotient(graph, task)),
        backward=graph.backward[first],
        task_s=task_s,
        compute_s=dag.part_sums(owner, task_s),
        memory_bytes=memory_bytes,
        source=source,
        readers=readers_,
        in_s=in_s,
        out_s=out_s,
    )


def _needed_bytes(problem: Instance) -> np.ndarray:
    """Returns float64 [N]: what operations occupy, 0 where all fit into any memory."""
    memory_bytes = np.asarray(problem.costs.memory_bytes, np.float64)
    fits = memory_bytes.sum() <= problem.memory_limits.capacity_bytes.min(initial=np.inf)
    return memory_bytes * (not fits)


def _distinct(
    source: np.ndarray, readers: list[np.ndarray], in_s: np.ndarray, out_s: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Keeps the tensors that leave their class, those with equal ends added up."""
    numbers: dict[tuple[int, ...], int] = {}
    number = np.full(len(source), -1)
    for index, (made, read) in enumerate(zip(source.tolist(), readers, strict=True)):
        outside = sorted(set(read.tolist()) - {made})
        if outside:
            number[index] = numbers.setdefault((made, *outside), len(numbers))
    kept = number >= 0
    total_in_s = np.zeros((len(numbers), in_s.shape[1]))
    total_out_s = np.zeros_like(total_in_s)
    np.add.at(total_in_s, number[kept], in_s[kept])
    np.add.at(total_out_s, number[kept], out_s[kept])
    ends = [np.array(key, int) for key in numbers]
    made_by = np.array([key[0] for key in ends], int)
    return made_by, tuple(key[1:] for key in ends), total_in_s, total_out_s


def _mergers(tasks: Presolved, fixed: np.ndarray) -> np.ndarray:
    """Chooses int [V]: the task that each may be merged with; a task merges once."""
    count = len(tasks.owner)
    member = np.empty(len(tasks.compute_s), int)  # the task of a class that has one alone
    member[tasks.owner] = np.arange(count)
    made: list[list[int]] = [[] for _ in range(count)]
    read: list[list[int]] = [[] for _ in range(count)]
    for tensor, source in enumerate(member[tasks.source].tolist()):
        made[source].append(tensor)
        for reader in member[tasks.readers[tensor]].tolist():
            read[reader].append(tensor)
    memory_bytes = tasks.memory_bytes[tasks.owner]
    idle = ~fixed & (tasks.task_s == 0).all(axis=1) & (memory_bytes == 0)
    partner, free = np.arange(count), ~fixed
    for task in np.flatnonzero(idle).tolist():
        sources = {int(member[tasks.source[t]]) for t in read[task]}
        readers = {int(r) for t in made[task] for r in member[tasks.readers[t]]}
        alone = all(len(tasks.readers[t]) == 1 for t in read[task])
        other = -1
        if len(sources) == 1 and alone and _covers(tasks, read[task], made[task]):
            other = sources.pop()
        elif len(readers) == 1 and _covers(tasks, made[task], read[task]):
            other = readers.pop()
        same = other >= 0 and tasks.backward[task] == tasks.backward[other]
        if same and free[task] and free[other]:
            partner[task] = other
            free[[task, other]] = False
    return partner


def _covers(tasks: Presolved, between: list[int], others: list[int]) -> bool:
    """Whether some tensors cost no less than others do on every device."""
    return all(
        bool((cost_s[between].sum(axis=0) >= cost_s[others].sum(axis=0)).all())
        for cost_s in (tasks.in_s, tasks.out_s)
    )
