"""The `serial` objective: one inference under HETERO, whose submodels run one after another.

    latency(p) =  sum_n compute_s[n, p[n]]
                + sum over tensors t, read by devices d other than s = p[sender(t)], of
                      transfer_s[t, s, d]
                + sum over edges e whose ends are apart of fusion_loss_s[e]

where transfer_s[t, s, d] = transfer_latency_s[s, d] + bytes(t) * transfer_s_per_byte[s, d]
+ transfer_fixed_s[t]. A tensor that several operations of one device read crosses to it once.
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from placement.simulators import tensors
from placement.types import Array, CostModel


class Tables(NamedTuple):
    """What `latency` reads: passed to jit as arguments, so that XLA folds no constants."""

    compute_s: Array  # float32 [N, D]
    blocks: tuple[tensors.Block, ...]


def tables(costs: CostModel, blocks: tuple[tensors.Block, ...]) -> Tables:
    """Makes the tables of a problem, on the host; the blocks are those of `tensors.blocks`."""
    return Tables(np.asarray(costs.compute_s, np.float32), blocks)


def latency(t: Tables, placement: Array) -> Array:
    """Computes seconds of placements int32 [N, B] -> float32 [B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    sets = tensors.as_sets(placement, t.compute_s.shape[1])
    total_s = tensors.pick(t.compute_s, lambda d: sets == 1 << d).sum(axis=0)
    for block in t.blocks:
        reading = tensors.read(block, sets)
        total_s += (reading.fusion_loss_s + _transfers_s(block.transfer_s, reading)).sum(axis=0)
    return total_s


def _transfers_s(transfer_s: Array, reading: tensors.Readers) -> Array:
    """Sums what a block's transfers cost, float32 [k, B]."""
    total_s = jnp.zeros(reading.source.shape)
    for device in range(transfer_s.shape[-1]):  # the diagonal of transfer_s is zero
        to_device_s = tensors.pick(transfer_s[:, :, device], lambda s: reading.source == 1 << s)
        total_s += jnp.where(reading.readers & (1 << device) != 0, to_device_s, 0.0)
    return total_s
