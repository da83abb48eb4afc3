"""Padding of graphs to the `jraph.GraphsTuple` that policies read; no other module pads graphs.

Sizes increase in geometric buckets, so that graphs of similar size share one compilation. The masks
are explicit leaves of the graph, because jraph's own padding masks are wrong on unpadded graphs:

    nodes    {'features': float32 [N, F], 'mask': bool [N], 'allowed': bool [N, D]}
    edges    {'mask': bool [E]}

The globals are None, or a `placement.policies.inputs.CostView` for policies that read costs.

Edges lead from producer to reader, sorted by producer, then reader. Two operations have one edge
however many tensors pass between them. Padding edges join the last padding node to itself.
"""

from typing import NamedTuple

import chex
import jraph
import numpy as np

from placement.types import Array

_BUCKET_RATIO = 1.25
_SMALLEST_BUCKET = 16


class Sizes(NamedTuple):
    """The padded sizes of a simulator's tables, and the number of operations without padding."""

    num_ops: int
    padded_ops: int
    padded_edges: int
    padded_steps: int  # see `placement.simulators.list_schedule.Steps`


def bucket(size: int) -> int:
    """Returns the smallest bucket (ratio 1.25 from 16) that holds `size` and a padding item."""
    capacity = _SMALLEST_BUCKET
    while capacity <= size:
        capacity = int(np.ceil(capacity * _BUCKET_RATIO))
    return capacity


def to_graphs_tuple(
    senders: np.ndarray,
    receivers: np.ndarray,
    features: np.ndarray,
    allowed: np.ndarray,
    *,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> jraph.GraphsTuple:
    """Pads a graph to its buckets, or to the given sizes.

    Args:
      senders: int [E], of N nodes.
      receivers: int [E].
      features: float32 [N, F].
      allowed: bool [N, D], whether a device can run an operation.
      num_nodes: padded number of nodes, more than N; None takes the bucket.
      num_edges: padded number of edges, more than there are pairs of neighbours.

    Returns:
      A GraphsTuple of one graph with int32 indices; the module's docstring names its leaves. A
      padding node is allowed everywhere.

    Raises:
      ValueError: a given size has no space for padding.
    """
    num_ops = len(features)
    chex.assert_shape([features, allowed], (num_ops, None))
    chex.assert_type([features, allowed], [float, bool])
    # Sorted by producer, then reader; parallel edges become one.
    ends = np.stack([senders, receivers], axis=1)
    pairs = np.unique(ends, axis=0).astype(np.int32).reshape(-1, 2)
    num_nodes = bucket(num_ops) if num_nodes is None else num_nodes
    num_edges = bucket(len(pairs)) if num_edges is None else num_edges
    if num_nodes <= num_ops or num_edges <= len(pairs):
        raise ValueError(
            f"padding to {num_nodes} nodes and {num_edges} edges leaves no space next to the "
            f"graph's {num_ops} nodes and {len(pairs)} edges; pass at least one more of each"
        )
    nodes = {
        "features": pad(features.astype(np.float32), num_nodes, 0.0),
        "mask": np.arange(num_nodes) < num_ops,
        "allowed": pad(allowed.astype(bool), num_nodes, True),
    }
    return jraph.GraphsTuple(
        nodes=nodes,
        edges={"mask": np.arange(num_edges) < len(pairs)},
        senders=pad(pairs[:, 0], num_edges, num_nodes - 1),
        receivers=pad(pairs[:, 1], num_edges, num_nodes - 1),
        n_node=np.array([num_nodes], np.int32),
        n_edge=np.array([num_edges], np.int32),
        globals=None,
    )


def pad(array: Array, length: int, value: float) -> np.ndarray:
    """Pads an array's leading axis to a length with a value."""
    widths = [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, widths, constant_values=value)
