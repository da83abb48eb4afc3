"""The `serial` objective: one inference under HETERO, whose submodels run one after another.

    latency(p) =  sum over n of compute_s[n, p[n]]
                + sum over tensors t, and over the devices d != p[sender(t)] that read t, of
                      transfer_s[t, p[sender(t)], d]
                + sum over edges e between two devices of fusion_loss_s[e]

where transfer_s[t, s, d] = transfer_latency_s[s, d] + bytes(t) * transfer_s_per_byte[s, d]
+ transfer_fixed_s[t]. A tensor crosses to a device once, however many operations read it there.
"""

from typing import NamedTuple

import jax.numpy as jnp

from placement.graphs import batching
from placement.simulators import tensors
from placement.types import Array


class Tables(NamedTuple):
    """The arrays that `latency` reads; arguments of jit, because XLA would fold constants."""

    compute_s: Array  # float32 [N, D]
    blocks: tuple[tensors.TensorBlock, ...]


def pad_tables(tables: Tables, sizes: batching.Sizes) -> Tables:
    """Pads the tables as `makespan.pad_tables`; sums may be rounded in another way."""
    return Tables(
        batching.pad(tables.compute_s, sizes.padded_ops, 0.0),
        tensors.pad_blocks(tables.blocks, sizes.padded_edges)[0],
    )


def latency(tables: Tables, placement: Array) -> Array:
    """Computes the latencies float32 [B] of placements int32 [N, B]."""
    num_devices = tables.compute_s.shape[1]
    sets = tensors.make_sets(placement, num_devices)
    columns = [tables.compute_s[:, d, None] for d in range(num_devices)]
    total_s = tensors.select(columns, sets, is_set=True).sum(axis=0)
    for block in tables.blocks:
        block_devices = tensors.find_devices(block, sets)
        transfers_s = jnp.zeros(block_devices.source.shape)  # [k, B]
        for d in range(num_devices):
            columns = [block.transfer_s[:, s, d, None] for s in range(num_devices)]
            # Zero if the source is d itself: so is the diagonal of `transfer_s`.
            to_device_s = tensors.select(columns, block_devices.source, is_set=True)
            transfers_s += jnp.where(block_devices.readers & (1 << d) != 0, to_device_s, 0.0)
        total_s += (block_devices.fusion_loss_s + transfers_s).sum(axis=0)
    return total_s
