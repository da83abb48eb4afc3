"""How the operations of devices that overlap are cut into segments, each run in one go.

A segment starts when all that it reads is there, and hands over what others read when all of it is
done. So a device's operations, in the order in which the `makespan` objective runs them, have to be
cut

- after an operation that another device reads, lest that one waits for more than it needs,
- before an operation that reads from another device, lest those before it wait for what it needs.

Then every segment starts and ends as its operations do in the objective, and the segments depend
on each other without cycles: with u -> v across devices, u ends a segment and v begins one, so that
a cycle would lead back in the order of priority. But each cut costs: a fusion is lost, a tensor
read again. So cuts whose removal makes the schedule no longer are taken back, one by one:

    start(P)  = max( finish of the segment before P on its device,
                     max over tensors that P reads from Q elsewhere of finish(Q) + transfer_s )
    finish(P) = start(P) + sum over v in P of ( compute_s[v] + max over e = (u, v), u not in P,
                                                of fusion_loss_s[e] )

Here what a cut costs keeps the reading device busy, on whichever device the other end is; the
objective, which knows no segments, delays a reader on another device by it. Where submodels were
measured, part of it is what starting one takes (`SegmentCosts.launch_s`), which counts once in P.

Devices of one processor share its caches and its memory: while others compute, a device is slower.
Where that was measured (`SegmentCosts.slowdown`), a segment P that would take t seconds alone gets
on, while k of the D - 1 other devices compute, by

    dt / (1 + slowdown(P) k / (D - 1))

in dt seconds, with slowdown(P) the mean of its operations', weighted by their time. So the schedule
is made from event to event. Where segments are cut is decided from what they take alone.
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import chex
import numpy as np

from placement.costs import calibrate
from placement.graphs import dag
from placement.instance import Instance

# Operations that `cut` may schedule in all, about two seconds: of a graph of 1,000 operations it
# tries to take back 500 cuts.
_VISITS = 500_000

# Indices of operations in the order in which their device runs them, a segment each; the segments
# in an order in which they could run one after another. Of two that are ready on a device, the one
# that comes first is to run first.
Segments = tuple[np.ndarray, ...]


class Schedule(NamedTuple):
    """When segments run."""

    start_s: np.ndarray  # float64 [P]
    finish_s: np.ndarray  # float64 [P]
    stretch: np.ndarray  # float64 [P]: how many times longer each takes than it would alone
    # A longest path: its last segment first, then before each the one that it waited for the
    # longest; and the graph's edges over which they did, where it was not for their device.
    critical: tuple[int, ...]
    waited: tuple[int, ...]

    @property
    def latency_s(self) -> float:
        """When the last segment ends."""
        return float(self.finish_s.max())


def cut(problem: Instance, placement: np.ndarray) -> Segments:
    """Cuts a placement int32 [N] into segments; the problem's objective does not matter."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, problem.priority_order)
    cuts = row.needed.copy()
    latency_s = row.run(cuts).latency_s
    # From the end, where little depends on a segment: what is merged there frees the rest. The
    # first cuts of a large graph stay: trying all of them takes a time quadratic in its size.
    most = max(1, _VISITS // problem.graph.num_ops)
    for position in np.flatnonzero(cuts & ~row.forced)[::-1][:most]:
        cuts[position] = False
        without_s = row.run(cuts).latency_s
        if without_s <= latency_s:
            latency_s = without_s
        else:
            cuts[position] = True
    parts = np.split(row.ops, np.flatnonzero(cuts)[1:])
    return tuple(parts[p] for p in row.run(cuts).order)


def schedule(problem: Instance, placement: np.ndarray, segments: Segments) -> Schedule:
    """Schedules the segments of a placement int32 [N]; they may be of other costs."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, np.concatenate(segments))
    begins = np.zeros(problem.graph.num_ops, bool)
    first = [members[0] for members in segments]
    begins[first] = True
    # The row is device after device, unlike `segments`: where each of these is in it.
    part = np.empty(problem.graph.num_ops, int)
    part[row.ops] = np.cumsum(begins[row.ops]) - 1
    part = part[first]
    run = row.run(begins[row.ops], shared=True)
    path, waited = [int(np.argmax(run.finish_s))], []
    while (link := run.last[path[-1]]) >= 0:
        path.append(int(run.sources[link]))
        waited.append(int(run.edges[link]))
    return Schedule(
        start_s=np.array(run.start_s)[part],
        finish_s=np.array(run.finish_s)[part],
        stretch=np.array(run.stretch)[part],
        critical=tuple(np.argsort(part)[path].tolist()),
        waited=tuple(edge for edge in waited if edge >= 0),
    )


def latency_s(problem: Instance, placement: np.ndarray) -> float:
    """Computes seconds that a placement int32 [N] takes in segments."""
    return schedule(problem, placement, cut(problem, placement)).latency_s


def terms(
    problem: Instance,
    placement: np.ndarray,
    segments: Segments,
    of: Schedule,
    kind: np.ndarray | None = None,
) -> calibrate.Terms:
    """Sums up what a schedule's longest path consists of, at the problem's costs.

    Args:
      problem: N operations.
      placement: int32 [N].
      segments: as `cut` gives them.
      of: the schedule of these, at whatever costs.
      kind: int [N], where they are to tell kinds of operations apart.
    """
    row = _Row(problem, placement, np.concatenate(segments))
    part = np.empty(problem.graph.num_ops, int)
    for number, members in enumerate(segments):
        part[members] = number
    critical, stretch = np.isin(part, of.critical), of.stretch[part]
    lost_s, whole = row.lost_s(part[row.ops])
    of_row = np.where(critical, stretch, 0.0)[row.ops]
    compute_s = np.asarray(problem.costs.compute_s, float)
    chosen_s = compute_s[np.arange(len(part)), placement] * stretch
    edges = np.array(of.waited, int)
    pair = placement[problem.graph.senders[edges]], placement[problem.graph.receivers[edges]]
    transfers = np.zeros((compute_s.shape[1],) * 2)
    num_bytes = np.zeros_like(transfers)
    np.add.at(transfers, pair, 1)
    np.add.at(num_bytes, pair, problem.graph.edge_bytes[edges])
    return calibrate.Terms(
        compute_s=calibrate.by_device(
            chosen_s[critical],
            placement[critical],
            compute_s.shape[1],
            None if kind is None else kind[critical],
        ),
        transfers=transfers,
        bytes=num_bytes,
        lost_s=float(lost_s @ of_row),
        lost=float(whole @ of_row),
    )


class _Run(NamedTuple):
    """What becomes of a row with certain cuts: P segments, L links between them."""

    order: list[int]  # of the segments; those in a cycle, and after it, are missing
    start_s: list[float]  # [P]
    finish_s: list[float]  # [P]
    stretch: list[float]  # [P]: how many times longer each takes than alone
    last: list[int]  # [P]: the link for which a segment waits the longest; -1 for none
    sources: np.ndarray  # int [L]: the segment that a link comes from
    edges: np.ndarray  # int [L]: the graph's edge that it is; -1: it is the device's order

    @property
    def latency_s(self) -> float:
        """nan, which is no less than inf either, where segments wait for each other in a cycle."""
        return max(self.finish_s) if len(self.order) == len(self.finish_s) else np.nan


class _Row:
    """The operations of all devices in one row, device after device, each in a given order."""

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
        self._others = max(1, np.asarray(costs.compute_s).shape[1] - 1)
        self._slowdown = np.zeros(graph.num_ops)
        self._fusion_loss_s = np.asarray(costs.fusion_loss_s, float)
        self._launch_s = np.zeros(graph.num_ops)  # of each operation's device
        if costs.in_segments is not None:
            self._launch_s = np.asarray(costs.in_segments.launch_s, float)[device]
            self._slowdown = np.asarray(costs.in_segments.slowdown, float)[self.ops, device]
            lost_s = np.asarray(costs.in_segments.fusion_loss_s, float)
            self._fusion_loss_s = lost_s[edges, reader]
        # bool [N]: where a segment has to begin because the row comes to the next device.
        self.forced = np.diff(device, prepend=-1) != 0
        # bool [N]: where one begins before anything is taken back.
        self.needed = self.forced.copy()
        apart = source != reader
        after = self._senders[apart] + 1
        self.needed[after[after < graph.num_ops]] = True
        self.needed[self._receivers[apart]] = True

    def lost_s(self, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums what each operation of the row costs more because it reads from another segment.

        Returns:
          Seconds float64 [N]; and bool [N], of which it is a whole loss: the others of a segment
          lose no launch, where it is known what that takes.
        """
        lost_s = np.zeros(len(part))
        apart = part[self._senders] != part[self._receivers]
        np.maximum.at(lost_s, self._receivers[apart], self._fusion_loss_s[apart])
        whole = lost_s > 0
        loses = np.flatnonzero(whole)
        whole[loses] = self._launch_s[loses] == 0
        whole[loses[np.unique(part[loses], return_index=True)[1]]] = True
        return np.where(whole, lost_s, np.maximum(lost_s - self._launch_s, 0.0)), whole

    def run(self, cuts: np.ndarray, *, shared: bool = False) -> _Run:
        """The row in segments that begin where `cuts`, bool [N], says.

        Args:
          cuts: where.
          shared: whether devices that compute at the same time slow each other down.
        """
        part, first = np.cumsum(cuts) - 1, np.flatnonzero(cuts)
        num_parts = len(first)
        taken_s = self._compute_s + self.lost_s(part)[0]
        busy_s = np.bincount(part, taken_s, num_parts)
        following = np.flatnonzero(~self.forced[first])  # segments after another on their device
        apart = np.flatnonzero(part[self._senders] != part[self._receivers])
        sources = np.concatenate([part[self._senders[apart]], following - 1])
        targets = np.concatenate([part[self._receivers[apart]], following])
        edges = np.concatenate([apart, np.full(len(following), -1)])
        delay_s = np.append(self._transfer_s, 0.0)[edges]
        starts, order = dag.successors(num_parts, sources, np.arange(len(edges)))
        missing = np.bincount(targets, minlength=num_parts)
        links = _Links(*(a.tolist() for a in (starts, order, targets, delay_s, missing)))
        rank = self._rank[first].tolist()
        finite = np.isfinite(busy_s).all() and np.isfinite(delay_s).all()
        if shared and finite and self._slowdown.any():
            longer_s = np.bincount(part, taken_s * self._slowdown, num_parts)
            slowdown = longer_s / np.where(busy_s > 0, busy_s, 1.0)
            times = _shared(busy_s.tolist(), (slowdown / self._others).tolist(), rank, links)
        else:
            times = _apart(busy_s.tolist(), rank, links)
        return _Run(*times, sources, edges)


class _Links(NamedTuple):
    """What P segments wait for."""

    starts: list[int]  # [P + 1]: of each segment's links in `of`
    of: list[int]  # [L]: links by the segment that they come from
    target: list[int]  # [L]: the segment that waits
    delay_s: list[float]  # [L]: after the end of the segment that a link comes from
    missing: list[int]  # [P]: how many links each segment waits for


# Of P segments: their order, starts, ends, stretches, and the links for which they wait longest.
_Times = tuple[list[int], list[float], list[float], list[float], list[int]]


def _apart(busy_s: list[float], rank: list[int], links: _Links) -> _Times:
    """When segments run that take `busy_s` [P], whatever else does; of those ready, by `rank`."""
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


def _shared(busy_s: list[float], slowdown: list[float], rank: list[int], links: _Links) -> _Times:
    """When segments run of which each takes `slowdown` [P] longer for each that runs beside it."""
    count = len(busy_s)
    start, finish, last, order = [0.0] * count, [0.0] * count, [-1] * count, list[int]()
    missing = links.missing.copy()
    ready = [(0.0, rank[p], p) for p in range(count) if missing[p] == 0]
    heapq.heapify(ready)
    left_s, now = dict[int, float](), 0.0  # of the segments that run, were each alone
    while ready or left_s:
        beside = len(left_s) - 1
        end, p = min(
            ((now + left * (1 + slowdown[p] * beside), p) for p, left in left_s.items()),
            default=(math.inf, -1),
        )
        begins = bool(ready) and ready[0][0] < end
        then = ready[0][0] if begins else end
        for running in left_s:
            left_s[running] -= (then - now) / (1 + slowdown[running] * beside)
        now = then
        if begins:
            *_, p = heapq.heappop(ready)
            order.append(p)
            left_s[p] = busy_s[p]
            continue
        del left_s[p]
        finish[p] = now
        for q in _arrived(p, now, links, start, last, missing):
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
    """Notes what a segment that ends hands over; yields those that then miss nothing."""
    for link in links.of[links.starts[source] : links.starts[source + 1]]:
        q, there = links.target[link], finish_s + links.delay_s[link]
        if there > start[q]:
            start[q], last[q] = there, link
        missing[q] -= 1
        if missing[q] == 0:
            yield q
