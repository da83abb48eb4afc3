"""The placers of Baechi (Jeon et al. 2020): list scheduling under memory limits.

m-TOPO fills the devices one by one in topological order, each up to

    cap = total memory of all operations / number of devices + largest memory of one operation.

m-ETF takes, among the ready operations, the one that can start earliest on any device (Hwang et al.
1989).

Departures. The paper's devices are identical and have no host next to them. Here m-TOPO leaves to
the host what no accelerator takes. m-ETF puts an operation on the device that *finishes* it first,
and takes next the operation with the least EFT(v, d) - min over devices of compute_s[v], which on
equal devices is its earliest start; ties go to the highest upward rank. Links do not queue.
"""

import heapq
import math

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.solvers.heuristics.list_scheduling import Assignment, PartialSchedule
from placement.solvers.limits import SearchLimits
from placement.types import Solution


def m_topo(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Memory-constrained topological placement (Jeon et al. 2020, section 3.1)."""
    assignment = Assignment(problem)
    compute_s: list[list[float]] = np.asarray(problem.costs.compute_s, np.float64).tolist()
    accelerators = np.flatnonzero(np.asarray(problem.costs.accelerator) >= 0).tolist()
    devices = accelerators or list(range(len(problem.devices)))
    memory_bytes = problem.decisions.memory_bytes
    cap_bytes = memory_bytes.sum() / len(devices) + memory_bytes.max()
    current, used_bytes = 0, 0.0
    for op in problem.topological_order.tolist():
        candidates = assignment.candidates(op)
        if not candidates:
            return Solution(None)
        new_bytes = assignment.new_bytes(op)
        is_full = devices[current] not in candidates and new_bytes > 0
        if current + 1 < len(devices) and (is_full or used_bytes + new_bytes > cap_bytes):
            current, used_bytes = current + 1, 0.0
        device = devices[current]
        if device in candidates:
            used_bytes += new_bytes
        else:
            device = min(candidates, key=compute_s[op].__getitem__)
        assignment.assign(op, device)
    return Solution(np.array(assignment.placement))


def m_etf(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Memory-constrained earliest task first (Jeon et al. 2020, section 3.2).

    After the time limit HEFT's rule places the rest.
    """
    schedule, graph = PartialSchedule(problem), problem.graph
    waiting = dag.InputCounts(graph.num_ops, graph.senders, graph.receivers)
    rank = problem.upward_rank.tolist()
    arrival_s = {op: schedule.arrival_s(op) for op in waiting.sources()}  # of ready operations
    queue = [(0.0, -rank[op], op) for op in arrival_s]
    heapq.heapify(queue)
    while queue and not limits.is_over():
        queued_key_s, _, op = heapq.heappop(queue)
        # The device that finishes the operation first, after all its other operations.
        candidates, compute_s = schedule.assignment.candidates(op), schedule.compute_s[op]
        if not candidates:
            return Solution(None)
        min_compute_s, key_s, best_device, best_start_s = min(compute_s), math.inf, -1, 0.0
        for device in candidates:
            start_s = max(arrival_s[op][device], schedule.timelines[device].free_s)
            device_key_s = start_s + compute_s[device] - min_compute_s
            if best_device < 0 or device_key_s < key_s:
                key_s, best_device, best_start_s = device_key_s, device, start_s
        if key_s > queued_key_s:  # a key can only grow, so the operation returns to the queue
            heapq.heappush(queue, (key_s, -rank[op], op))
            continue
        schedule.place(op, best_device, best_start_s)
        for reader in waiting.place(op):
            arrival_s[reader] = schedule.arrival_s(reader)
            heapq.heappush(queue, (0.0, -rank[reader], reader))
    no_tail_s = [0.0] * len(problem.devices)
    for op in problem.priority_order.tolist():
        if schedule.placed[op] < 0 and not schedule.place_earliest(op, no_tail_s):
            return Solution(None)
    return Solution(np.array(schedule.assignment.placement))
