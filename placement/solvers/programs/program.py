"""Integer programs of placements, and what is the same for every objective.

A `Program` has Boolean variables and times. Among the Booleans are x[c, d], class c on device d,
with sum_d x[c, d] = 1. Constraints are of four kinds:

    clause    one literal at least holds
    at least  sum of Booleans >= least, if a literal holds
    at most   sum of weight * Boolean <= capacity
    after     late >= sum of early times + sum of seconds * Boolean, if all literals hold

Minimised is the time `total`. The program says what holds, a backend (`milp`, `cpsat`) how that is
solved. `program_search` gives it a horizon: the value of a placement that is known beforehand.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.instance import Instance
from placement.solvers.programs.presolve import Presolved, equal_devices
from placement.types import Status

# A literal: the Boolean b as b, its negation as ~b, which is negative.
Literal = int


class AtLeast(NamedTuple):
    """sum of `booleans` >= least if `when` holds."""

    booleans: Sequence[int]
    least: int
    when: Literal


class AtMost(NamedTuple):
    """sum of weight * Boolean <= capacity, in bytes."""

    terms: Sequence[tuple[int, float]]
    capacity: float


class After(NamedTuple):
    """late >= sum of early + sum of seconds * Boolean if all of `when` hold; seconds >= 0."""

    late: int
    early: Sequence[int]
    terms: Sequence[tuple[int, float]]
    when: Sequence[Literal]


class Program:
    """A program that grows; times and Booleans are numbered apart, each from 0."""

    def __init__(self, horizon_s: float):
        self.horizon_s = horizon_s  # no time is later
        self.num_booleans = 0
        self.lower_s: list[float] = []  # of times
        self.clauses: list[list[Literal]] = []
        self.exactly_one: list[list[int]] = []
        self.at_least: list[AtLeast] = []
        self.at_most: list[AtMost] = []
        self.afters: list[After] = []
        self.assigned = np.zeros((0, 0), int)  # [C, D]: the Booleans x
        self.equal = np.zeros(0, int)  # [D]: of each device the first that is equal
        self.total = -1

    def boolean(self) -> int:
        """Adds a Boolean."""
        self.num_booleans += 1
        return self.num_booleans - 1

    def booleans(self, rows: int, columns: int) -> np.ndarray:
        """Adds Booleans, int [rows, columns]."""
        first = self.num_booleans
        self.num_booleans += rows * columns
        return np.arange(first, self.num_booleans).reshape(rows, columns)

    def time(self, lower_s: float = 0.0) -> int:
        """Adds a time, no earlier than `lower_s`."""
        self.lower_s.append(min(float(lower_s), self.horizon_s))
        return len(self.lower_s) - 1

    def clause(self, *literals: int) -> None:
        """Adds that one of them holds."""
        self.clauses.append([int(literal) for literal in literals])

    def after(
        self,
        late: int,
        early: Sequence[int] = (),
        terms: Sequence[tuple[int, float]] = (),
        when: Sequence[int] = (),
    ) -> None:
        """Adds late >= sum of early + sum of seconds * Boolean if all of `when` hold."""
        kept = [(int(boolean), float(seconds)) for boolean, seconds in terms if seconds > 0]
        self.afters.append(After(late, early, kept, [int(literal) for literal in when]))


class Outcome(NamedTuple):
    """What a backend found."""

    status: Status  # OPTIMAL, INFEASIBLE or TIME_LIMIT
    assigned: np.ndarray | None  # bool [C, D]
    bound_s: float


def assign(program: Program, problem: Instance, tasks: Presolved) -> None:
    """Adds x and what limits a device: what it supports and its memory."""
    num_classes, num_devices = tasks.compute_s.shape
    program.assigned = x = program.booleans(num_classes, num_devices)
    program.exactly_one += x.tolist()
    program.equal = equal_devices(problem, tasks)
    for boolean in x[~np.isfinite(tasks.compute_s)]:
        program.clause(~boolean)
    memory = problem.memory_limits
    for devices, capacity in zip(memory.devices, memory.capacity_bytes.tolist(), strict=True):
        if tasks.memory_bytes.sum() > capacity:
            terms = [
                (int(x[c, d]), bytes_)
                for c, bytes_ in enumerate(tasks.memory_bytes.tolist())
                for d in np.flatnonzero(devices)
                if bytes_
            ]
            program.at_most.append(AtMost(terms, capacity))


def load(program: Program, tasks: Presolved, device: int) -> list[tuple[int, float]]:
    """Lists seconds * Boolean that add up to a device's load.

    With r (received) and s (sent) for every tensor t of source c and reader b,

        r[t, d] >= x[b, d] - x[c, d],    s[t, d] >= x[c, d] - x[b, d].
    """
    x = program.assigned[:, device]
    seconds = tasks.compute_s[:, device]
    terms = [(int(x[c]), seconds[c]) for c in np.flatnonzero(np.isfinite(seconds) & (seconds > 0))]
    for tensor, source in enumerate(tasks.source.tolist()):
        readers = tasks.readers[tensor]
        received = _paid(program, terms, tasks.in_s[tensor, device])
        sent = _paid(program, terms, tasks.out_s[tensor, device])
        for reader in readers:
            if received is not None:
                program.clause(~x[reader], x[source], *received)
            if sent is not None:
                program.clause(x[reader], ~x[source], *sent)
    return terms


def _paid(program: Program, terms: list[tuple[int, float]], seconds: float) -> list[int] | None:
    """Returns what may hold at this cost: a new Boolean, nothing if infinite, None if free."""
    if seconds == 0:
        return None
    if np.isinf(seconds):
        return []
    boolean = program.boolean()
    terms.append((boolean, float(seconds)))
    return [boolean]
