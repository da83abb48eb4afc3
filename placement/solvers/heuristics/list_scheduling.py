"""List scheduling: operations are placed one after another, each where it finishes early.

HEFT (Topcuoglu et al. 2002) takes operations by decreasing upward rank, the longest path to the
graph's end at mean costs, which is also the simulator's order of priority. Each operation goes to
the device d that finishes it first, in the first idle gap that is long enough:

    EST(v, d) = the first gap of d after every input u has arrived, at EFT(u) + delay(u, v, p[u], d)
    EFT(v, d) = EST(v, d) + compute_s[v, d]

PEFT (Arabnejad and Barbosa 2014) looks ahead by an optimistic cost table (OCT), the least time from
the end of v on d to the end of the graph if every descendant had its best device to itself:

    OCT(v, d) = max over edges v -> w of min over devices q of
                    OCT(w, q) + compute_s[w, q] + (mean delay of the edge if q != d)

It takes the ready operation of highest mean OCT and places it where EFT(v, d) + OCT(v, d) is least.

Departures from both: co-located operations follow the first of them; a device without enough memory
is not a candidate, and no placement is returned if an operation has no candidate; devices may not
support an operation. The result is a placement only. The simulator runs it in HEFT's order and
fills no gaps, so the simulated latency may be lower or higher than that of the schedule here.
"""

import heapq
import math
from bisect import bisect_right

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import ranks
from placement.solvers.limits import SearchLimits
from placement.types import Solution


class Timeline:
    """The busy and idle intervals of one device, sorted by time.

    It keeps only idle intervals that its shortest operation fits into, so that a search
    passes over few. An operation that takes no time fits everywhere except within another one.
    """

    def __init__(self, shortest_s: float):
        self.free_s = 0.0  # the end of the last busy interval
        self._shortest_s = shortest_s  # the shortest positive duration
        self._busy: tuple[list[float], list[float]] = [], []  # starts, ends
        self._idle: tuple[list[float], list[float]] = [], []  # starts, ends

    def gap_s(self, ready_s: float, seconds: float) -> float:
        """Returns the start of the first idle gap from `ready_s` on that lasts `seconds`."""
        if ready_s >= self.free_s:
            return ready_s
        if ready_s + seconds <= ready_s:
            starts, ends = self._busy
            index = bisect_right(ends, ready_s)
            return ends[index] if starts[index] < ready_s else ready_s
        starts, ends = self._idle
        for index in range(bisect_right(ends, ready_s), len(ends)):
            start_s = max(ready_s, starts[index])
            if start_s + seconds <= ends[index]:
                return start_s
        return self.free_s

    def occupy(self, start_s: float, end_s: float) -> None:
        """Makes an idle interval busy."""
        if end_s <= start_s:
            return
        starts, ends = self._busy
        if start_s >= self.free_s:
            starts.append(start_s)
            ends.append(end_s)
            self._insert_idle(len(self._idle[0]), self.free_s, start_s)
            self.free_s = end_s
            return
        index = bisect_right(starts, start_s)
        starts.insert(index, start_s)
        ends.insert(index, end_s)
        index = bisect_right(self._idle[0], start_s) - 1
        idle_start_s, idle_end_s = self._idle[0].pop(index), self._idle[1].pop(index)
        self._insert_idle(index, end_s, idle_end_s)
        self._insert_idle(index, idle_start_s, start_s)

    def _insert_idle(self, index: int, start_s: float, end_s: float) -> None:
        if start_s + self._shortest_s <= end_s:
            self._idle[0].insert(index, start_s)
            self._idle[1].insert(index, end_s)


class Assignment:
    """The placement so far, and the memory left; `assign` changes it.

    It consists of Python lists, whose elements are read faster than those of arrays. The first
    operation of a decision that is assigned decides the device of the others.
    """

    def __init__(self, problem: Problem):
        decisions, memory = problem.decisions, problem.memory_limits
        self.placement = [-1] * problem.num_decisions  # -1 until decided
        self._decision: list[int] = problem.decision.tolist()
        self._bytes: list[float] = decisions.memory_bytes.tolist()
        self._allowed = [np.flatnonzero(row).tolist() for row in decisions.allowed]
        free_bytes = np.full(len(problem.devices), np.inf)
        for devices, capacity in zip(memory.devices, memory.capacity_bytes, strict=True):
            free_bytes[devices] = capacity
        self._free_bytes: list[float] = free_bytes.tolist()
        shares_memory = memory.devices.T @ memory.devices
        self._sharing = [np.flatnonzero(row).tolist() for row in shares_memory]

    def candidates(self, op: int) -> list[int]:
        """Returns the devices that an operation may go to; none if all memory is full."""
        number = self._decision[op]
        if self.placement[number] >= 0:
            return [self.placement[number]]
        num_bytes, free_bytes = self._bytes[number], self._free_bytes
        return [d for d in self._allowed[number] if num_bytes <= free_bytes[d]]

    def new_bytes(self, op: int) -> float:
        """Returns the bytes that placing an operation adds: none if its device is decided."""
        number = self._decision[op]
        return 0.0 if self.placement[number] >= 0 else self._bytes[number]

    def assign(self, op: int, device: int) -> None:
        """Assigns an operation to a device."""
        number = self._decision[op]
        if self.placement[number] < 0:
            self.placement[number] = device
            for sharing_device in self._sharing[device]:
                self._free_bytes[sharing_device] -= self._bytes[number]


class PartialSchedule:
    """The schedule of the operations placed so far; `place` and `place_earliest` extend it.

    It differs from the simulator's list schedule in that operations fill gaps and their devices are
    chosen one at a time. It consists of Python lists, whose elements are read faster than those of
    arrays.
    """

    def __init__(self, problem: Problem):
        graph, edge_delay_s = problem.graph, problem.edge_delay_s
        compute_s = np.asarray(problem.costs.compute_s, np.float64)
        self.assignment = Assignment(problem)
        shortest_s = np.where(compute_s > 0, compute_s, np.inf).min(axis=0)
        self.timelines = [Timeline(seconds) for seconds in shortest_s.tolist()]  # of the devices
        self.compute_s: list[list[float]] = compute_s.tolist()
        self.finish_s = [0.0] * graph.num_ops
        self.placed = [-1] * graph.num_ops  # the operations' devices; -1 until placed
        self._num_devices = edge_delay_s.shape[-1]
        starts, edges = dag.successors(graph.num_ops, graph.receivers, np.arange(graph.num_edges))
        self._starts: list[int] = starts.tolist()
        self._senders: list[int] = graph.senders[edges].tolist()
        # Tensors have few sizes, so that most of the E tables [D, D] of delays are equal: each
        # distinct one becomes a list once. Equal bytes are found faster than by `np.unique`.
        delay_s = edge_delay_s[edges]
        data, num_bytes = delay_s.tobytes(), delay_s.itemsize * math.prod(delay_s.shape[1:])
        distinct: dict[bytes, list[list[float]]] = {}
        self._delay_s: list[list[list[float]]] = []
        for edge, begin in enumerate(range(0, len(data), num_bytes)):
            key = data[begin : begin + num_bytes]
            if key not in distinct:
                distinct[key] = delay_s[edge].tolist()
            self._delay_s.append(distinct[key])

    def arrival_s(self, op: int) -> list[float]:
        """Returns the time at which all inputs of an operation have arrived, for each device."""
        arrival_s = [0.0] * self._num_devices
        for edge in range(self._starts[op], self._starts[op + 1]):
            sender = self._senders[edge]
            finish_s = self.finish_s[sender]
            for device, delay_s in enumerate(self._delay_s[edge][self.placed[sender]]):
                if finish_s + delay_s > arrival_s[device]:
                    arrival_s[device] = finish_s + delay_s
        return arrival_s

    def place(self, op: int, device: int, start_s: float) -> None:
        """Runs an operation on a device that is idle from `start_s`."""
        self.placed[op] = device
        self.finish_s[op] = finish_s = start_s + self.compute_s[op][device]
        self.assignment.assign(op, device)
        self.timelines[device].occupy(start_s, finish_s)

    def place_earliest(self, op: int, tail_s: list[float]) -> bool:
        """Places an operation, in a gap if possible, where its finish time plus `tail_s` is least.

        Args:
          op: the operation; all its inputs are placed.
          tail_s: D estimates of the time after the operation on each device.

        Returns:
          Whether the operation had a candidate device.
        """
        arrival_s, compute_s = self.arrival_s(op), self.compute_s[op]
        best_device, best_s, best_start_s = -1, 0.0, 0.0
        for device in self.assignment.candidates(op):
            start_s = self.timelines[device].gap_s(arrival_s[device], compute_s[device])
            path_s = start_s + compute_s[device] + tail_s[device]
            if best_device < 0 or path_s < best_s:
                best_device, best_s, best_start_s = device, path_s, start_s
        if best_device >= 0:
            self.place(op, best_device, best_start_s)
        return best_device >= 0


def heft(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Heterogeneous earliest finish time (Topcuoglu et al. 2002, section 5.1)."""
    partial_schedule = PartialSchedule(problem)
    no_tail_s = [0.0] * len(problem.devices)
    for op in problem.priority_order.tolist():
        if not partial_schedule.place_earliest(op, no_tail_s):
            return Solution(None)
    return Solution(np.array(partial_schedule.assignment.placement))


def peft(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Predict earliest finish time (Arabnejad and Barbosa 2014, section 4).

    Departure: OCT and its mean are over the devices that support an operation.
    """
    partial_schedule, graph = PartialSchedule(problem), problem.graph
    waiting = dag.InputCounts(graph.num_ops, graph.senders, graph.receivers)
    optimistic_cost_s = ranks.optimistic_cost_s(
        graph,
        problem.allowed_compute_s,
        problem.mean_edge_delay_s,
        problem.topological_order,
    )
    rank = ranks.finite_mean(optimistic_cost_s).tolist()
    tails_s = optimistic_cost_s.tolist()
    queue = [(-rank[op], op) for op in waiting.sources()]
    heapq.heapify(queue)
    while queue:
        _, op = heapq.heappop(queue)
        if not partial_schedule.place_earliest(op, tails_s[op]):
            return Solution(None)
        for reader in waiting.place(op):
            heapq.heappush(queue, (-rank[reader], reader))
    return Solution(np.array(partial_schedule.assignment.placement))
