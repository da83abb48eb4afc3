"""The `makespan` schedule of one placement from both ends, a part of it at a time, on the host.

With operations numbered in the simulator's order of priority, the longest paths through the
schedule that end and that begin with v are

    finish(v) = compute_s[v, p[v]] + max( finish of the operation before v on p[v],
                                          max over edges e = (u, v) of finish(u) + delay(e) )
    rest(v)   = compute_s[v, p[v]] + max( rest of the operation after v on p[v],
                                          max over edges e = (v, w) of delay(e) + rest(w) ),

so that the makespan is the largest of either. One recursion does for both: `Sweep` is the first
with the edges that enter operations, and the second with those that leave them, backwards.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag


class Side(NamedTuple):
    """The edges that operations have on one side: all that enter them, or all that leave them."""

    starts: np.ndarray  # int64 [N + 1]: where the edges of each operation begin
    other: np.ndarray  # int32 [E]: the operation at their other end
    edge: np.ndarray  # int32 [E]: which ones they are
    # float32 [E, D, D]: by the numbers in `edge`, from the device of the other end to the own
    delay_s: np.ndarray

    def of(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The edges of some operations: their own ends, other ends and numbers, int [Q] each."""
        span = slice(self.starts[begin], self.starts[end])
        own = np.repeat(np.arange(begin, end), np.diff(self.starts[begin : end + 1]))
        return own, self.other[span], self.edge[span]


def sides(
    num_ops: int, senders: np.ndarray, receivers: np.ndarray, delay_s: np.ndarray
) -> tuple[Side, Side]:
    """Makes the sides of edges that enter operations and of those that leave them.

    Args:
      num_ops: N.
      senders: int32 [E], each less than its receiver.
      receivers: int32 [E].
      delay_s: float32 [E, D, D], see `Instance.edge_delay_s`.
    """
    chex.assert_type([senders, receivers, delay_s], [int, int, float])
    number = np.arange(len(senders), dtype=np.int32)
    starts, entering = dag.successors(num_ops, receivers, number)
    into = Side(starts, senders[entering], entering, delay_s)
    starts, leaving = dag.successors(num_ops, senders, number)
    return into, Side(starts, receivers[leaving], leaving, delay_s.transpose(0, 2, 1))


class Sweep:
    """The longest paths so far; `advance` is the only change."""

    def __init__(self, side: Side, compute_s: np.ndarray, *, backwards: bool):
        """Begins where no operation is done.

        Args:
          side: of the edges along which it goes.
          compute_s: float32 [N, D].
          backwards: whether it goes from the last operation to the first.
        """
        self.path_s = np.zeros(len(compute_s))  # that ends with each operation, where it was
        self.free_s = np.zeros(compute_s.shape[1])  # the last one's of each device
        self._side, self._compute_s, self._backwards = side, compute_s, backwards

    def ready_s(self, begin: int, end: int, placement: np.ndarray) -> np.ndarray:
        """Computes when operations could start on each device, float64 [end - begin, D].

        That is, when it is free of what is before all of them, and their inputs from there have
        arrived.

        Args:
          begin: the first operation, where the sweep is, or backwards where it goes to.
          end: after the last.
          placement: int32 [N].
        """
        own, other, edge = self._side.of(begin, end)
        beyond = (other < begin) | (other >= end)
        own, other, edge = own[beyond], other[beyond], edge[beyond]
        ready_s = np.tile(self.free_s, (end - begin, 1))
        if len(own):
            arrival_s = self.path_s[other, None] + self._side.delay_s[edge, placement[other]]
            first = np.flatnonzero(np.diff(own, prepend=-1))
            op = own[first] - begin
            ready_s[op] = np.maximum(ready_s[op], np.maximum.reduceat(arrival_s, first))
        return ready_s

    def advance(self, begin: int, end: int, placement: np.ndarray) -> None:
        """Goes over the operations that follow next, `begin` to `end`, of a placement int32 [N]."""
        ops = np.arange(begin, end)
        ready_s = self.ready_s(begin, end, placement)[ops - begin, placement[ops]].tolist()
        own, other, edge = self._side.of(begin, end)
        within = (begin <= other) & (other < end)
        own, other, edge = own[within], other[within], edge[within]
        delay_s = self._side.delay_s[edge, placement[other], placement[own]].tolist()
        start = np.searchsorted(own, np.arange(begin, end + 1)).tolist()
        other = (other - begin).tolist()
        compute_s = self._compute_s[ops, placement[ops]].tolist()
        devices = placement[ops].tolist()
        free_s, path_s = self.free_s.tolist(), [0.0] * len(ops)
        for op in reversed(range(len(ops))) if self._backwards else range(len(ops)):
            at_s = max(free_s[devices[op]], ready_s[op])
            for nth in range(start[op], start[op + 1]):
                at_s = max(at_s, path_s[other[nth]] + delay_s[nth])
            free_s[devices[op]] = path_s[op] = at_s + compute_s[op]
        self.path_s[begin:end] = path_s
        self.free_s = np.array(free_s)
