"""The placers of Baechi (Jeon et al. 2020): list scheduling under memory limits.

m-TOPO fills the devices one by one in topological order, each up to

    cap = total memory of all operations / number of devices + largest memory of one operation.

m-ETF takes, among the ready operations, the one that can start earliest on any device (Hwang et al.
1989). m-SCT (Hanen and Munier 1995) adds favourite children: the successor that should follow an
operation at once, on the same device. They come from a linear program that relaxes the problem with
unlimited devices. With start times s, mean computing times k and mean delays c,

    minimise w,    s_i + k_i <= w,    s_j >= s_i + k_i + c_ij x_ij  for every edge,
    sum over successors j of x_ij >= successors of i - 1,
    sum over predecessors i of x_ij >= predecessors of j - 1,    0 <= x <= 1,

j is the favourite child of i if x_ij < 1/2, which holds for at most one successor and one
predecessor. A device whose last operation awaits its favourite child takes another operation only
once that one is urgent, that is, once its inputs could be on any device.

Departures. The paper's devices are identical and have no host next to them. Here m-TOPO leaves to
the host what no accelerator takes. The other two put an operation on the device that *finishes* it
first, and take next the operation with the least EFT(v, d) - min over devices of compute_s[v],
which on equal devices is its earliest start; ties go to the highest upward rank. Links do not
queue. If the linear program takes too long, m-SCT is m-ETF.
"""

import heapq
import math

import numpy as np
from scipy import optimize, sparse

from placement.problem import Problem
from placement.simulators import ranks
from placement.simulators.list_schedule import InputCounts
from placement.solvers.heuristics.list_scheduling import Assignment, PartialSchedule
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_LP_SHARE = 0.5  # of the remaining time, for the linear program
_TOLERANCE = 1e-6  # of the linear program


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
    """Memory-constrained earliest task first (Jeon et al. 2020, section 3.2)."""
    return _earliest_first(problem, np.full(problem.graph.num_ops, -1), limits)


def m_sct(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Memory-constrained small communication times (Jeon et al. 2020, section 3.3)."""
    favourite = favourite_children(problem, _LP_SHARE * limits.remaining_s())
    return _earliest_first(problem, favourite, limits)


def favourite_children(problem: Problem, time_limit_s: float) -> np.ndarray:
    """Computes each operation's favourite child, int [N]; -1 if it has none."""
    num_ops = problem.graph.num_ops
    child = np.full(num_ops, -1)
    senders, receivers, _, pair = problem.dependencies
    if not len(senders):
        return child
    num_edges = len(senders)
    delay_s = np.zeros(num_edges)
    np.maximum.at(delay_s, pair, problem.mean_edge_delay_s)
    compute_s = ranks.finite_mean(np.asarray(problem.costs.compute_s, np.float64))
    scale = max(compute_s.max(), delay_s.max()) or 1.0
    compute_s, delay_s = compute_s / scale, delay_s / scale
    # Incidence matrices [E, N]: 1 if an operation is the sender, or the receiver, of an edge.
    sends, reads = (
        sparse.csr_array((np.ones(num_edges), (np.arange(num_edges), ops)), (num_edges, num_ops))
        for ops in (senders, receivers)
    )
    # Variables: x [E], s [N], w.
    rows = [
        [sparse.diags_array(delay_s), sends - reads, None],
        [-sends.T, None, None],
        [-reads.T, None, None],
        [None, sparse.eye_array(num_ops), -np.ones((num_ops, 1))],
    ]
    degrees = np.concatenate([sends.sum(axis=0), reads.sum(axis=0)])
    solved = optimize.linprog(
        np.append(np.zeros(num_edges + num_ops), 1.0),
        sparse.block_array(rows, format="csr"),
        np.concatenate([-compute_s[senders], 1 - degrees, -compute_s]),
        bounds=[(0, 1)] * num_edges + [(0, None)] * (num_ops + 1),
        options={"time_limit": time_limit_s},
    )
    if solved.status == 0:
        is_favourite = solved.x[:num_edges] < 0.5 - _TOLERANCE
        child[senders[is_favourite]] = receivers[is_favourite]
    return child


def _earliest_first(problem: Problem, favourite: np.ndarray, limits: SearchLimits) -> Solution:
    """Places the operation with the least key next; after the time limit HEFT's rule decides.

    A key can only grow, except that a device stops awaiting its favourite child. So the queue may
    hold outdated keys: an operation whose key has grown returns to the queue, and the operations
    that a device was reserved against are queued again once it is free for them.
    """
    schedule, waiting = PartialSchedule(problem), InputCounts(problem.graph)
    rank = problem.upward_rank.tolist()
    awaited_op = [-1] * len(problem.devices)  # the favourite child that each device awaits
    blocked_ops: list[set[int]] = [set() for _ in problem.devices]
    arrival_s = {op: schedule.arrival_s(op) for op in waiting.sources()}  # of ready operations
    queue = [(0.0, -rank[op], op) for op in arrival_s]
    heapq.heapify(queue)
    while queue and not limits.is_over():
        queued_key_s, _, op = heapq.heappop(queue)
        if schedule.placed[op] >= 0:
            continue

        # The device that finishes the operation first, after all its other operations.
        candidates, compute_s = schedule.assignment.candidates(op), schedule.compute_s[op]
        if not candidates:
            return Solution(None)
        min_compute_s, key_s, best_device, best_start_s = min(compute_s), math.inf, -1, 0.0
        for device in candidates:
            start_s, awaited = arrival_s[op][device], awaited_op[device]
            if awaited not in (-1, op) and schedule.placed[awaited] < 0:
                blocked_ops[device].add(op)
                start_s = max(arrival_s[op][d] for d in candidates)  # when it becomes urgent
            start_s = max(start_s, schedule.timelines[device].free_s)
            device_key_s = start_s + compute_s[device] - min_compute_s
            if best_device < 0 or device_key_s < key_s:
                key_s, best_device, best_start_s = device_key_s, device, start_s
        if key_s > queued_key_s:
            heapq.heappush(queue, (key_s, -rank[op], op))
            continue

        schedule.place(op, best_device, best_start_s)
        del arrival_s[op]
        queued_ops = waiting.place(op)
        arrival_s |= {reader: schedule.arrival_s(reader) for reader in queued_ops}
        child = int(favourite[op])
        for device, awaited in enumerate(awaited_op):
            if device == best_device and child >= 0:
                # The device now awaits `child`, which alone may start sooner there.
                queued_ops += blocked_ops[device] & {child}
                blocked_ops[device] -= {child}
            elif device == best_device or awaited == op:
                queued_ops += blocked_ops[device]
                blocked_ops[device] = set()
        awaited_op[best_device] = child
        for queued_op in set(queued_ops):
            heapq.heappush(queue, (0.0, -rank[queued_op], queued_op))
    no_tail_s = [0.0] * len(problem.devices)
    for op in problem.priority_order.tolist():
        if schedule.placed[op] < 0 and not schedule.place_earliest(op, no_tail_s):
            return Solution(None)
    return Solution(np.array(schedule.assignment.placement))
