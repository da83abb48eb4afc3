"""Lower bounds of the `makespan` objective that hold for every placement.

Let T be a latency that some placement keeps. An operation v on device d then begins no earlier than
its head and ends no later than T less its tail,

    head(v, d) = max over edges u -> v of min over devices a of
                     head(u, a) + compute_s[u, a] + delay(u, v, a, d)
    tail(u, a) = max over edges u -> v of min over devices d of
                     delay(u, v, a, d) + compute_s[v, d] + tail(v, d)

so d is open to v only if head(v, d) + compute_s[v, d] + tail(v, d) <= T, and to a class of
co-located operations only if it is to all of them; heads and tails are then taken over open devices
alone, until nothing changes. A class without an open device refutes T.

What is left is checked for load. Within an interval [a, b], v computes on d for at least

    overlap(v, d) = min(compute_s, b - a, head + compute_s - a, b - (T - tail - compute_s)),

the last two if it runs as early and as late as it may (energetic reasoning; Baptiste, Le Pape and
Nuijten 2001, section 3.3), and all of that fits into the b - a that the device has. With x the
share of a class on each of its open devices, a linear program of

    sum over v of overlap(v, d) x(v, d) <= b - a,    sum over d of x(v, d) = 1

for some intervals, and of the memory limits, finds shares or refutes T. Devices with equal costs,
heads and tails are one in it, with as much time and memory as all of them together.

The bound is the largest T that was refuted (a destructive bound; Klein and Scholl 1999). The
priority order is not used: what bounds all schedules bounds the simulator's.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from placement.graphs import dag
from placement.simulators.makespan import edge_delay_s
from placement.solvers import base
from placement.types import Problem

_PRECISION = 1e-3  # relative, to which the largest T is found
_TOLERANCE = 1e-6  # of the linear program, in units of T
_POINTS = 6  # of each device, where intervals begin and where they end
_PASSES = 4  # of closing devices; each is valid by itself


class Windows(NamedTuple):
    """When operations run on devices, given a T: inf where a device is closed."""

    head_s: np.ndarray  # float64 [N, D]
    compute_s: np.ndarray  # float64 [N, D]
    tail_s: np.ndarray  # float64 [N, D]

    def through_s(self) -> np.ndarray:
        """float64 [N, D]: the least latency with the operation on the device."""
        return self.head_s + self.compute_s + self.tail_s


class Edges(NamedTuple):
    """The edges, those of earlier receivers first."""

    senders: list[int]
    receivers: list[int]
    delay_s: np.ndarray  # float64 [E, D, D]


def makespan(problem: Problem) -> float:
    """A lower bound in seconds of the latency of every placement, inf if none is feasible."""
    edges, classes = edges_of(problem), base.classes(problem)
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    unlimited = windows_of(edges, np.where(classes.allowed[classes.number], compute_s, np.inf))
    low, high = unlimited.through_s().min(axis=1).max(), longest_s(edges, compute_s)
    if not np.isfinite(low) or _refuted(problem, edges, unlimited, high):
        return np.inf
    low = max(low, _TOLERANCE * high)  # below, it is not worth the search
    if low >= high or not _refuted(problem, edges, unlimited, low):
        return float(unlimited.through_s().min(axis=1).max())
    while high > low * (1 + _PRECISION):
        middle = np.sqrt(low * high)
        refuted = _refuted(problem, edges, unlimited, middle)
        low, high = (middle, high) if refuted else (low, middle)
    return float(low)


def edges_of(problem: Problem) -> Edges:
    """The pairs of operations that edges join, each once with its longest delay."""
    graph = problem.graph
    place = np.argsort(dag.topological_order(graph))
    pairs = np.stack([place[graph.receivers], graph.senders, graph.receivers])
    (_, senders, receivers), number = np.unique(pairs, axis=1, return_inverse=True)
    num_devices = len(problem.devices)
    delay_s = np.zeros((len(senders), num_devices, num_devices))
    np.maximum.at(delay_s, number, edge_delay_s(graph, problem.costs))
    return Edges(senders.tolist(), receivers.tolist(), delay_s)


def windows_of(edges: Edges, compute_s: np.ndarray) -> Windows:
    """The windows of operations that take float64 [N, D], inf where a device is closed."""
    head_s, tail_s = np.zeros_like(compute_s), np.zeros_like(compute_s)
    for sender, receiver, delay_s in zip(*edges, strict=True):
        end_s = head_s[sender] + compute_s[sender]
        arrival_s = (end_s[:, None] + delay_s).min(axis=0)
        head_s[receiver] = np.maximum(head_s[receiver], arrival_s)
    backwards = (edges.senders[::-1], edges.receivers[::-1], edges.delay_s[::-1])
    for sender, receiver, delay_s in zip(*backwards, strict=True):
        onward_s = (delay_s + compute_s[receiver] + tail_s[receiver]).min(axis=1)
        tail_s[sender] = np.maximum(tail_s[sender], onward_s)
    return Windows(head_s, compute_s, tail_s)


def longest_s(edges: Edges, compute_s: np.ndarray) -> float:
    """One thing after another, each as slow as can be: no latency that is finite is longer.

    Args:
      edges: with delays [E, D, D].
      compute_s: [N, D].
    """
    slow = [np.where(np.isfinite(a), a, 0.0) for a in (compute_s, edges.delay_s)]
    return float(slow[0].max(axis=1).sum() + slow[1].max(axis=(1, 2)).sum())


def closed(classes: base.Classes, edges: Edges, windows: Windows, latency_s: float) -> Windows:
    """The windows of what is no slower than `latency_s`."""
    for _ in range(_PASSES):
        late = windows.through_s() > latency_s * (1 + _TOLERANCE)
        late_class = np.zeros(classes.compute_s.shape, bool)
        np.logical_or.at(late_class, classes.number, late)
        compute_s = np.where(late_class[classes.number], np.inf, windows.compute_s)
        if (np.isinf(compute_s) == np.isinf(windows.compute_s)).all():
            break
        windows = windows_of(edges, compute_s)
    return windows


def _refuted(problem: Problem, edges: Edges, windows: Windows, latency_s: float) -> bool:
    """Whether no placement is as fast as `latency_s`."""
    classes = base.classes(problem)
    windows = closed(classes, edges, windows, latency_s)
    impossible = np.isinf(windows.compute_s).all(axis=1).any()
    return bool(impossible) or _overloaded(problem, classes, windows, latency_s)


def _overloaded(
    problem: Problem, classes: base.Classes, windows: Windows, latency_s: float
) -> bool:
    """Whether the linear program has no shares: its least excess, in units of T, is positive."""
    columns, group = _alike(windows)
    count = np.bincount(group)
    num_classes, num_groups = len(classes.memory_bytes), len(columns)
    is_open = np.ones((num_classes, num_groups), bool)
    np.logical_and.at(is_open, classes.number, np.isfinite(windows.compute_s[:, columns]))
    rows, limits = [], []
    for nth, device in enumerate(columns.tolist()):
        for load_s, seconds in _intervals(windows, device, latency_s):
            row = np.zeros((num_classes, num_groups))
            row[:, nth] = np.bincount(classes.number, load_s, num_classes)
            rows.append(sparse.csr_array(row.reshape(1, -1) / latency_s))
            limits.append(count[nth] * seconds / latency_s)
    for nth, capacity in enumerate(_capacities(problem, group)):
        if np.isfinite(capacity):
            row = np.zeros((num_classes, num_groups))
            row[:, nth] = classes.memory_bytes / max(capacity, 1.0)
            rows.append(sparse.csr_array(row.reshape(1, -1)))
            limits.append(capacity / max(capacity, 1.0))
    size = num_classes * num_groups
    excess = sparse.csr_array(-np.ones((len(rows), 1)))
    whole = sparse.kron(sparse.eye_array(num_classes), np.ones((1, num_groups)))
    solved = optimize.linprog(
        np.append(np.zeros(size), 1.0),
        sparse.hstack([sparse.vstack(rows), excess], format="csr"),
        np.array(limits),
        sparse.hstack([whole, sparse.csr_array((num_classes, 1))], format="csr"),
        np.ones(num_classes),
        bounds=[(0, float(is_open.flat[i])) for i in range(size)] + [(0, None)],
    )
    return solved.status == 0 and solved.fun > _TOLERANCE


def _alike(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """One device of each kind, int [K], and the kind of every device, int [D]."""
    rows = np.concatenate(windows)
    _, first, number = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    return first, number


def _intervals(windows: Windows, device: int, latency_s: float) -> list[tuple[np.ndarray, float]]:
    """Intervals on a device: what each operation must compute there, [N], and their length."""
    head_s, compute_s, tail_s = (field[:, device] for field in windows)
    some = np.isfinite(compute_s)
    if not some.any():
        return []
    shares = np.linspace(0, 1, _POINTS)
    begins = np.unique(np.append(np.quantile(head_s[some], shares), 0.0))
    ends = np.unique(np.append(latency_s - np.quantile(tail_s[some], shares), latency_s))
    load_s, found = np.zeros(len(head_s)), []
    for begin in begins:
        for end in ends[ends > begin]:
            early = (head_s + compute_s)[some] - begin
            late = end - latency_s + (tail_s + compute_s)[some]
            least = np.minimum(np.minimum(early, late), np.minimum(compute_s[some], end - begin))
            load_s[some] = np.maximum(least, 0.0)
            found.append((load_s.copy(), end - begin))
    return found


def _capacities(problem: Problem, group: np.ndarray) -> np.ndarray:
    """float64 [K]: the memory of all devices of a kind, inf where one of them has no limit."""
    memory = base.memory(problem)
    total = np.full(group.max() + 1, np.inf)
    for nth in range(len(total)):
        mine = group == nth
        if memory.devices[:, mine].any(axis=0).all():
            total[nth] = memory.capacity_bytes[memory.devices[:, mine].any(axis=1)].sum()
    return total
