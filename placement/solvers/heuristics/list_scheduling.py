"""List scheduling: operations are placed one after another, each where it is done early.

HEFT (Topcuoglu et al. 2002) takes operations by decreasing upward rank, the longest path to the
graph's end at mean costs, which is the simulator's order of priority; each goes to the device d
that finishes it first, in the first idle gap that holds it:

    EST(v, d) = the first gap of d after every input u has arrived, at EFT(u) + delay(u, v, p[u], d)
    EFT(v, d) = EST(v, d) + compute_s[v, d]

PEFT (Arabnejad and Barbosa 2014) looks ahead by an optimistic cost table, the least time from the
end of v on d to the end of the graph if every descendant had its best device to itself,

    OCT(v, d) = max over edges v -> w of min over devices q of
                    OCT(w, q) + compute_s[w, q] + (mean delay of the edge if q != d),

takes of the operations that are ready the one of highest mean OCT, and places it where
EFT(v, d) + OCT(v, d) is least.

Departures from both: co-location (the class goes where its first operation goes), memory (a device
whose memory is full is no candidate; where there is none, nothing is found) and operations that a
device does not support. What is returned is the placement: the simulator runs it in HEFT's order
and without gaps filled, so that its latency may differ from the schedule's on either side.
"""

import heapq
from bisect import bisect_right

import numpy as np

from placement.simulators import ranks, tensors
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Problem


class PartialSchedule:
    """A schedule in the making, in lists, whose elements are read faster than those of arrays.

    `place` is the only change; a class of co-located operations is home where its first one is.
    """

    def __init__(self, problem: Problem):
        graph, costs = problem.graph, problem.costs
        classes, memory = base.classes(problem), base.memory(problem)
        self.compute_s: list[list[float]] = np.asarray(costs.compute_s, np.float64).tolist()
        self.inputs, self.outputs = _neighbours(problem)
        self.missing = [len(edges) for edges in self.inputs]  # inputs that are not placed yet
        self.placed = [-1] * graph.num_ops
        self.finish_s = [0.0] * graph.num_ops
        self.busy: list[tuple[list[float], list[float]]] = [([], []) for _ in problem.devices]
        self._delay_s = tensors.edge_delay_s(graph, costs).astype(np.float64).tolist()
        self._number: list[int] = classes.number.tolist()
        self._bytes: list[float] = classes.memory_bytes.tolist()
        self._allowed = [np.flatnonzero(row).tolist() for row in classes.allowed]
        self._home = [-1] * len(self._allowed)
        self._memories = [np.flatnonzero(column).tolist() for column in memory.devices.T]
        self._free: list[float] = memory.capacity_bytes.tolist()

    def candidates(self, op: int) -> list[int]:
        """Lists the devices that an operation may go to; none where all memory is full."""
        number = self._number[op]
        if self._home[number] >= 0:
            return [self._home[number]]
        return [d for d in self._allowed[number] if self._fits(number, d)]

    def bytes_of(self, op: int) -> float:
        """Returns what placing an operation will occupy: nothing where its class is home."""
        number = self._number[op]
        return 0.0 if self._home[number] >= 0 else self._bytes[number]

    def arrival_s(self, op: int) -> list[float]:
        """Returns when all inputs of an operation are there, of every device."""
        arrival = [0.0] * len(self.busy)
        for edge, sender in self.inputs[op]:
            end, delays = self.finish_s[sender], self._delay_s[edge][self.placed[sender]]
            arrival = [max(a, end + delay) for a, delay in zip(arrival, delays, strict=True)]
        return arrival

    def free_s(self, device: int) -> float:
        """Returns when the device has done all that it has."""
        return max(self.busy[device][1][-1:], default=0.0)

    def gap_s(self, device: int, ready_s: float, seconds: float) -> float:
        """Returns the start of the device's first idle gap after `ready_s` that lasts so long."""
        starts, ends = self.busy[device]
        after = bisect_right(ends, ready_s)
        for nth in range(after, len(starts)):
            if ready_s + seconds <= starts[nth]:
                return ready_s
            ready_s = max(ready_s, ends[nth])
        return ready_s

    def place(self, op: int, device: int, start_s: float) -> list[int]:
        """Places an operation; returns those that are ready now that it is."""
        number, end_s = self._number[op], start_s + self.compute_s[op][device]
        if self._home[number] < 0:
            self._home[number] = device
            for memory in self._memories[device]:
                self._free[memory] -= self._bytes[number]
        self.placed[op], self.finish_s[op] = device, end_s
        starts, ends = self.busy[device]
        at = bisect_right(starts, start_s)
        if end_s > start_s:
            starts.insert(at, start_s)
            ends.insert(at, end_s)
        for _, receiver in self.outputs[op]:
            self.missing[receiver] -= 1
        return [r for r in {r: None for _, r in self.outputs[op]} if self.missing[r] == 0]

    def ready(self) -> list[int]:
        """Lists the operations without inputs."""
        return [op for op, edges in enumerate(self.inputs) if not edges]

    def _fits(self, number: int, device: int) -> bool:
        return all(self._bytes[number] <= self._free[memory] for memory in self._memories[device])


def heft(problem: Problem, seed: int, limits: SearchLimits) -> base.SearchResult:
    """Heterogeneous earliest finish time (Topcuoglu et al. 2002, section 5.1)."""
    del seed, limits  # one pass without chance
    schedule = PartialSchedule(problem)
    for op in ranks.priority_order(problem.graph, problem.costs).tolist():
        starts = _starts(schedule, op)
        if not starts:
            return base.SearchResult(None)
        device = min(starts, key=lambda d: starts[d] + schedule.compute_s[op][d])
        schedule.place(op, device, starts[device])
    return base.SearchResult(np.array(schedule.placed))


def peft(problem: Problem, seed: int, limits: SearchLimits) -> base.SearchResult:
    """Predict earliest finish time (Arabnejad and Barbosa 2014, section 4).

    Departure: OCT and its mean are over the devices that support an operation.
    """
    del seed, limits
    classes = base.classes(problem)
    allowed = classes.allowed[classes.number]
    schedule = PartialSchedule(problem)
    table = ranks.optimistic_cost_s(problem.graph, problem.costs, allowed)
    rank = ranks.finite_mean(table).tolist()
    onward = table.tolist()
    queue = [(-rank[op], op) for op in schedule.ready()]
    heapq.heapify(queue)
    while queue:
        _, op = heapq.heappop(queue)
        starts = _starts(schedule, op)
        if not starts:
            return base.SearchResult(None)
        device = min(starts, key=lambda d: starts[d] + schedule.compute_s[op][d] + onward[op][d])
        for after in schedule.place(op, device, starts[device]):
            heapq.heappush(queue, (-rank[after], after))
    return base.SearchResult(np.array(schedule.placed))


def _starts(schedule: PartialSchedule, op: int) -> dict[int, float]:
    """Returns the earliest start on each candidate device, gaps included."""
    arrival = schedule.arrival_s(op)
    return {
        d: schedule.gap_s(d, arrival[d], schedule.compute_s[op][d]) for d in schedule.candidates(op)
    }


def _neighbours(
    problem: Problem,
) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
    """Lists (edge, sender) of every operation's inputs, and (edge, receiver) of its outputs."""
    graph = problem.graph
    inputs: list[list[tuple[int, int]]] = [[] for _ in range(graph.num_ops)]
    outputs: list[list[tuple[int, int]]] = [[] for _ in range(graph.num_ops)]
    pairs = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    for edge, (sender, receiver) in enumerate(pairs):
        inputs[receiver].append((edge, sender))
        outputs[sender].append((edge, receiver))
    return inputs, outputs
