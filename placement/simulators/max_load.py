"""The `max_load` objective of Tarnawski et al. (NeurIPS 2020): time per sample of a pipeline.

Each device works on a sample of its own, so that the busiest sets the pace (their section 4):

    load(d) = sum of compute_s[n, d] over operations n on d
            + sum of in_s[t, d]  over tensors t made elsewhere that d reads
            + sum of out_s[t, d] over tensors t made on d that another device reads
    latency = max_d load(d)

A tensor is sent once and received once by each device that reads it, through the host's memory:
in_s and out_s are what it costs to cross between the device and the host. A host itself pays
compute alone. Where there is no host, the costliest link to another device counts.

A training graph's load is that of its forward and backward operations together, as in a pipeline
that alternates between the two (PipeDream's).
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from placement.simulators import tensors
from placement.types import Array, CostModel


class Tables(NamedTuple):
    """What `latency` reads; a tuple has an entry a block."""

    compute_s: Array  # float32 [N, D]
    blocks: tuple[tensors.Block, ...]
    in_s: tuple[Array, ...]  # float32 [k, D]: zero for hosts
    out_s: tuple[Array, ...]  # float32 [k, D]


def tables(costs: CostModel, blocks: tuple[tensors.Block, ...]) -> Tables:
    """Makes the tables of a problem, on the host; the blocks are those of `tensors.blocks`."""
    links = [link_s(np.asarray(b.transfer_s), np.asarray(costs.accelerator)) for b in blocks]
    return Tables(
        compute_s=np.asarray(costs.compute_s, np.float32),
        blocks=blocks,
        in_s=tuple(in_s for in_s, _ in links),
        out_s=tuple(out_s for _, out_s in links),
    )


def link_s(transfer_s: np.ndarray, accelerator: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what receiving and sending costs each device, [k, D] each, of [k, D, D]."""
    chex.assert_rank([transfer_s, accelerator], [3, 1])
    chex.assert_type([transfer_s, accelerator], [float, int])
    pays = accelerator >= 0
    if pays.all():
        return transfer_s.max(axis=1), transfer_s.max(axis=2)
    host = int(np.argmin(pays))
    return (
        np.where(pays, transfer_s[:, host, :], np.float32(0)),
        np.where(pays, transfer_s[:, :, host], np.float32(0)),
    )


def latency(t: Tables, placement: Array) -> Array:
    """Computes seconds a sample of placements int32 [N, B] -> float32 [B]."""
    return loads(t, placement).max(axis=0)


def loads(t: Tables, placement: Array) -> Array:
    """Computes seconds a sample of each device, float32 [D, B], of placements int32 [N, B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    num_devices = t.compute_s.shape[1]
    sets = tensors.as_sets(placement, num_devices)
    load_s = [
        jnp.where(sets == 1 << d, t.compute_s[:, d, None], 0.0).sum(axis=0)
        for d in range(num_devices)
    ]
    for block, in_s, out_s in zip(t.blocks, t.in_s, t.out_s, strict=True):
        reading = tensors.read(block, sets)
        for d in range(num_devices):
            load_s[d] += _traffic_s(in_s[:, d, None], out_s[:, d, None], reading, 1 << d)
    return jnp.stack(load_s)


def _traffic_s(in_s: Array, out_s: Array, reading: tensors.Readers, own: int) -> Array:
    """Seconds [B] that the device of the set `own` receives and sends a block's tensors."""
    here = reading.source == own
    others = reading.readers & ~jnp.asarray(own, reading.readers.dtype)
    received_s = jnp.where(reading.readers != others, in_s, 0.0)
    sent_s = jnp.where(others != 0, out_s, 0.0)
    return jnp.where(here, sent_s, received_s).sum(axis=0)
