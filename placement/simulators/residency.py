"""Memory over time: the tensors alive on each device while a placement runs under `makespan`.

A tensor t that operation u produces occupies `CostModel.tensor_bytes`:

    on p[u]                from start(u) until its last reader there has finished, and until its
                           own transfers to other devices have arrived
    on each other device   from finish(u), when it is sent, until its last reader there has
    that reads it          finished

So activations stay until the backward pass has read them, and gradients until they are added up.
Intervals are half-open: memory that is released at a time is free for what starts then. The peak of
a device is the largest total that is alive at once. Together with the bytes that operations always
occupy (`memory_bytes`) it must not exceed the capacity. Sizes are rounded up to whole pages, as
allocators do, so that sums are exact integers. Scratch memory and fragmentation do not count.

Under `max_load`, which runs samples one after another, the peak is that of one sample by itself.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.simulators import tensors
from placement.types import Array, OpGraph, TensorBytes

PAGE_BYTES = 256
_MAX_PAGES = 2**30  # of all tensors together: sums are int32


class Tables(NamedTuple):
    """The arrays that the functions below read, for E edges that carry T tensors."""

    kind: Array  # int8 [D]: as in `makespan.Links`
    delay_s: Array  # float32 [E, M, M]: as in `makespan.Links`
    receivers: Array  # int32 [E]
    tensor: Array  # int32 [E]: the tensor that an edge carries, below T
    source: Array  # int32 [T]: the operation that produces each tensor
    source_pages: Array  # int32 [T]: pages on the device that produces the tensor
    copy_pages: Array  # int32 [T]: pages on each other device that reads it
    page_bytes: Array  # float32 []
    blocks: tuple[tensors.TensorBlock, ...]
    block_source_pages: tuple[Array, ...]  # int32 [k] for each block
    block_copy_pages: tuple[Array, ...]  # int32 [k] for each block


def build_tables(
    graph: OpGraph,
    tensor_bytes: TensorBytes,
    kind: np.ndarray,
    delay_s: np.ndarray,
    blocks: tuple[tensors.TensorBlock, ...],
) -> Tables:
    """Builds the tables of a problem whose tensors occupy memory, on the host.

    Args:
      graph: N operations.
      tensor_bytes: see `CostModel`.
      kind: int8 [D], as in `makespan.Links`.
      delay_s: float32 [E, M, M], as in `makespan.Links`.
      blocks: the blocks of the same problem, of `tensors.make_blocks`.
    """
    _, first_edge, tensor = np.unique(graph.tensors, return_index=True, return_inverse=True)
    source_bytes, copy_bytes = (np.asarray(b, np.float64) for b in tensor_bytes)
    page_bytes = PAGE_BYTES
    while np.maximum(source_bytes, copy_bytes)[first_edge].sum() / page_bytes > _MAX_PAGES:
        page_bytes *= 2
    source_pages, copy_pages = (
        np.ceil(b / page_bytes).astype(np.int32) for b in (source_bytes, copy_bytes)
    )
    return Tables(
        kind=kind,
        delay_s=delay_s,
        receivers=graph.receivers,
        tensor=tensor.astype(np.int32),
        source=graph.senders[first_edge],
        source_pages=source_pages[first_edge],
        copy_pages=copy_pages[first_edge],
        page_bytes=np.asarray(page_bytes, np.float32),
        blocks=blocks,
        block_source_pages=tuple(source_pages[block.edge] for block in blocks),
        block_copy_pages=tuple(copy_pages[block.edge] for block in blocks),
    )


def bound_peak_bytes(tables: Tables, placement: Array) -> Array:
    """Computes an upper bound of the peaks float32 [D, B], as if all tensors were alive at once."""
    num_devices = len(tables.kind)
    sets = tensors.make_sets(placement, num_devices)
    devices = jnp.left_shift(jnp.ones((), sets.dtype), jnp.arange(num_devices, dtype=sets.dtype))
    pages = jnp.zeros((num_devices, placement.shape[1]), jnp.int32)
    for block, source_pages, copy_pages in zip(
        tables.blocks, tables.block_source_pages, tables.block_copy_pages, strict=True
    ):
        block_devices = tensors.find_devices(block, sets)

        def sum_pages(device: Array, block_devices=block_devices, sizes=(source_pages, copy_pages)):
            source_pages, copy_pages = sizes
            copied_pages = jnp.where(block_devices.readers & device != 0, copy_pages[:, None], 0)
            is_source = block_devices.source == device
            return jnp.where(is_source, source_pages[:, None], copied_pages).sum(axis=0)

        pages += jax.lax.map(sum_pages, devices)  # compiled once for all devices
    return tables.page_bytes * pages


def compute_peak_bytes(
    tables: Tables, placement: Array, start_s: Array, finish_s: Array, is_needed: Array
) -> Array:
    """Computes the peaks, float32 [D, B].

    Args:
      tables: the tables.
      placement: int32 [N, B].
      start_s: float32 [N, B], of `makespan.compute_times`.
      finish_s: float32 [N, B], likewise.
      is_needed: bool [B]: the placements whose peaks are computed; those of the others are zero.
    """
    chex.assert_rank([placement, is_needed], [2, 1])
    chex.assert_type([placement, is_needed], [int, bool])
    no_pages = jnp.zeros(len(tables.kind), jnp.int32)

    def compute_peak(xs: tuple[Array, ...]) -> Array:
        is_needed, *schedule_and_placement = xs
        return jax.lax.cond(
            is_needed, _peak_pages, lambda *_: no_pages, tables, *schedule_and_placement
        )

    pages = jax.lax.map(compute_peak, (is_needed, start_s.T, finish_s.T, placement.T))
    return tables.page_bytes * pages.T


def compute_serial_peak_bytes(tables: Tables, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """Computes the peak on the host where one device runs all operations, given float [N] each."""
    chex.assert_equal_shape([start_s, finish_s])
    chex.assert_type([start_s, finish_s], float)
    _, ranks = np.unique(np.concatenate([start_s, finish_s]), return_inverse=True)
    started, finished = np.split(ranks, 2)
    last_use = finished[tables.source]
    np.maximum.at(last_use, tables.tensor, finished[tables.receivers])
    change = np.bincount(started[tables.source], tables.source_pages, len(ranks))
    change -= np.bincount(last_use, tables.source_pages, len(ranks))
    return float(tables.page_bytes) * float(change.cumsum().max())


def _peak_pages(tables: Tables, start_s: Array, finish_s: Array, placement: Array) -> Array:
    """Computes the peaks int32 [D] of one placement int32 [N], given its schedule."""
    num_devices, num_ops = len(tables.kind), len(placement)
    num_tensors = len(tables.source)
    source, reader = placement[tables.source[tables.tensor]], placement[tables.receivers]
    kind = jnp.asarray(tables.kind)
    delay_s = jnp.asarray(tables.delay_s)[jnp.arange(len(source)), kind[source], kind[reader]]
    delay_s = jnp.where(source == reader, 0.0, delay_s)
    transfer_s = jnp.zeros(num_tensors).at[tables.tensor].max(delay_s)
    arrived_s = finish_s[tables.source] + transfer_s
    # Times become their ranks among all times, equal ones the same: below 2 N + T.
    # As integers, because floats that are not negative sort alike, but several times as slowly.
    keys = jax.lax.bitcast_convert_type(jnp.concatenate([start_s, finish_s, arrived_s]), jnp.int32)
    ranks = jnp.searchsorted(jnp.sort(keys), keys)
    started, finished, arrived = jnp.split(ranks, [num_ops, 2 * num_ops])

    # The last use of each tensor on each device [T, D]: when its last reader there has finished;
    # -1 on devices without a reader.
    last_use = jnp.full((num_tensors, num_devices), -1)
    last_use = last_use.at[tables.tensor, reader].max(finished[tables.receivers])
    is_source = placement[tables.source][:, None] == jnp.arange(num_devices)
    last_use = jnp.where(is_source, jnp.maximum(last_use, arrived[:, None]), last_use)
    begin = jnp.where(is_source, started[tables.source][:, None], finished[tables.source][:, None])
    pages = jnp.where(is_source, tables.source_pages[:, None], tables.copy_pages[:, None])
    pages = jnp.where(last_use < 0, 0, pages)

    device = jnp.arange(num_devices)
    change = jnp.zeros((len(keys), num_devices), jnp.int32)
    change = change.at[begin, device].add(pages)
    change = change.at[jnp.maximum(last_use, 0), device].add(-pages)

    def add_change(carry: Any, change: Array) -> tuple[Any, None]:
        total, peak = carry
        total = total + change
        return (total, jnp.maximum(peak, total)), None

    # A scan, because XLA's cumulative sum on a CPU takes many times as long.
    return jax.lax.scan(add_change, (jnp.zeros(num_devices, jnp.int32),) * 2, change)[0][1]
