"""Segments: the pieces into which the operations of concurrent devices are cut, and their schedule.

A segment starts when all its inputs have arrived, and sends its outputs when all its operations are
done. Each device runs its operations in the order of the `makespan` objective. The order is cut

- after an operation that another device reads, so that the reader does not wait longer than needed;
- before an operation that reads from another device, so that earlier operations do not wait for it;
- between two operations if one of a conflicting device comes between them in the order of priority.
  Devices conflict that share resources, such as cores.

With these cuts every segment starts and ends as its operations do in the objective. The segments
have no cyclic dependencies: for an edge u -> v between devices, u ends a segment and v begins one,
so a cycle would contradict the priority order. Each cut costs time, because a fusion is lost or a
tensor is read again. A cut is therefore undone if the schedule is not longer without it:

    start(P)  = max( finish of the segment before P on its device,
                     max over tensors that P reads from another device's Q
                         of finish(Q) + transfer_s )
    finish(P) = start(P) + sum over v in P of ( compute_s[v] + max over e = (u, v), u not in P,
                                                of fusion_loss_s[e] )

P also waits for the segments before it on every device that conflicts with its own: those whose
first operation has a higher priority.

The fusion loss occupies the reading device, wherever the tensor comes from. (The objective has no
segments; there the loss delays only readers on another device.) If submodels were measured, the
loss contains the time to start a submodel (`SegmentCosts.launch_s`), which counts once for P.

Devices of one processor share caches and memory, so a device is slower while others compute. If
that was measured (`SegmentCosts.slowdown`), then while k of the K other devices that could compute
at the same time do, a segment P advances in dt seconds by

    dt / (1 + slowdown(P) k / K)

seconds of its undisturbed time. slowdown(P) is the mean over its operations, weighted by their
time. The schedule is simulated from event to event. Cuts are chosen without the slowdown.
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag
from placement.instance import Instance

# The operations that `cut` may schedule in total, which takes about two seconds: in a graph of
# 1,000 operations it tries to undo 500 cuts.
_VISITS = 500_000

# One array of operation indices per segment, in the order in which the device runs them. The
# segments are in topological order; of two ready segments of a device the earlier one runs first.
Segments = tuple[np.ndarray, ...]


class Schedule(NamedTuple):
    """Start and finish times of P segments."""

    start_s: np.ndarray  # float64 [P]
    finish_s: np.ndarray  # float64 [P]
    stretch: np.ndarray  # float64 [P]: duration over the duration without other devices

    @property
    def latency_s(self) -> float:
        """The finish time of the last segment."""
        return float(self.finish_s.max())


def cut(problem: Instance, placement: np.ndarray) -> Segments:
    """Cuts a placement int32 [N] into segments; the problem's objective does not matter."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, problem.priority_order)
    cuts = row.initial.copy()
    latency_s = row.run(cuts).latency_s
    # From the end, because few segments depend on the last ones, and merging them helps the earlier
    # ones. The first cuts of a large graph stay: trying all takes time quadratic in its size.
    max_attempts = max(1, _VISITS // problem.graph.num_ops)
    for position in np.flatnonzero(cuts & ~row.forced)[::-1][:max_attempts]:
        cuts[position] = False
        merged_s = row.run(cuts).latency_s
        if merged_s <= latency_s:
            latency_s = merged_s
        else:
            cuts[position] = True
    parts = np.split(row.ops, np.flatnonzero(cuts)[1:])
    return tuple(parts[p] for p in row.run(cuts).order)


def schedule(problem: Instance, placement: np.ndarray, segments: Segments) -> Schedule:
    """Schedules the segments of a placement int32 [N], which may have been cut at other costs."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, np.concatenate(segments))
    begins = np.zeros(problem.graph.num_ops, bool)
    first = [members[0] for members in segments]
    begins[first] = True
    # The row is sorted by device, unlike `segments`: the index in the row of each segment.
    part = np.empty(problem.graph.num_ops, int)
    part[row.ops] = np.cumsum(begins[row.ops]) - 1
    part = part[first]
    run = row.run(begins[row.ops], shared=True)
    return Schedule(
        start_s=np.array(run.start_s)[part],
        finish_s=np.array(run.finish_s)[part],
        stretch=np.array(run.stretch)[part],
    )


def latency_s(problem: Instance, placement: np.ndarray) -> float:
    """Computes the latency in seconds of a placement int32 [N] that runs in segments."""
    return schedule(problem, placement, cut(problem, placement)).latency_s


def count_other_devices(problem: Instance) -> np.ndarray:
    """Returns int [D]: how many others can compute at the same time as each device, at least 1.

    Where devices share resources, those that occupy the fewest are counted first.
    """
    num_devices = len(problem.devices)
    conflicts = problem.conflicts
    if conflicts is None:
        return np.full(num_devices, max(1, num_devices - 1))
    counts = np.ones(num_devices, int)
    by_size = np.argsort(problem.resources.sum(axis=1), kind="stable")
    for device in range(num_devices):
        running = [device]
        for other in by_size.tolist():
            if not conflicts[other, running].any():
                running.append(other)
        counts[device] = max(1, len(running) - 1)
    return counts


class _Run(NamedTuple):
    """The schedule of a row with given cuts: P segments, L links between them."""

    order: list[int]  # of the segments; a cycle and the segments after it are missing
    start_s: list[float]  # [P]
    finish_s: list[float]  # [P]
    stretch: list[float]  # [P]: duration over the duration without other devices
    last: list[int]  # [P]: the link that a segment waits for the longest; -1 for none
    sources: np.ndarray  # int [L]: the segment that a link starts at
    edges: np.ndarray  # int [L]: the graph's edge of the link; -1: the order on a device

    @property
    def latency_s(self) -> float:
        """The last finish; nan if segments wait for each other in a cycle."""
        return max(self.finish_s) if len(self.order) == len(self.finish_s) else np.nan


class _Row:
    """The operations of all devices in one row: sorted by device, then by a given order."""

    def __init__(self, problem: Instance, placement: np.ndarray, order: np.ndarray):
        graph, costs = problem.graph, problem.costs
        self.ops = order[np.argsort(placement[order], kind="stable")]
        position = np.argsort(self.ops)
        device = placement[self.ops]
        self._rank = np.argsort(order)[self.ops]
        self._compute_s = np.asarray(costs.compute_s, float)[self.ops, device]
        self._senders, self._receivers = position[graph.senders], position[graph.receivers]
        source, reader = placement[graph.senders], placement[graph.receivers]
        edges = np.arange(graph.num_edges)
        self._transfer_s = problem.edge_transfer_s[edges, source, reader].astype(float)
        # Int [N]: how many other devices can compute at the same time as each operation's.
        self._num_other_devices = count_other_devices(problem)[device]
        # The pairs of devices that conflict, and bool [N] whether an operation is on each.
        self._conflicts = list[tuple[np.ndarray, np.ndarray]]()
        if problem.conflicts is not None:
            pairs = np.argwhere(problem.conflicts & ~np.eye(len(problem.devices), dtype=bool))
            self._conflicts = [(device == first, device == second) for first, second in pairs]
        self._slowdown = np.zeros(graph.num_ops)
        self._fusion_loss_s = np.asarray(costs.fusion_loss_s, float)
        self._launch_s = np.zeros(graph.num_ops)  # of each operation's device
        if costs.segment_costs is not None:
            self._launch_s = np.asarray(costs.segment_costs.launch_s, float)[device]
            self._slowdown = np.asarray(costs.segment_costs.slowdown, float)[self.ops, device]
            lost_s = np.asarray(costs.segment_costs.fusion_loss_s, float)
            self._fusion_loss_s = lost_s[edges, reader]
        # bool [N]: a segment must begin here, because the next device begins.
        self.forced = np.diff(device, prepend=-1) != 0
        # bool [N]: a segment begins here before any cut is undone.
        self.initial = self.forced.copy()
        crosses = source != reader
        next_positions = self._senders[crosses] + 1
        self.initial[next_positions[next_positions < graph.num_ops]] = True
        self.initial[self._receivers[crosses]] = True
        for is_earlier, is_later in self._conflicts:
            # Where an operation of one device comes between two of the other.
            later = np.flatnonzero(is_later)
            num_before = np.searchsorted(self._rank[is_earlier], self._rank[later])
            self.initial[later[1:][np.diff(num_before) > 0]] = True

    def lost_s(self, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Computes the fusion loss of each operation that reads from another segment.

        Returns:
          Seconds float64 [N]; and bool [N], whether the loss includes the launch. If launch times
          are known, only one loss of each segment includes it.
        """
        lost_s = np.zeros(len(part))
        crosses = part[self._senders] != part[self._receivers]
        np.maximum.at(lost_s, self._receivers[crosses], self._fusion_loss_s[crosses])
        is_full = lost_s > 0
        losing_ops = np.flatnonzero(is_full)
        is_full[losing_ops] = self._launch_s[losing_ops] == 0
        is_full[losing_ops[np.unique(part[losing_ops], return_index=True)[1]]] = True
        return np.where(is_full, lost_s, np.maximum(lost_s - self._launch_s, 0.0)), is_full

    def run(self, cuts: np.ndarray, *, shared: bool = False) -> _Run:
        """Schedules the row.

        Args:
          cuts: bool [N]: whether a segment begins at each operation.
          shared: whether devices that compute at the same time slow each other down.
        """
        part, first = np.cumsum(cuts) - 1, np.flatnonzero(cuts)
        num_parts = len(first)
        op_s = self._compute_s + self.lost_s(part)[0]
        busy_s = np.bincount(part, op_s, num_parts)
        following = np.flatnonzero(
            ~self.forced[first]
        )  # segments that are not first on their device
        cut_edges = np.flatnonzero(part[self._senders] != part[self._receivers])
        source_lists = [part[self._senders[cut_edges]], following - 1]
        target_lists = [part[self._receivers[cut_edges]], following]
        rank = self._rank[first]
        for is_earlier, is_later in self._conflicts:
            # Each segment of one device waits for the last one before it on the other.
            earlier, later = np.flatnonzero(is_earlier[first]), np.flatnonzero(is_later[first])
            last = np.searchsorted(rank[earlier], rank[later]) - 1
            source_lists.append(earlier[last[last >= 0]])
            target_lists.append(later[last >= 0])
        sources, targets = np.concatenate(source_lists), np.concatenate(target_lists)
        edges = np.append(cut_edges, np.full(len(sources) - len(cut_edges), -1))
        delay_s = np.append(self._transfer_s, 0.0)[edges]
        starts, order = dag.successors(num_parts, sources, np.arange(len(edges)))
        missing = np.bincount(targets, minlength=num_parts)
        links = _Links(*(a.tolist() for a in (starts, order, targets, delay_s, missing)))
        finite = np.isfinite(busy_s).all() and np.isfinite(delay_s).all()
        if shared and finite and self._slowdown.any():
            longer_s = np.bincount(part, op_s * self._slowdown, num_parts)
            slowdown = longer_s / np.where(busy_s > 0, busy_s, 1.0)
            slowdown /= self._num_other_devices[first]
            times = _run_with_slowdown(busy_s.tolist(), slowdown.tolist(), rank.tolist(), links)
        else:
            times = _run_independently(busy_s.tolist(), rank.tolist(), links)
        return _Run(*times, sources, edges)


class _Links(NamedTuple):
    """The L dependencies of P segments."""

    starts: list[int]  # [P + 1]: of each segment's links in `outgoing`
    outgoing: list[int]  # [L]: links, sorted by the segment that they start at
    target: list[int]  # [L]: the segment that waits
    delay_s: list[float]  # [L]: after the end of the segment that a link starts at
    missing: list[int]  # [P]: the number of links that each segment waits for


# The order, starts, ends and stretches of P segments, and the links that they wait for longest.
_Times = tuple[list[int], list[float], list[float], list[float], list[int]]


def _run_independently(busy_s: list[float], rank: list[int], links: _Links) -> _Times:
    """Schedules segments that take `busy_s` [P] whatever else runs; ready ones run by `rank`."""
    count = len(busy_s)
    start, finish, last, order = [0.0] * count, [0.0] * count, [-1] * count, list[int]()
    missing = links.missing.copy()
    ready = [(rank[p], p) for p in range(count) if missing[p] == 0]
    heapq.heapify(ready)
    while ready:
        _, p = heapq.heappop(ready)
        order.append(p)
        finish[p] = start[p] + busy_s[p]
        for q in _arrived(p, finish[p], links, start, last, missing):
            heapq.heappush(ready, (rank[q], q))
    return order, start, finish, [1.0] * count, last


def _run_with_slowdown(
    busy_s: list[float], slowdown: list[float], rank: list[int], links: _Links
) -> _Times:
    """Schedules segments that are slower by `slowdown` [P] for each other segment that runs."""
    count = len(busy_s)
    start, finish, last, order = [0.0] * count, [0.0] * count, [-1] * count, list[int]()
    missing = links.missing.copy()
    ready = [(0.0, rank[p], p) for p in range(count) if missing[p] == 0]
    heapq.heapify(ready)
    remaining_s = dict[int, float]()  # undisturbed time of the running segments
    clock_s = 0.0
    while ready or remaining_s:
        num_others = len(remaining_s) - 1
        end, p = min(
            ((clock_s + s * (1 + slowdown[p] * num_others), p) for p, s in remaining_s.items()),
            default=(math.inf, -1),
        )
        begins = bool(ready) and ready[0][0] < end
        event_s = ready[0][0] if begins else end
        for running in remaining_s:
            remaining_s[running] -= (event_s - clock_s) / (1 + slowdown[running] * num_others)
        clock_s = event_s
        if begins:
            *_, p = heapq.heappop(ready)
            order.append(p)
            remaining_s[p] = busy_s[p]
            continue
        del remaining_s[p]
        finish[p] = clock_s
        for q in _arrived(p, clock_s, links, start, last, missing):
            heapq.heappush(ready, (start[q], rank[q], q))
    stretch = [
        (end - begin) / busy if busy > 0 else 1.0
        for begin, end, busy in zip(start, finish, busy_s, strict=True)
    ]
    return order, start, finish, stretch, last


def _arrived(
    source: int,
    finish_s: float,
    links: _Links,
    start: list[float],
    last: list[int],
    missing: list[int],
) -> Iterator[int]:
    """Records the arrivals after a segment's end; yields the segments that become ready."""
    for link in links.outgoing[links.starts[source] : links.starts[source + 1]]:
        q, arrival_s = links.target[link], finish_s + links.delay_s[link]
        if arrival_s > start[q]:
            start[q], last[q] = arrival_s, link
        missing[q] -= 1
        if missing[q] == 0:
            yield q
