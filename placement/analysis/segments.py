"""Segments: the pieces into which the operations of concurrent devices are cut, and their schedule.

A segment starts when all its inputs have arrived, and sends its outputs when all its operations are
done. Each device runs its operations in the order of the `makespan` objective. The order is cut

- after an operation that another device reads, so that the reader does not wait longer than needed;
- before an operation that reads from another device, so that earlier operations do not wait for it.

With these cuts every segment starts and ends as its operations do in the objective. The segments
have no cyclic dependencies: for an edge u -> v between devices, u ends a segment and v begins one,
so a cycle would contradict the priority order. Each cut costs time, because a fusion is lost or a
tensor is read again. A cut is therefore undone if the schedule is not longer without it:

    start(P)  = max( finish of the segment before P on its device,
                     max over tensors that P reads from another device's Q
                         of finish(Q) + transfer_s )
    finish(P) = start(P) + sum over v in P of ( compute_s[v] + max over e = (u, v), u not in P,
                                                of fusion_loss_s[e] )

The fusion loss occupies the reading device, wherever the tensor comes from. (The objective has no
segments; there the loss delays only readers on another device.) If submodels were measured, the
loss contains the time to start a submodel (`SegmentCosts.launch_s`), which counts once for P.

This is not the operations' list schedule: merged segments may wait for each other in a cycle, which
only a schedule that follows the links one by one detects.
"""

import heapq
from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag
from placement.problem import Problem

# The operations that `cut` may schedule in total, which takes about two seconds: in a graph of
# 1,000 operations it tries to undo 500 cuts.
_VISITS = 500_000

# One array of operation indices per segment, in the order in which the device runs them. The
# segments are in topological order; of two ready segments of a device the earlier one runs first.
Segments = tuple[np.ndarray, ...]


class Schedule(NamedTuple):
    """Start and finish times of P segments."""

    start_s: np.ndarray  # float64 [P]
    finish_s: np.ndarray  # float64 [P]; nan for a cycle and the segments after it

    @property
    def latency_s(self) -> float:
        """The finish time of the last segment; nan if segments wait for each other in a cycle."""
        return float(self.finish_s.max())


def cut(problem: Problem, placement: np.ndarray) -> Segments:
    """Cuts a placement int32 [K] into segments; the problem's objective does not matter."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    row = _Row(problem, placement, problem.priority_order)
    cuts = row.initial.copy()
    latency_s = row.run(cuts)[1].latency_s
    # From the end, because few segments depend on the last ones, and merging them helps the earlier
    # ones. The first cuts of a large graph stay: trying all takes time quadratic in its size.
    max_attempts = max(1, _VISITS // problem.graph.num_ops)
    for position in np.flatnonzero(cuts & ~row.forced)[::-1][:max_attempts]:
        cuts[position] = False
        merged_s = row.run(cuts)[1].latency_s
        if merged_s <= latency_s:
            latency_s = merged_s
        else:
            cuts[position] = True
    parts = np.split(row.ops, np.flatnonzero(cuts)[1:])
    return tuple(parts[p] for p in row.run(cuts)[0])


def schedule(problem: Problem, placement: np.ndarray, segments: Segments) -> Schedule:
    """Schedules the segments of a placement int32 [K], which may have been cut at other costs."""
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
    _, row_schedule = row.run(begins[row.ops])
    return Schedule(row_schedule.start_s[part], row_schedule.finish_s[part])


class _Row:
    """The operations of all devices in one row: sorted by device, then by a given order."""

    def __init__(self, problem: Problem, placement: np.ndarray, order: np.ndarray):
        graph, costs, op_devices = problem.graph, problem.costs, problem.expand(placement)
        self.ops = order[np.argsort(op_devices[order], kind="stable")]
        position = np.argsort(self.ops)
        device = op_devices[self.ops]
        self._rank = np.argsort(order)[self.ops]
        self._compute_s = np.asarray(costs.compute_s, float)[self.ops, device]
        self._senders, self._receivers = position[graph.senders], position[graph.receivers]
        source, reader = op_devices[graph.senders], op_devices[graph.receivers]
        edges = np.arange(graph.num_edges)
        self._transfer_s = problem.edge_transfer_s[edges, source, reader].astype(float)
        self._fusion_loss_s = np.asarray(costs.fusion_loss_s, float)
        self._launch_s = np.zeros(graph.num_ops)  # of each operation's device
        if costs.segment_costs is not None:
            self._launch_s = np.asarray(costs.segment_costs.launch_s, float)[device]
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

    def lost_s(self, part: np.ndarray) -> np.ndarray:
        """Computes the fusion loss of each operation that reads from another segment.

        If launch times are known, only one loss of each segment includes the launch.

        Returns:
          Seconds float64 [N].
        """
        lost_s = np.zeros(len(part))
        crosses = part[self._senders] != part[self._receivers]
        np.maximum.at(lost_s, self._receivers[crosses], self._fusion_loss_s[crosses])
        is_full = lost_s > 0
        losing_ops = np.flatnonzero(is_full)
        is_full[losing_ops] = self._launch_s[losing_ops] == 0
        is_full[losing_ops[np.unique(part[losing_ops], return_index=True)[1]]] = True
        return np.where(is_full, lost_s, np.maximum(lost_s - self._launch_s, 0.0))

    def run(self, cuts: np.ndarray) -> tuple[list[int], Schedule]:
        """Schedules the row; bool [N] says whether a segment begins at each operation.

        Returns:
          The order of the segments, without those that never finish, and the schedule.
        """
        part, first = np.cumsum(cuts) - 1, np.flatnonzero(cuts)
        num_parts = len(first)
        busy_s = np.bincount(part, self._compute_s + self.lost_s(part), num_parts).tolist()
        following = np.flatnonzero(~self.forced[first])  # segments that are not first on a device
        cut_edges = np.flatnonzero(part[self._senders] != part[self._receivers])
        sources = np.concatenate([part[self._senders[cut_edges]], following - 1])
        targets = np.concatenate([part[self._receivers[cut_edges]], following])
        edges = np.append(cut_edges, np.full(len(following), -1))
        outgoing = dag.list_by_node(num_parts, sources, np.arange(len(edges)))
        target, delay_s = targets.tolist(), np.append(self._transfer_s, 0.0)[edges].tolist()
        missing = np.bincount(targets, minlength=num_parts).tolist()  # links that segments wait for
        rank = self._rank[first].tolist()
        start, finish, order = [0.0] * num_parts, [np.nan] * num_parts, list[int]()
        ready = [(rank[p], p) for p in range(num_parts) if missing[p] == 0]
        heapq.heapify(ready)
        while ready:
            _, p = heapq.heappop(ready)
            order.append(p)
            finish[p] = start[p] + busy_s[p]
            for link in outgoing[p]:
                q = target[link]
                start[q] = max(start[q], finish[p] + delay_s[link])
                missing[q] -= 1
                if missing[q] == 0:
                    heapq.heappush(ready, (rank[q], q))
        return order, Schedule(np.array(start), np.array(finish))
