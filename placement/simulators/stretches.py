"""How the operations of devices that overlap are cut into stretches, each run in one go.

A stretch starts when all that it reads is there, and hands over what others read when all of it is
done. So a device's operations, in the order in which the `makespan` objective runs them, have to be
cut

- after an operation that another device reads, lest that one waits for more than it needs,
- before an operation that reads from another device, lest those before it wait for what it needs.

Then every stretch starts and ends as its operations do in the objective, and the stretches depend
on each other without cycles: with u -> v across devices, u ends a stretch and v begins one, so that
a cycle would lead back in the order of priority. But each cut costs: a fusion is lost, a tensor
read again. So cuts whose removal makes the schedule no longer are taken back, one by one:

    start(P)  = max( finish of the stretch before P on its device,
                     max over tensors that P reads from Q elsewhere of finish(Q) + transfer_s )
    finish(P) = start(P) + sum over v in P of ( compute_s[v] + max over e = (u, v), u not in P,
                                                of cut_s[e] )

Here what a cut costs keeps the reading device busy, while in the objective, which has no stretches,
it delays the reader.
"""

import heapq
from typing import NamedTuple

import numpy as np

from placement.graphs import dag
from placement.simulators import makespan
from placement.simulators.tensors import edge_transfer_s
from placement.types import Problem


class Cut(NamedTuple):
    """A placement in stretches."""

    # Indices of operations in the order in which their device runs them, a stretch each; the
    # stretches in an order in which they could run one after another. Of two that are ready on a
    # device, the one that comes first is to run first.
    stretches: tuple[np.ndarray, ...]
    latency_s: float  # when the last stretch ends


def cut(problem: Problem, placement: np.ndarray) -> Cut:
    """Cuts a placement int32 [N] into stretches; the problem's objective does not matter."""
    row = _Row(problem, placement)
    cuts = row.needed.copy()
    latency_s = row.run(cuts).latency_s
    # From the end, where little depends on a stretch: what is merged there frees the rest.
    for position in np.flatnonzero(cuts & ~row.forced)[::-1]:
        cuts[position] = False
        without_s = row.run(cuts).latency_s
        if without_s <= latency_s:
            latency_s = without_s
        else:
            cuts[position] = True
    return row.run(cuts)


class _Row:
    """The operations of all devices in one row, device after device, each in order of priority."""

    def __init__(self, problem: Problem, placement: np.ndarray):
        graph, costs = problem.graph, problem.costs
        order = makespan.priority_order(graph, costs)
        self._row = order[np.argsort(placement[order], kind="stable")]
        position = np.empty(graph.num_ops, int)
        position[self._row] = np.arange(graph.num_ops)
        self._rank = np.argsort(order)[self._row]  # in order of priority, of each in the row
        self._device = placement[self._row]
        self._compute_s = np.asarray(costs.compute_s, float)[self._row, self._device]
        self._senders = position[graph.senders]
        self._receivers = position[graph.receivers]
        source, reader = placement[graph.senders], placement[graph.receivers]
        edges = np.arange(graph.num_edges)
        self._transfer_s = edge_transfer_s(graph, costs)[edges, source, reader].astype(float)
        self._cut_s = np.asarray(costs.cut_s, float)
        # True where a stretch has to begin because the row comes to the next device.
        self.forced = np.diff(self._device, prepend=-1) != 0
        # True where one begins before anything is taken back.
        self.needed = self.forced.copy()
        apart = source != reader
        after = self._senders[apart] + 1
        self.needed[after[after < graph.num_ops]] = True
        self.needed[self._receivers[apart]] = True

    def run(self, cuts: np.ndarray) -> Cut:
        """The row with these cuts; inf where stretches wait for each other in a cycle."""
        part, first = np.cumsum(cuts) - 1, np.flatnonzero(cuts)
        num_parts = len(first)
        senders, receivers = part[self._senders], part[self._receivers]
        apart = senders != receivers
        lost_s = np.zeros(len(part))
        np.maximum.at(lost_s, self._receivers[apart], self._cut_s[apart])
        busy_s = np.bincount(part, self._compute_s + lost_s, num_parts).tolist()
        following = np.flatnonzero(~self.forced[first])  # stretches after another on their device
        starts, edges = dag.successors(
            num_parts,
            np.concatenate([senders[apart], following - 1]),
            np.arange(int(apart.sum()) + len(following)),
        )
        targets = np.concatenate([receivers[apart], following]).tolist()
        delay_s = np.concatenate([self._transfer_s[apart], np.zeros(len(following))]).tolist()
        missing = np.bincount(targets, minlength=num_parts).tolist() if targets else [0] * num_parts
        rank, start_list, edge_list = self._rank[first].tolist(), starts.tolist(), edges.tolist()
        ready = [(rank[p], p) for p in range(num_parts) if missing[p] == 0]
        heapq.heapify(ready)
        finish, arrival, order = [0.0] * num_parts, [0.0] * num_parts, []
        while ready:
            _, p = heapq.heappop(ready)
            order.append(p)
            finish[p] = arrival[p] + busy_s[p]
            for edge in edge_list[start_list[p] : start_list[p + 1]]:
                target = targets[edge]
                arrival[target] = max(arrival[target], finish[p] + delay_s[edge])
                missing[target] -= 1
                if missing[target] == 0:
                    heapq.heappush(ready, (rank[target], target))
        parts = np.split(self._row, first[1:])
        acyclic = len(order) == num_parts
        return Cut(tuple(parts[p] for p in order), max(finish) if acyclic else np.inf)
