"""Longest paths through a placement's `makespan` schedule, extended range by range on the host.

Operations are numbered in the simulator's order of priority. The longest paths through the
schedule that end with operation v and that begin with it take

    finish(v) = compute_s[v, p[v]] + max( finish of the operation before v on p[v],
                                          max over edges e = (u, v) of finish(u) + delay(e) )
    rest(v)   = compute_s[v, p[v]] + max( rest of the operation after v on p[v],
                                          max over edges e = (v, w) of delay(e) + rest(w) ).

The makespan is the largest of either; in job-shop scheduling these are heads and tails. One
recursion computes both: `PathSweep` follows the incoming edges forwards for the first, and the
outgoing edges backwards for the second. The simulator could not stop after a range and go on with a
changed placement, and its float32 sums would not join up with those of a window.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag


class IncidentEdges(NamedTuple):
    """The edges of each operation in one direction: all incoming or all outgoing ones."""

    first_edge: np.ndarray  # int64 [N + 1]: where each operation's edges begin in the arrays below
    neighbours: np.ndarray  # int32 [E]: the operation at the other end
    edge_ids: np.ndarray  # int32 [E]
    delay_s: np.ndarray  # float32 [E, D, D], by edge id: from the neighbour's device to the own

    def select(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns operations, neighbours and ids, int [Q] each, of the edges of a range."""
        edges = slice(self.first_edge[begin], self.first_edge[end])
        num_edges = np.diff(self.first_edge[begin : end + 1])
        return (
            np.repeat(np.arange(begin, end), num_edges),
            self.neighbours[edges],
            self.edge_ids[edges],
        )


def make_incident_edges(
    num_ops: int, senders: np.ndarray, receivers: np.ndarray, delay_s: np.ndarray
) -> tuple[IncidentEdges, IncidentEdges]:
    """Returns the incoming and the outgoing edges of all operations.

    Args:
      num_ops: N.
      senders: int32 [E], each less than its receiver.
      receivers: int32 [E].
      delay_s: float32 [E, D, D], see `Problem.edge_delay_s`.
    """
    chex.assert_type([senders, receivers, delay_s], [int, int, float])
    edge_ids = np.arange(len(senders), dtype=np.int32)
    first_incoming, incoming = dag.successors(num_ops, receivers, edge_ids)
    first_outgoing, outgoing = dag.successors(num_ops, senders, edge_ids)
    return (
        IncidentEdges(first_incoming, senders[incoming], incoming, delay_s),
        IncidentEdges(first_outgoing, receivers[outgoing], outgoing, delay_s.transpose(0, 2, 1)),
    )


class PathSweep:
    """Longest paths of the operations up to a position; only `advance` changes it."""

    def __init__(self, edges: IncidentEdges, compute_s: np.ndarray, *, backwards: bool):
        """Starts before the first operation, or after the last.

        Args:
          edges: along which the paths go.
          compute_s: float32 [N, D].
          backwards: whether the sweep goes from the last operation to the first.
        """
        self.path_s = np.zeros(len(compute_s))  # the longest path to each operation swept so far
        # float64 [D]: the longest path to an operation on each device
        self.device_free_s = np.zeros(compute_s.shape[1])
        self._edges, self._compute_s, self._backwards = edges, compute_s, backwards

    def ready_s(self, begin: int, end: int, placement: np.ndarray) -> np.ndarray:
        """Computes when operations `begin` to `end` could start on each device.

        An operation is ready when the device is free of all operations swept so far, and the
        inputs from those have arrived. Inputs from the range itself do not count.

        Args:
          begin: first operation of the range. A forward sweep is there, a backward sweep at `end`.
          end: after the last operation of the range.
          placement: int32 [N], the devices of operations.

        Returns:
          float64 [end - begin, D].
        """
        ops, neighbours, edge_ids = self._edges.select(begin, end)
        is_outside = (neighbours < begin) | (neighbours >= end)
        ops, neighbours, edge_ids = ops[is_outside], neighbours[is_outside], edge_ids[is_outside]
        ready_s = np.tile(self.device_free_s, (end - begin, 1))
        if len(ops):
            delay_s = self._edges.delay_s[edge_ids, placement[neighbours]]
            arrival_s = self.path_s[neighbours, None] + delay_s
            first_edge = np.flatnonzero(np.diff(ops, prepend=-1))
            rows = ops[first_edge] - begin
            latest_s = np.maximum.reduceat(arrival_s, first_edge)
            ready_s[rows] = np.maximum(ready_s[rows], latest_s)
        return ready_s

    def advance(self, begin: int, end: int, placement: np.ndarray) -> None:
        """Sweeps over operations `begin` to `end`, which come next, on devices int32 [N]."""
        span = np.arange(begin, end)
        ready_s = self.ready_s(begin, end, placement)[span - begin, placement[span]].tolist()
        ops, neighbours, edge_ids = self._edges.select(begin, end)
        is_inside = (begin <= neighbours) & (neighbours < end)
        ops, neighbours, edge_ids = ops[is_inside], neighbours[is_inside], edge_ids[is_inside]
        delay_s = self._edges.delay_s[edge_ids, placement[neighbours], placement[ops]].tolist()
        first_edge = np.searchsorted(ops, np.arange(begin, end + 1)).tolist()
        neighbours = (neighbours - begin).tolist()
        compute_s = self._compute_s[span, placement[span]].tolist()
        devices = placement[span].tolist()
        device_free_s, path_s = self.device_free_s.tolist(), [0.0] * len(span)
        for op in reversed(range(len(span))) if self._backwards else range(len(span)):
            start_s = max(device_free_s[devices[op]], ready_s[op])
            for edge in range(first_edge[op], first_edge[op + 1]):
                start_s = max(start_s, path_s[neighbours[edge]] + delay_s[edge])
            device_free_s[devices[op]] = path_s[op] = start_s + compute_s[op]
        self.path_s[begin:end] = path_s
        self.device_free_s = np.array(device_free_s)
