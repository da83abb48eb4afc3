"""The `serial` objective: one inference under HETERO, whose submodels run one after another.

    latency(p) =  sum_n compute_s[n, p[n]]
                + sum over tensors t, read by devices d other than s = p[sender(t)], of
                      transfer_latency_s[s, d] + bytes(t) * transfer_s_per_byte[s, d]
                + sum over edges e whose ends are apart of cut_s[e]

A tensor that several operations of one device read crosses to it once. The sum needs no order of
operations, so it is a few gathers and one scatter, batched by `vmap`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from placement.types import Array, CostModel, OpGraph


class SerialTables(NamedTuple):
    """The arrays that `serial` reads: passed to jit as arguments, so that XLA folds no constants.

    K distinct tensors; edges without a reader on the graph do not occur.
    """

    compute_s: Array  # float32 [N, D]
    cut_s: Array  # float32 [E]
    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    tensors: Array  # int32 [E], renumbered 0..K-1
    tensor_senders: Array  # int32 [K]
    transfer_s: Array  # float32 [K, D, D]: one crossing of the tensor


def tables(graph: OpGraph, costs: CostModel) -> SerialTables:
    """Renumbers the tensors and precomputes what one crossing of each costs, on the host."""
    _, first, tensors = np.unique(graph.tensors, return_index=True, return_inverse=True)
    bytes_ = graph.edge_bytes[first].astype(np.float64)[:, None, None]
    transfer_s = np.asarray(costs.transfer_latency_s) + bytes_ * np.asarray(
        costs.transfer_s_per_byte
    )
    return SerialTables(
        compute_s=jnp.asarray(costs.compute_s, jnp.float32),
        cut_s=jnp.asarray(costs.cut_s, jnp.float32),
        senders=jnp.asarray(graph.senders),
        receivers=jnp.asarray(graph.receivers),
        tensors=jnp.asarray(tensors, jnp.int32),
        tensor_senders=jnp.asarray(graph.senders[first]),
        transfer_s=jnp.asarray(transfer_s, jnp.float32),
    )


def latency(t: SerialTables, placement: Array) -> Array:
    """Seconds of one placement, int32 [N] -> float32 []."""
    num_tensors, num_devices = t.transfer_s.shape[:2]
    source, reader = placement[t.senders], placement[t.receivers]
    reads = jnp.zeros((num_tensors, num_devices), bool).at[t.tensors, reader].set(True)
    tensor_source = placement[t.tensor_senders]
    crossing = jnp.take_along_axis(t.transfer_s, tensor_source[:, None, None], axis=1)[:, 0]
    # The diagonal of transfer_s is zero, so reading a tensor where it was made costs nothing.
    compute = jnp.take_along_axis(t.compute_s, placement[:, None], axis=1).sum()
    return (
        compute
        + jnp.where(reads, crossing, 0.0).sum()
        + jnp.where(source != reader, t.cut_s, 0.0).sum()
    )
