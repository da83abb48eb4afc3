"""The `max_load` objective of Tarnawski et al. (NeurIPS 2020): time per sample of a pipeline.

Each device works on a separate sample, so the busiest device sets the pace (their section 4):

    load(d) = sum over operations n on d of compute_s[n, d]
            + sum over tensors t made elsewhere that d reads of receive_s[t, d]
            + sum over tensors t made on d that another device reads of send_s[t, d]
    latency = max over d of load(d)

A tensor is sent once, and received once by each device that reads it, through the host's memory:
receive_s and send_s are the times of a transfer between the device and the host. A host itself pays
for compute only. Without a host, the costliest link to another device counts.

The load of a training graph is that of its forward and backward operations together, as in
PipeDream's pipeline, which alternates between the two.
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from placement.graphs import batching
from placement.simulators import tensors
from placement.types import Array, CostModel


class Tables(NamedTuple):
    """The arrays that `latency` reads; the tuples have one entry for each block."""

    compute_s: Array  # float32 [N, D]
    blocks: tuple[tensors.TensorBlock, ...]
    receive_s: tuple[Array, ...]  # float32 [k, D]: zero for hosts
    send_s: tuple[Array, ...]  # float32 [k, D]: zero for hosts


def build_tables(costs: CostModel, blocks: tuple[tensors.TensorBlock, ...]) -> Tables:
    """Builds the tables of a problem, on the host, given `tensors.make_blocks`."""
    accelerator = np.asarray(costs.accelerator)
    links = [compute_link_costs(np.asarray(block.transfer_s), accelerator) for block in blocks]
    return Tables(
        compute_s=np.asarray(costs.compute_s, np.float32),
        blocks=blocks,
        receive_s=tuple(receive_s for receive_s, _ in links),
        send_s=tuple(send_s for _, send_s in links),
    )


def pad_tables(tables: Tables, sizes: batching.Sizes) -> Tables:
    """Pads the tables as `makespan.pad_tables`; sums may be rounded in another way."""
    blocks, rows = tensors.pad_blocks(tables.blocks, sizes.padded_edges)

    def pad_links(link_s: tuple[Array, ...]) -> tuple[Array, ...]:
        no_tensor = np.zeros((1, tables.compute_s.shape[1]), np.float32)
        padded = np.concatenate([*link_s, no_tensor])
        return tuple(padded[block_rows] for block_rows in rows)

    return Tables(
        batching.pad(tables.compute_s, sizes.padded_ops, 0.0),
        blocks,
        pad_links(tables.receive_s),
        pad_links(tables.send_s),
    )


def compute_link_costs(
    transfer_s: np.ndarray, accelerator: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the times in which each device receives and sends k tensors.

    Args:
      transfer_s: float32 [k, D, D]: one transfer between two devices.
      accelerator: int [D], see `CostModel`.

    Returns:
      Two arrays float32 [k, D].
    """
    chex.assert_rank([transfer_s, accelerator], [3, 1])
    chex.assert_type([transfer_s, accelerator], [float, int])
    is_accelerator = accelerator >= 0
    if is_accelerator.all():
        return transfer_s.max(axis=1), transfer_s.max(axis=2)
    host = int(np.argmin(is_accelerator))
    return (
        np.where(is_accelerator, transfer_s[:, host, :], np.float32(0)),
        np.where(is_accelerator, transfer_s[:, :, host], np.float32(0)),
    )


def latency(tables: Tables, placement: Array) -> Array:
    """Computes the seconds per sample, float32 [B], of placements int32 [N, B]."""
    return compute_loads(tables, placement).max(axis=0)


def compute_loads(tables: Tables, placement: Array) -> Array:
    """Computes each device's seconds per sample, float32 [D, B], of placements int32 [N, B]."""
    num_devices = tables.compute_s.shape[1]
    sets = tensors.make_sets(placement, num_devices)
    load_s = [
        jnp.where(sets == 1 << d, tables.compute_s[:, d, None], 0.0).sum(axis=0)
        for d in range(num_devices)
    ]
    for block, receive_s, send_s in zip(
        tables.blocks, tables.receive_s, tables.send_s, strict=True
    ):
        source, readers, _ = tensors.find_devices(block, sets)
        for d in range(num_devices):
            other_readers = readers & ~jnp.asarray(1 << d, readers.dtype)
            received_s = jnp.where(readers != other_readers, receive_s[:, d, None], 0.0)
            sent_s = jnp.where(other_readers != 0, send_s[:, d, None], 0.0)
            load_s[d] += jnp.where(source == 1 << d, sent_s, received_s).sum(axis=0)
    return jnp.stack(load_s)
