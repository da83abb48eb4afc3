"""List scheduling in plain Python: intervals in a list, and everything looked up anew each time."""

from collections.abc import Callable

import numpy as np

from placement.problem import Problem
from placement.simulators import ranks
from tests.simulators import plain_ranks


class Schedule:
    def __init__(self, problem: Problem):
        self.decision, self.decisions = problem.decision, problem.decisions
        self.memory = problem.memory_limits
        self.compute_s = np.asarray(problem.costs.compute_s, np.float64).tolist()
        self.delay_s = problem.edge_delay_s.tolist()
        ends = problem.graph.senders.tolist(), problem.graph.receivers.tolist()
        self.edges = list(zip(*ends, strict=True))
        self.device: dict[int, int] = {}
        self.finish_s: dict[int, float] = {}
        self.busy: list[list[tuple[float, float]]] = [[] for _ in problem.devices]

    def candidates(self, op: int) -> list[int]:
        number = self.decision
        homes = {int(number[other]): device for other, device in self.device.items()}
        if number[op] in homes:
            return [homes[number[op]]]
        free_bytes = self.memory.capacity_bytes.copy()
        for placed, device in homes.items():
            free_bytes[self.memory.devices[:, device]] -= self.decisions.memory_bytes[placed]
        fits = self.decisions.memory_bytes[number[op]] <= free_bytes
        allowed = np.flatnonzero(self.decisions.allowed[number[op]]).tolist()
        return [d for d in allowed if fits[self.memory.devices[:, d]].all()]

    def start_s(self, op: int, device: int, *, in_gaps: bool) -> float:
        ready_s, seconds = 0.0, self.compute_s[op][device]
        for edge, (sender, receiver) in enumerate(self.edges):
            if receiver == op:
                delay_s = self.delay_s[edge][self.device[sender]][device]
                ready_s = max(ready_s, self.finish_s[sender] + delay_s)
        for start, end in self.busy[device]:
            if end > ready_s:
                if in_gaps and ready_s + seconds <= start:
                    return ready_s
                ready_s = max(ready_s, end)
        return ready_s

    def place(self, op: int, device: int, start_s: float) -> None:
        end_s = start_s + self.compute_s[op][device]
        self.device[op], self.finish_s[op] = device, end_s
        if end_s > start_s:
            self.busy[device] = sorted([*self.busy[device], (start_s, end_s)])

    def ready(self) -> list[int]:
        waiting = {receiver for sender, receiver in self.edges if sender not in self.device}
        return [
            op for op in range(len(self.compute_s)) if op not in self.device and op not in waiting
        ]


def heft(problem: Problem) -> list[int] | None:
    rank = plain_ranks.upward_rank(problem)
    order = sorted(problem.topological_order.tolist(), key=lambda op: -rank[op])
    # In float64: float32 would round what is added to it, and make ties of different ends.
    return _in_gaps(problem, order.index, np.zeros(problem.costs.compute_s.shape))


def peft(problem: Problem) -> list[int] | None:
    table = plain_ranks.optimistic_cost_s(problem, problem.allowed)
    rank = ranks.finite_mean(table)
    return _in_gaps(problem, lambda op: (-rank[op], op), table)


def m_etf(problem: Problem) -> list[int] | None:
    schedule, rank = Schedule(problem), plain_ranks.upward_rank(problem)
    while ready := schedule.ready():
        choices = []
        for op in ready:
            seconds = schedule.compute_s[op]
            options = []
            for device in schedule.candidates(op):
                start_s = schedule.start_s(op, device, in_gaps=False)
                options.append((start_s + seconds[device] - min(seconds), device, start_s))
            if not options:
                return None
            key_s, device, start_s = min(options, key=lambda option: option[0])
            choices.append((key_s, -rank[op], op, device, start_s))
        schedule.place(*min(choices)[2:])
    return [schedule.device[op] for op in problem.decisions.first_ops.tolist()]


def _in_gaps(
    problem: Problem, priority: Callable[[int], object], onward_s: np.ndarray
) -> list[int] | None:
    schedule = Schedule(problem)
    while ready := schedule.ready():
        op = min(ready, key=priority)
        options = []
        for device in schedule.candidates(op):
            start_s = schedule.start_s(op, device, in_gaps=True)
            end_s = start_s + schedule.compute_s[op][device] + onward_s[op, device]
            options.append((end_s, device, start_s))
        if not options:
            return None
        _, device, start_s = min(options, key=lambda option: option[0])
        schedule.place(op, device, start_s)
    return [schedule.device[op] for op in problem.decisions.first_ops.tolist()]
