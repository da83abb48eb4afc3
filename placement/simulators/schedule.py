"""A graph unrolled into steps, so that `lax.scan` walks it in an order with few operands a step.

A step looks at `WIDTH` inputs of one operation. An operation with more takes several steps in a
row, whose arrivals accumulate: the work is linear in operations and edges, whatever the fan-in.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag
from placement.types import Array, OpGraph

WIDTH = 2


class Steps(NamedTuple):
    """S steps. Row N of per-operation buffers stands for no input, row N + 1 for no output."""

    op: Array  # int32 [S]
    inputs: Array  # int32 [S, WIDTH]: producing operations, N where there is none
    edges: Array  # int32 [S, WIDTH]: the edges that lead there, E where there is none
    first: Array  # bool [S]: the operation's first step
    last: Array  # bool [S]: its last
    output: Array  # int32 [S]: `op` at the last step, else N + 1


def steps(graph: OpGraph, order: np.ndarray) -> Steps:
    """Unrolls a graph in a topological order int32 [N], on the host."""
    chex.assert_rank(order, 1)
    chex.assert_type(order, int)
    starts, edges = dag.successors(
        graph.num_ops, graph.receivers, np.arange(graph.num_edges, dtype=np.int32)
    )
    fan_in = np.diff(starts)[order]
    count = np.maximum(1, -(-fan_in // WIDTH))
    op = np.repeat(order, count).astype(np.int32)
    within = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count)
    slot = within[:, None] * WIDTH + np.arange(WIDTH)
    some = slot < np.repeat(fan_in, count)[:, None]
    padded = np.append(edges, np.int32(graph.num_edges))
    edge = padded[np.where(some, starts[op][:, None] + slot, graph.num_edges)]
    last = within == np.repeat(count, count) - 1
    return Steps(
        op=op,
        inputs=np.append(graph.senders, np.int32(graph.num_ops))[edge],
        edges=edge,
        first=within == 0,
        last=last,
        output=np.where(last, op, np.int32(graph.num_ops + 1)),
    )
