"""Memory over time: what is alive on each device while a placement runs as `makespan` has it.

A tensor t that operation u makes occupies `CostModel.tensor_bytes`:

    on p[u]                from start(u) until its last reader there has ended, and what u sends to
                           other devices has arrived there
    on each other device   from finish(u), when it is sent, until its last reader there has ended
    that reads it

So activations stay until the backward pass has read them, and gradients until they are added up.
Intervals are half-open: what is released at a time is free for what starts then. The peak of a
device is the most that is alive at once; with what operations always occupy (`memory_bytes`) it
must not exceed the capacity. Sizes are rounded up to whole pages, as allocators do, so that sums
are exact. Neither scratch memory nor fragmentation counts.

Under `max_load` samples follow one another; the peak is that of one sample by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.simulators import makespan, tensors
from placement.types import Array, OpGraph, TensorBytes

PAGE_BYTES = 256
_MOST_PAGES = 2**30  # of all tensors together: sums are int32


class Tables(NamedTuple):
    """What the functions below read, of E edges that carry T tensors."""

    schedule: makespan.Tables
    links: makespan.Links
    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    tensor: Array  # int32 [E]: which of the T tensors
    source: Array  # int32 [T]: the operation that makes it
    made: Array  # int32 [T]: pages where it is made
    copied: Array  # int32 [T]: pages on each other device that reads it
    page_bytes: Array  # float32 []
    blocks: tuple[tensors.Block, ...]
    block_made: tuple[Array, ...]  # int32 [k] of each block
    block_copied: tuple[Array, ...]


def tables(
    graph: OpGraph,
    tensor_bytes: TensorBytes,
    schedule: makespan.Tables,
    links: makespan.Links,
    blocks: tuple[tensors.Block, ...],
) -> Tables:
    """Makes the tables of a problem whose tensors occupy memory, on the host.

    Args:
      graph: N operations.
      tensor_bytes: see `CostModel`.
      schedule: of `makespan.tables`, of the same problem.
      links: of `makespan.make_links`, likewise.
      blocks: of `tensors.blocks`, likewise.
    """
    _, first, number = np.unique(graph.tensors, return_index=True, return_inverse=True)
    made_bytes, copied_bytes = (np.asarray(of, np.float64) for of in tensor_bytes)
    page_bytes = PAGE_BYTES
    while np.maximum(made_bytes, copied_bytes)[first].sum() / page_bytes > _MOST_PAGES:
        page_bytes *= 2
    made, copied = (np.ceil(of / page_bytes).astype(np.int32) for of in (made_bytes, copied_bytes))
    return Tables(
        schedule=schedule,
        links=links,
        senders=graph.senders,
        receivers=graph.receivers,
        tensor=number.astype(np.int32),
        source=graph.senders[first],
        made=made[first],
        copied=copied[first],
        page_bytes=np.asarray(page_bytes, np.float32),
        blocks=blocks,
        block_made=tuple(made[block.edge] for block in blocks),
        block_copied=tuple(copied[block.edge] for block in blocks),
    )


def most_bytes(t: Tables, placement: Array) -> Array:
    """An upper bound of the peaks, float32 [D, B]: as if all tensors were alive at once."""
    num_devices = t.schedule.compute_s.shape[1]
    sets = tensors.as_sets(placement, num_devices)
    pages = [jnp.zeros(placement.shape[1], jnp.int32)] * num_devices
    for block, made, copied in zip(t.blocks, t.block_made, t.block_copied, strict=True):
        reading = tensors.read(block, sets)
        for d in range(num_devices):
            there = jnp.where(reading.readers & (1 << d) != 0, copied[:, None], 0)
            pages[d] += jnp.where(reading.source == 1 << d, made[:, None], there).sum(axis=0)
    return t.page_bytes * jnp.stack(pages)


def peak_bytes(t: Tables, placement: Array, wanted: Array) -> Array:
    """Computes the peaks, float32 [D, B], of placements int32 [N, B] of which they are wanted."""
    chex.assert_rank([placement, wanted], [2, 1])
    chex.assert_type([placement, wanted], [int, bool])
    start_s, finish_s = makespan.times_s(t.schedule, placement)
    num_devices = t.schedule.compute_s.shape[1]

    def one(x: tuple[Array, ...]) -> Array:
        wanted, *times_and_placement = x
        return jax.lax.cond(
            wanted, _pages, lambda *_: jnp.zeros(num_devices, jnp.int32), t, *times_and_placement
        )

    pages = jax.lax.map(one, (wanted, start_s.T, finish_s.T, placement.T))
    return t.page_bytes * pages.T


def _pages(t: Tables, start_s: Array, finish_s: Array, placement: Array) -> Array:
    """The peaks int32 [D] of one placement int32 [N]."""
    num_devices, num_ops = t.schedule.compute_s.shape[1], len(placement)
    source, reader = placement[t.senders], placement[t.receivers]
    kind = jnp.asarray(t.links.kind)
    delay_s = jnp.asarray(t.links.delay_s)[jnp.arange(len(source)), kind[source], kind[reader]]
    sent_s = jnp.where(source == reader, 0.0, delay_s)
    arrived_s = finish_s + jnp.zeros(num_ops).at[t.senders].max(sent_s)
    started, finished, arrived = _ranks(start_s, finish_s, arrived_s)

    # When the last reader of each tensor on each device ends; -1 where there is none.
    last = jnp.full((len(t.source), num_devices), -1)
    last = last.at[t.tensor, reader].max(finished[t.receivers])
    at = placement[t.source]
    here = at[:, None] == jnp.arange(num_devices)
    last = jnp.where(here, jnp.maximum(last, arrived[t.source][:, None]), last)
    begin = jnp.where(here, started[t.source][:, None], finished[t.source][:, None])
    pages = jnp.where(here, t.made[:, None], t.copied[:, None])
    pages = jnp.where(last < 0, 0, pages)

    device = jnp.arange(num_devices)
    change = jnp.zeros((num_devices, 3 * num_ops), jnp.int32)
    change = change.at[device, begin].add(pages).at[device, jnp.maximum(last, 0)].add(-pages)
    return jnp.cumsum(change, axis=1).max(axis=1)


def _ranks(*times_s: Array) -> Sequence[Array]:
    """Numbers times, float32 [N] each, in their order; equal ones have the same number."""
    # As integers: floats that are not negative sort alike, and several times as slowly.
    keys = jax.lax.bitcast_convert_type(jnp.concatenate(times_s), jnp.int32)
    return jnp.split(jnp.searchsorted(jnp.sort(keys), keys), len(times_s))
