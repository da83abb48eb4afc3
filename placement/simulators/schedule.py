"""A graph unrolled into steps, so that `lax.scan` walks it in an order with few operands a step.

A step looks at `WIDTH` inputs of one operation. An operation with more takes several steps in a
row, whose arrivals accumulate: the work is linear in operations and edges, whatever the fan-in.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag
from placement.types import Array

WIDTH = 2


class Steps(NamedTuple):
    """S steps. Row N of per-operation buffers stands for no input, row N + 1 for no output."""

    op: Array  # int32 [S]
    inputs: Array  # int32 [S, WIDTH]: producing operations, N where there is none
    edges: Array  # int32 [S, WIDTH]: the edges that lead there, E where there is none
    first: Array  # bool [S]: the operation's first step
    last: Array  # bool [S]: its last
    output: Array  # int32 [S]: `op` at the last step, else N + 1


def steps(num_ops: int, senders: np.ndarray, receivers: np.ndarray, order: np.ndarray) -> Steps:
    """Unrolls a graph, on the host.

    Args:
      num_ops: N.
      senders: int32 [E].
      receivers: int32 [E].
      order: int32 [N], topological; or of some operations, and the others have no step.
    """
    chex.assert_rank([senders, receivers, order], 1)
    chex.assert_type([senders, receivers, order], int)
    num_edges = len(senders)
    starts, edges = dag.successors(num_ops, receivers, np.arange(num_edges, dtype=np.int32))
    fan_in = np.diff(starts)[order]
    count = num_steps(fan_in)
    op = np.repeat(order, count).astype(np.int32)
    within = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count)
    slot = within[:, None] * WIDTH + np.arange(WIDTH)
    some = slot < np.repeat(fan_in, count)[:, None]
    padded = np.append(edges, np.int32(num_edges))
    edge = padded[np.where(some, starts[op][:, None] + slot, num_edges)]
    last = within == np.repeat(count, count) - 1
    return Steps(
        op=op,
        inputs=np.append(senders, np.int32(num_ops))[edge],
        edges=edge,
        first=within == 0,
        last=last,
        output=np.where(last, op, np.int32(num_ops + 1)),
    )


def num_steps(fan_in: np.ndarray) -> np.ndarray:
    """Returns how many steps operations with so many inputs take."""
    return np.maximum(1, -(-fan_in // WIDTH))


def pad(of: Steps, num_ops: int, num_edges: int, length: int) -> Steps:
    """Adds steps that do nothing, up to a length.

    Args:
      of: steps.
      num_ops: N of their graph.
      num_edges: E of it.
      length: at least theirs.
    """
    rest = length - len(of.op)

    def with_rest(some: Array, value: int) -> np.ndarray:
        return np.concatenate([some, np.full((rest, *some.shape[1:]), value, some.dtype)])

    return Steps(
        op=with_rest(of.op, num_ops),
        inputs=with_rest(of.inputs, num_ops),
        edges=with_rest(of.edges, num_edges),
        first=with_rest(of.first, True),
        last=with_rest(of.last, False),
        output=with_rest(of.output, num_ops + 1),
    )
