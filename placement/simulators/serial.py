"""The `serial` objective: one inference under HETERO, whose submodels run one after another.

    latency(p) =  sum over n of compute_s[n, p[n]]
                + sum over tensors t, and over the devices d != p[sender(t)] that read t, of
                      transfer_s[t, p[sender(t)], d]
                + sum over edges e between two devices of fusion_loss_s[e]

where transfer_s[t, s, d] = transfer_latency_s[s, d] + bytes(t) * transfer_s_per_byte[s, d]
+ transfer_fixed_s[t]. A tensor crosses to a device once, however many operations read it there.
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from placement.simulators import tensors
from placement.types import Array, CostModel


class Tables(NamedTuple):
    """The arrays that `latency` reads; arguments of jit, because XLA would fold constants."""

    compute_s: Array  # float32 [N, D]
    blocks: tuple[tensors.Block, ...]


def tables(costs: CostModel, blocks: tuple[tensors.Block, ...]) -> Tables:
    """Builds the tables of a problem, on the host; the blocks are those of `tensors.blocks`."""
    return Tables(np.asarray(costs.compute_s, np.float32), blocks)


def latency(t: Tables, placement: Array) -> Array:
    """Computes the latencies float32 [B] of placements int32 [N, B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    num_devices = t.compute_s.shape[1]
    sets = tensors.as_sets(placement, num_devices)
    columns = [t.compute_s[:, d, None] for d in range(num_devices)]
    total_s = tensors.select(columns, sets, is_set=True).sum(axis=0)
    for block in t.blocks:
        reading = tensors.read(block, sets)
        transfers_s = jnp.zeros(reading.source.shape)  # [k, B]
        for d in range(num_devices):
            columns = [block.transfer_s[:, s, d, None] for s in range(num_devices)]
            # Zero if the source is d itself: so is the diagonal of `transfer_s`.
            to_device_s = tensors.select(columns, reading.source, is_set=True)
            transfers_s += jnp.where(reading.readers & (1 << d) != 0, to_device_s, 0.0)
        total_s += (reading.fusion_loss_s + transfers_s).sum(axis=0)
    return total_s
