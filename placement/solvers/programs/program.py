"""Integer programs of placements, independent of the objective and of the solver.

A `Program` has Boolean variables and times. Among the Booleans are x[c, d], class c is on device d.
The constraints have five forms:

    (1)  clause         at least one literal holds
    (2)  exactly one    exactly one of some Booleans holds, such as sum_d x[c, d] = 1
    (3)  count          sum of Booleans >= minimum, if a literal holds
    (4)  memory limit   sum of bytes * Boolean <= capacity
    (5)  precedence     late >= sum of early times + sum of seconds * Boolean, if all literals hold

The time `total` is minimised. A program says what holds. `program_search` and `cpsat_solver`
solve it up to a horizon: the value of a placement that is known beforehand.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.problem import Problem, find_equal_devices
from placement.types import Status


class TaskGraph(NamedTuple):
    """A presolved problem: K decisions in C classes of V tasks, and the T tensors between classes.

    `placement.solvers.programs.program_search` defines tasks and classes.
    """

    decision_class: np.ndarray  # int [K]: the class of each decision
    class_ids: np.ndarray  # int [V]: the class of each task
    edges: np.ndarray  # int [2, Q]: senders and receivers, the distinct edges between tasks
    backward: np.ndarray  # bool [V]
    task_s: np.ndarray  # float64 [V, D]
    compute_s: np.ndarray  # float64 [C, D]
    memory_bytes: np.ndarray  # float64 [C]
    source: np.ndarray  # int [T]: the class that produces a tensor
    readers: tuple[np.ndarray, ...]  # T of int: the other classes that read it, at least one
    receive_s: np.ndarray  # float64 [T, D]
    send_s: np.ndarray  # float64 [T, D]


# A literal: the Boolean b as b, its negation as ~b, which is negative.
Literal = int


class Count(NamedTuple):
    """Form (3): sum of `booleans` >= minimum if `condition` holds."""

    booleans: Sequence[int]
    minimum: int
    condition: Literal


class MemoryLimit(NamedTuple):
    """Form (4): sum of bytes * Boolean <= capacity."""

    terms: Sequence[tuple[int, float]]
    capacity_bytes: float


class Precedence(NamedTuple):
    """Form (5): late >= sum of early + sum of seconds * Boolean if all `conditions` hold."""

    late: int
    early: Sequence[int]
    terms: Sequence[tuple[int, float]]  # seconds >= 0
    conditions: Sequence[Literal]


class Program:
    """A program to which variables and constraints are added.

    Times and Booleans are numbered separately, each from 0.
    """

    def __init__(self, problem: Problem, tasks: TaskGraph, horizon_s: float, lower_s: float):
        """Adds the Booleans x with what devices support and store, and the time `total`.

        Args:
          problem: the problem.
          tasks: the presolved problem.
          horizon_s: the latest value of all times.
          lower_s: a lower bound of `total`.
        """
        self.horizon_s = horizon_s
        self.num_booleans = 0
        self.lower_s: list[float] = []  # of times
        self.clauses: list[list[Literal]] = []
        self.exactly_one: list[list[int]] = []
        self.counts: list[Count] = []
        self.memory_limits: list[MemoryLimit] = []
        self.precedences: list[Precedence] = []
        self.assignment = x = self.add_booleans(*tasks.compute_s.shape)  # int [C, D]
        self.exactly_one += x.tolist()
        for boolean in x[~np.isfinite(tasks.compute_s)]:
            self.add_clause(~boolean)
        memory = problem.memory_limits
        for devices, capacity in zip(memory.devices, memory.capacity_bytes.tolist(), strict=True):
            if tasks.memory_bytes.sum() > capacity:
                terms = [
                    (int(x[c, d]), num_bytes)
                    for c, num_bytes in enumerate(tasks.memory_bytes.tolist())
                    for d in np.flatnonzero(devices)
                    if num_bytes
                ]
                self.memory_limits.append(MemoryLimit(terms, capacity))
        # int [D]: for each device the first one of equal kind, memory, costs and communication.
        is_accelerator = np.asarray(problem.costs.accelerator) >= 0
        capacity_bytes = np.asarray(problem.costs.capacity_bytes)
        rows = [
            is_accelerator[None],
            capacity_bytes[None],
            tasks.task_s,
            tasks.receive_s,
            tasks.send_s,
        ]
        self.first_equal_device = find_equal_devices(np.concatenate(rows))
        self.total = self.add_time(lower_s)

    def add_booleans(self, rows: int, columns: int) -> np.ndarray:
        """Adds Booleans, int [rows, columns]."""
        first = self.num_booleans
        self.num_booleans += rows * columns
        return np.arange(first, self.num_booleans).reshape(rows, columns)

    def add_boolean(self) -> int:
        """Adds one Boolean."""
        return int(self.add_booleans(1, 1)[0, 0])

    def add_time(self, lower_s: float = 0.0) -> int:
        """Adds a time, no earlier than `lower_s`."""
        self.lower_s.append(min(float(lower_s), self.horizon_s))
        return len(self.lower_s) - 1

    def add_clause(self, *literals: int) -> None:
        """Adds that at least one of the literals holds."""
        self.clauses.append([int(literal) for literal in literals])

    def add_precedence(
        self,
        late: int,
        early: Sequence[int] = (),
        terms: Sequence[tuple[int, float]] = (),
        conditions: Sequence[int] = (),
    ) -> None:
        """Adds late >= sum of early + sum of seconds * Boolean if all `conditions` hold."""
        positive = [(int(boolean), float(seconds)) for boolean, seconds in terms if seconds > 0]
        conditions = [int(literal) for literal in conditions]
        self.precedences.append(Precedence(late, early, positive, conditions))


class Outcome(NamedTuple):
    """The result of solving a program."""

    status: Status  # OPTIMAL, INFEASIBLE or TIME_LIMIT
    assignment: np.ndarray | None  # bool [C, D]
    bound_s: float
