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
import math
from bisect import bisect_right

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.simulators import ranks
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph, Solution


class Timeline:
    """What one device does when, in the making: busy and idle intervals, sorted by time.

    Only idle intervals that hold the device's shortest operation are kept, so that a search for a
    gap passes over no others. What takes no time fits everywhere but within an operation.
    """

    def __init__(self, shortest_s: float):
        self.free_s = 0.0  # when all is done
        self._shortest_s = shortest_s  # of what takes time at all
        self._busy: tuple[list[float], list[float]] = [], []  # starts, ends
        self._idle: tuple[list[float], list[float]] = [], []

    def gap_s(self, ready_s: float, seconds: float) -> float:
        """Returns the start of the first idle gap after `ready_s` that lasts so long."""
        if ready_s >= self.free_s:
            return ready_s
        if ready_s + seconds <= ready_s:
            starts, ends = self._busy
            nth = bisect_right(ends, ready_s)
            return ends[nth] if starts[nth] < ready_s else ready_s
        starts, ends = self._idle
        for nth in range(bisect_right(ends, ready_s), len(ends)):
            if starts[nth] > ready_s:
                ready_s = starts[nth]
            if ready_s + seconds <= ends[nth]:
                return ready_s
        return self.free_s

    def occupy(self, start_s: float, end_s: float) -> None:
        """Makes a time busy that was idle."""
        if end_s <= start_s:
            return
        starts, ends = self._busy
        if start_s >= self.free_s:
            starts.append(start_s)
            ends.append(end_s)
            self._keep(len(self._idle[0]), self.free_s, start_s)
            self.free_s = end_s
            return
        at = bisect_right(starts, start_s)
        starts.insert(at, start_s)
        ends.insert(at, end_s)
        nth = bisect_right(self._idle[0], start_s) - 1
        left_s, right_s = self._idle[0].pop(nth), self._idle[1].pop(nth)
        self._keep(nth, end_s, right_s)
        self._keep(nth, left_s, start_s)

    def _keep(self, nth: int, start_s: float, end_s: float) -> None:
        """Makes an idle interval the nth, if it holds anything."""
        if start_s + self._shortest_s <= end_s:
            self._idle[0].insert(nth, start_s)
            self._idle[1].insert(nth, end_s)


class Assignment:
    """Which device each operation has, in the making; `assign` is the only change.

    In lists, whose elements are read faster than those of arrays. A class of co-located operations
    is home where its first one is.
    """

    def __init__(self, problem: Instance):
        classes, memory = problem.classes, problem.memory_limits
        self.placed = [-1] * problem.graph.num_ops
        self._number: list[int] = classes.ids.tolist()
        self._bytes: list[float] = classes.memory_bytes.tolist()
        rows, number = _distinct(classes.allowed)
        devices = [np.flatnonzero(row).tolist() for row in rows]
        self._allowed = [devices[n] for n in number]
        self._home = [-1] * len(self._allowed)
        room_bytes = np.full(len(problem.devices), np.inf)
        for members, capacity in zip(memory.devices, memory.capacity_bytes, strict=True):
            room_bytes[members] = capacity
        self._room_bytes: list[float] = room_bytes.tolist()
        sharing = memory.devices.T @ memory.devices  # whose memory fills with whose
        self._sharing = [np.flatnonzero(row).tolist() for row in sharing]

    def candidates(self, op: int) -> list[int]:
        """Lists the devices that an operation may go to; none where all memory is full."""
        number = self._number[op]
        if self._home[number] >= 0:
            return [self._home[number]]
        needed, room = self._bytes[number], self._room_bytes
        return [device for device in self._allowed[number] if needed <= room[device]]

    def bytes_of(self, op: int) -> float:
        """Returns what placing an operation will occupy: nothing where its class is home."""
        number = self._number[op]
        return 0.0 if self._home[number] >= 0 else self._bytes[number]

    def assign(self, op: int, device: int) -> None:
        """Gives an operation to a device."""
        number = self._number[op]
        if self._home[number] < 0:
            self._home[number] = device
            for other in self._sharing[device]:
                self._room_bytes[other] -= self._bytes[number]
        self.placed[op] = device


class PartialSchedule:
    """A schedule in the making, in lists too: `place` and `place_earliest` are the only changes."""

    def __init__(self, problem: Instance):
        graph, costs = problem.graph, problem.costs
        self.assignment = Assignment(problem)
        compute_s = np.asarray(costs.compute_s, np.float64)
        self.compute_s: list[list[float]] = compute_s.tolist()
        self.finish_s = [0.0] * graph.num_ops
        shortest_s = np.where(compute_s > 0, compute_s, np.inf).min(axis=0).tolist()
        self.timelines = [Timeline(seconds) for seconds in shortest_s]
        starts, edges = dag.successors(graph.num_ops, graph.receivers, np.arange(graph.num_edges))
        self._starts: list[int] = starts.tolist()
        self._senders: list[int] = graph.senders[edges].tolist()
        delays, number = _distinct(problem.edge_delay_s[edges])
        tables: list[list[list[float]]] = delays.tolist()
        self._delay_s = [tables[n] for n in number]

    def arrival_s(self, op: int) -> list[float]:
        """Returns when all inputs of an operation are there, of every device."""
        arrival, placed = [0.0] * len(self.timelines), self.assignment.placed
        for edge in range(self._starts[op], self._starts[op + 1]):
            sender = self._senders[edge]
            end = self.finish_s[sender]
            for device, delay in enumerate(self._delay_s[edge][placed[sender]]):
                if end + delay > arrival[device]:
                    arrival[device] = end + delay
        return arrival

    def place(self, op: int, device: int, start_s: float) -> None:
        """Gives an operation to a device at a time that is idle."""
        self.assignment.assign(op, device)
        end_s = start_s + self.compute_s[op][device]
        self.finish_s[op] = end_s
        self.timelines[device].occupy(start_s, end_s)

    def place_earliest(self, op: int, onward_s: list[float]) -> bool:
        """Places an operation, gaps included, where it and what follows from there end first.

        Args:
          op: which one; all its inputs are placed.
          onward_s: what follows, of each device.

        Returns:
          Whether there was a device for it.
        """
        arrival, seconds = self.arrival_s(op), self.compute_s[op]
        best, best_s, best_start_s = -1, 0.0, 0.0
        for device in self.assignment.candidates(op):
            start_s, timeline = arrival[device], self.timelines[device]
            if start_s < timeline.free_s:
                start_s = timeline.gap_s(start_s, seconds[device])
            end_s = start_s + seconds[device] + onward_s[device]
            if best < 0 or end_s < best_s:
                best, best_s, best_start_s = device, end_s, start_s
        if best >= 0:
            self.place(op, best, best_start_s)
        return best >= 0


class Waiting:
    """How many inputs each operation still waits for."""

    def __init__(self, graph: OpGraph):
        starts, readers = dag.successors(graph.num_ops, graph.senders, graph.receivers)
        self._starts: list[int] = starts.tolist()
        self._readers: list[int] = readers.tolist()
        self._missing = np.bincount(graph.receivers, minlength=graph.num_ops).tolist()

    def sources(self) -> list[int]:
        """Lists the operations without inputs."""
        return [op for op, missing in enumerate(self._missing) if not missing]

    def placed(self, op: int) -> list[int]:
        """Lists the operations that wait for nothing now that this one is placed."""
        ready = []
        for reader in self._readers[self._starts[op] : self._starts[op + 1]]:
            self._missing[reader] -= 1
            if not self._missing[reader]:
                ready.append(reader)
        return ready


def heft(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Heterogeneous earliest finish time (Topcuoglu et al. 2002, section 5.1)."""
    del seed, limits  # one pass without chance
    schedule = PartialSchedule(problem)
    nothing = [0.0] * len(problem.devices)
    for op in problem.priority_order.tolist():
        if not schedule.place_earliest(op, nothing):
            return Solution(None)
    return Solution(np.array(schedule.assignment.placed))


def peft(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Predict earliest finish time (Arabnejad and Barbosa 2014, section 4).

    Departure: OCT and its mean are over the devices that support an operation.
    """
    del seed, limits
    schedule, waiting = PartialSchedule(problem), Waiting(problem.graph)
    table = ranks.optimistic_cost_s(
        problem.graph,
        problem.allowed_compute_s,
        problem.mean_edge_delay_s,
        problem.topological_order,
    )
    rank = ranks.finite_mean(table).tolist()
    onward = table.tolist()
    queue = [(-rank[op], op) for op in waiting.sources()]
    heapq.heapify(queue)
    while queue:
        _, op = heapq.heappop(queue)
        if not schedule.place_earliest(op, onward[op]):
            return Solution(None)
        for after in waiting.placed(op):
            heapq.heappush(queue, (-rank[after], after))
    return Solution(np.array(schedule.assignment.placed))


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Returns the distinct ones of an array's rows [K, ...], and which one each row is.

    Of a large graph they are few, as there are few sizes of tensors; NumPy's own sorts them.
    """
    data, width = rows.tobytes(), rows.itemsize * math.prod(rows.shape[1:])
    known: dict[bytes, int] = {}
    number = [
        known.setdefault(data[at : at + width], len(known)) for at in range(0, len(data), width)
    ]
    return rows[np.unique(number, return_index=True)[1]], number
