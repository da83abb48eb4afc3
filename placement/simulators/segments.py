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
objective, which knows no segments, delays a reader on another device by it.
"""

import heapq
from typing import NamedTuple

import chex
import numpy as np

from placement.costs import calibrate
from placement.graphs import dag
from placement.simulators import ranks
from placement.simulators.tensors import edge_transfer_s
from placement.types import Problem

# Indices of operations in the order in which their device runs them, a segment each; the segments
# in an order in which they could run one after another. Of two that are ready on a device, the one
# that comes first is to run first.
Segments = tuple[np.ndarray, ...]


class Schedule(NamedTuple):
    """When segments run."""

    start_s: np.ndarray  # float64 [P]
    finish_s: np.ndarray  # float64 [P]
    # A longest path: its last segment first, then before each the one that it waited for the
    # longest; and the graph's edges over which they did, where it was not for their device.
    critical: tuple[int, ...]
    waited: tuple[int, ...]

    @property
    def latency_s(self) -> float:
        """When the last segment ends."""
        return float(self.finish_s.max())


def cut(problem: Problem, placement: np.ndarray) -> Segments:
    """Cuts a placement int32 [N] into segments; the problem's objective does not matter."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, ranks.priority_order(problem.graph, problem.costs))
    cuts = row.needed.copy()
    latency_s = row.run(cuts).latency_s
    # From the end, where little depends on a segment: what is merged there frees the rest.
    for position in np.flatnonzero(cuts & ~row.forced)[::-1]:
        cuts[position] = False
        without_s = row.run(cuts).latency_s
        if without_s <= latency_s:
            latency_s = without_s
        else:
            cuts[position] = True
    parts = np.split(row.ops, np.flatnonzero(cuts)[1:])
    return tuple(parts[p] for p in row.run(cuts).order)


def schedule(problem: Problem, placement: np.ndarray, segments: Segments) -> Schedule:
    """Schedules the segments of a placement int32 [N]; they may be of other costs."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, np.concatenate(segments))
    begins = np.zeros(problem.graph.num_ops, bool)
    begins[[members[0] for members in segments]] = True
    run = row.run(begins[row.ops])
    path, waited = [int(np.argmax(run.finish_s))], []
    while (link := run.last[path[-1]]) >= 0:
        path.append(int(run.sources[link]))
        waited.append(int(run.edges[link]))
    number = np.empty(len(segments), int)  # the row is device after device, unlike `segments`
    number[run.order] = np.arange(len(segments))
    return Schedule(
        start_s=np.array(run.start_s)[run.order],
        finish_s=np.array(run.finish_s)[run.order],
        critical=tuple(number[path].tolist()),
        waited=tuple(edge for edge in waited if edge >= 0),
    )


def latency_s(problem: Problem, placement: np.ndarray) -> float:
    """Computes seconds that a placement int32 [N] takes in segments."""
    return schedule(problem, placement, cut(problem, placement)).latency_s


def terms(
    problem: Problem,
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
    critical = np.isin(part, of.critical)
    lost_s = row.lost_s(part[row.ops])[critical[row.ops]]
    compute_s = np.asarray(problem.costs.compute_s, float)
    chosen_s = compute_s[np.arange(len(part)), placement]
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
        lost_s=float(lost_s.sum()),
        lost=int(np.count_nonzero(lost_s)),
    )


class _Run(NamedTuple):
    """What becomes of a row with certain cuts: P segments, L links between them."""

    order: list[int]  # of the segments; those in a cycle, and after it, are missing
    start_s: list[float]  # [P]
    finish_s: list[float]  # [P]
    last: list[int]  # [P]: the link for which a segment waits the longest; -1 for none
    sources: np.ndarray  # int [L]: the segment that a link comes from
    edges: np.ndarray  # int [L]: the graph's edge that it is; -1: it is the device's order

    @property
    def latency_s(self) -> float:
        """nan, which is no less than inf either, where segments wait for each other in a cycle."""
        return max(self.finish_s) if len(self.order) == len(self.finish_s) else np.nan


class _Row:
    """The operations of all devices in one row, device after device, each in a given order."""

    def __init__(self, problem: Problem, placement: np.ndarray, order: np.ndarray):
        graph, costs = problem.graph, problem.costs
        self.ops = order[np.argsort(placement[order], kind="stable")]
        position = np.argsort(self.ops)
        device = placement[self.ops]
        self._rank = np.argsort(order)[self.ops]
        self._compute_s = np.asarray(costs.compute_s, float)[self.ops, device]
        self._senders, self._receivers = position[graph.senders], position[graph.receivers]
        source, reader = placement[graph.senders], placement[graph.receivers]
        edges = np.arange(graph.num_edges)
        self._transfer_s = edge_transfer_s(graph, costs)[edges, source, reader].astype(float)
        self._fusion_loss_s = np.asarray(costs.fusion_loss_s, float)
        # bool [N]: where a segment has to begin because the row comes to the next device.
        self.forced = np.diff(device, prepend=-1) != 0
        # bool [N]: where one begins before anything is taken back.
        self.needed = self.forced.copy()
        apart = source != reader
        after = self._senders[apart] + 1
        self.needed[after[after < graph.num_ops]] = True
        self.needed[self._receivers[apart]] = True

    def lost_s(self, part: np.ndarray) -> np.ndarray:
        """Sums what each operation of the row costs more because it reads from another segment."""
        lost_s = np.zeros(len(part))
        apart = part[self._senders] != part[self._receivers]
        np.maximum.at(lost_s, self._receivers[apart], self._fusion_loss_s[apart])
        return lost_s

    def run(self, cuts: np.ndarray) -> _Run:
        """The row in segments that begin where `cuts`, bool [N], says."""
        part, first = np.cumsum(cuts) - 1, np.flatnonzero(cuts)
        num_parts = len(first)
        busy_s = np.bincount(part, self._compute_s + self.lost_s(part), num_parts).tolist()
        following = np.flatnonzero(~self.forced[first])  # segments after another on their device
        apart = np.flatnonzero(part[self._senders] != part[self._receivers])
        sources = np.concatenate([part[self._senders[apart]], following - 1])
        targets = np.concatenate([part[self._receivers[apart]], following])
        edges = np.concatenate([apart, np.full(len(following), -1)])
        delay_s = np.append(self._transfer_s, 0.0)[edges].tolist()
        starts, links = (
            a.tolist() for a in dag.successors(num_parts, sources, np.arange(len(edges)))
        )
        missing = np.bincount(targets, minlength=num_parts).tolist()
        rank, target = self._rank[first].tolist(), targets.tolist()
        ready = [(rank[p], p) for p in range(num_parts) if missing[p] == 0]
        heapq.heapify(ready)
        start, finish = [0.0] * num_parts, [0.0] * num_parts
        last, order = [-1] * num_parts, []
        while ready:
            _, p = heapq.heappop(ready)
            order.append(p)
            finish[p] = start[p] + busy_s[p]
            for link in links[starts[p] : starts[p + 1]]:
                q, there = target[link], finish[p] + delay_s[link]
                if there > start[q]:
                    start[q], last[q] = there, link
                missing[q] -= 1
                if missing[q] == 0:
                    heapq.heappush(ready, (rank[q], q))
        return _Run(order, start, finish, last, sources, edges)
