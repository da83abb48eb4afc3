"""The placers of Baechi (Jeon et al. 2020): list scheduling under memory limits.

m-TOPO fills the devices one by one in topological order, each up to

    cap = total memory of all operations / number of devices + largest of one operation.

m-ETF takes, of the operations that are ready, the one that can start earliest on any device
(Hwang et al. 1989). m-SCT (Hanen and Munier 1995) adds favourite children: the successor that had
better follow an operation at once, on the same device. They come from a linear program that
relaxes unlimited devices: with start times s, mean computing times k and mean delays c,

    minimise w,    s_i + k_i <= w,    s_j >= s_i + k_i + c_ij x_ij  for every edge,
    sum over successors j of x_ij >= successors of i - 1,
    sum over predecessors i of x_ij >= predecessors of j - 1,    0 <= x <= 1,

and j is the favourite child of i where x_ij < 1/2, which is true of at most one successor and one
predecessor. A device whose last operation awaits its favourite child takes another operation only
once that one is urgent: its inputs could be on any device by then.

Departures. The paper's devices are identical and have no host beside them: here m-TOPO leaves the
host what no accelerator takes, and the other two put an operation on the device that *finishes* it
first; the operation that goes next is that of the least

    EFT(v, d) - min over devices of compute_s[v],

which on equal devices is its earliest start; of equal ones, that of the highest upward rank. Links
do not queue, as they do not in the simulator. Where the linear program takes too long there are
no favourite children, and m-SCT is m-ETF.
"""

import heapq
from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from placement.instance import Instance
from placement.simulators import ranks
from placement.solvers.heuristics.list_scheduling import Assignment, PartialSchedule, Waiting
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_LP_SHARE = 0.5  # of the time that is left
_TOLERANCE = 1e-6  # of the linear program


class _Choice(NamedTuple):
    """Where and when an operation would go."""

    key_s: float
    device: int
    start_s: float
    held: tuple[int, ...]  # devices that wait for another operation's sake


def m_topo(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Memory-constrained topological placement (Jeon et al. 2020, section 3.1)."""
    del seed, limits
    assignment = Assignment(problem)
    compute_s: list[list[float]] = np.asarray(problem.costs.compute_s, np.float64).tolist()
    accelerators = np.flatnonzero(np.asarray(problem.costs.accelerator) >= 0).tolist()
    devices = accelerators or list(range(len(problem.devices)))
    memory_bytes = problem.classes.memory_bytes
    cap = memory_bytes.sum() / len(devices) + memory_bytes.max()
    at, used = 0, 0.0
    for op in problem.topological_order.tolist():
        candidates = assignment.candidates(op)
        if not candidates:
            return Solution(None)
        needed = assignment.bytes_of(op)
        full = devices[at] not in candidates and needed > 0
        if at + 1 < len(devices) and (full or used + needed > cap):
            at, used = at + 1, 0.0
        seconds = compute_s[op]
        fallback = min(candidates, key=seconds.__getitem__)
        device = devices[at] if devices[at] in candidates else fallback
        used += needed if device == devices[at] else 0.0
        assignment.assign(op, device)
    return Solution(np.array(assignment.placed))


def m_etf(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Memory-constrained earliest task first (Jeon et al. 2020, section 3.2)."""
    del seed
    return _earliest_first(problem, np.full(problem.graph.num_ops, -1), limits)


def m_sct(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Memory-constrained small communication times (Jeon et al. 2020, section 3.3)."""
    del seed
    favourite = favourite_children(problem, _LP_SHARE * limits.left_s())
    return _earliest_first(problem, favourite, limits)


def favourite_children(problem: Instance, time_limit_s: float) -> np.ndarray:
    """Finds int [N]: each operation's favourite child, -1 where it has none."""
    num_ops = problem.graph.num_ops
    child = np.full(num_ops, -1)
    senders, receivers, delay_s = _distinct_edges(problem)
    if not len(senders):
        return child
    compute_s = ranks.finite_mean(np.asarray(problem.costs.compute_s, np.float64))
    scale = max(compute_s.max(), delay_s.max()) or 1.0
    sends, reads = _incidence(senders, num_ops), _incidence(receivers, num_ops)
    rows = [
        [sparse.diags_array(delay_s / scale), sends - reads, None],
        [-sends.T, None, None],
        [-reads.T, None, None],
        [None, sparse.eye_array(num_ops), -np.ones((num_ops, 1))],
    ]
    compute_s = compute_s / scale
    degrees = np.concatenate([sends.sum(axis=0), reads.sum(axis=0)])
    solved = optimize.linprog(
        np.append(np.zeros(len(senders) + num_ops), 1.0),
        sparse.block_array(rows, format="csr"),
        np.concatenate([-compute_s[senders], 1 - degrees, -compute_s]),
        bounds=[(0, 1)] * len(senders) + [(0, None)] * (num_ops + 1),
        options={"time_limit": time_limit_s},
    )
    if solved.status == 0:
        favourite = solved.x[: len(senders)] < 0.5 - _TOLERANCE
        child[senders[favourite]] = receivers[favourite]
    return child


def _distinct_edges(problem: Instance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns senders, receivers and longest mean delay of operations that edges join."""
    senders, receivers, _, pair = problem.dependencies
    delay_s = np.zeros(len(senders))
    np.maximum.at(delay_s, pair, problem.mean_edge_delay_s)
    return senders, receivers, delay_s


def _incidence(ends: np.ndarray, num_ops: int) -> sparse.csr_array:
    """Returns [E, N]: 1 where an operation is the end of an edge."""
    edge = np.arange(len(ends))
    return sparse.csr_array((np.ones(len(ends)), (edge, ends)), shape=(len(ends), num_ops))


def _earliest_first(problem: Instance, favourite: np.ndarray, limits: SearchLimits) -> Solution:
    """Schedules by earliest start; once the time is over, no device waits for favourites any more.

    Keys only grow, but for what a waiting device holds back. So a queue of keys that may be out of
    date serves: one that has grown goes back, and what a device held back is queued anew once it
    waits no longer.
    """
    schedule, waiting = PartialSchedule(problem), Waiting(problem.graph)
    placed = schedule.assignment.placed
    rank = problem.upward_rank.tolist()
    awaits = [-1] * len(problem.devices)
    held: list[set[int]] = [set() for _ in problem.devices]
    arrival_s = {op: schedule.arrival_s(op) for op in waiting.sources()}  # of what is ready
    queue = [(0.0, -rank[op], op) for op in arrival_s]
    heapq.heapify(queue)
    while queue:
        key_s, _, op = heapq.heappop(queue)
        if placed[op] >= 0:
            continue
        choice = _choose(schedule, op, arrival_s[op], awaits)
        if choice is None:
            return Solution(None)
        for device in choice.held:
            held[device].add(op)
        if choice.key_s > key_s:
            heapq.heappush(queue, (choice.key_s, -rank[op], op))
            continue
        schedule.place(op, choice.device, choice.start_s)
        del arrival_s[op]
        fresh = waiting.placed(op)
        arrival_s |= {after: schedule.arrival_s(after) for after in fresh}
        child = -1 if limits.over() else int(favourite[op])
        for device, awaited in enumerate(awaits):
            if device == choice.device and child >= 0:
                # It waits on, for another, which alone may start sooner there.
                fresh += held[device] & {child}
                held[device] -= {child}
            elif device == choice.device or awaited == op:
                fresh += held[device]
                held[device] = set()
        awaits[choice.device] = child
        for after in set(fresh):
            heapq.heappush(queue, (0.0, -rank[after], after))
    return Solution(np.array(placed))


def _choose(
    schedule: PartialSchedule, op: int, arrival_s: list[float], awaits: list[int]
) -> _Choice | None:
    """Chooses the device that finishes an operation first, after all that it has."""
    candidates, seconds = schedule.assignment.candidates(op), schedule.compute_s[op]
    held: tuple[int, ...] = ()
    best, least_s = None, min(seconds)
    for device in candidates:
        start_s, awaited = arrival_s[device], awaits[device]
        if awaited not in (-1, op) and schedule.assignment.placed[awaited] < 0:
            held += (device,)
            start_s = max(arrival_s[d] for d in candidates)  # urgent
        free_s = schedule.timelines[device].free_s
        if free_s > start_s:
            start_s = free_s
        key_s = start_s + seconds[device] - least_s
        if best is None or key_s < best[0]:
            best = key_s, device, start_s
    return None if best is None else _Choice(*best, held)
