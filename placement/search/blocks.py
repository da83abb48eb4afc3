"""Block moves: a block of operations goes to one device, drawn and applied inside jit.

Single operations do not do: where everything runs on one device, moving one costs two transfers,
and only a whole block that overlaps with the rest pays for them (large neighbourhoods: Shaw 1998).
A block is an interval of an order of `placement.search.orders`: a group of a parse, drawn
uniformly; of a ball its beginning, and of other orders any interval, of log-uniform length. Half
of the blocks leave out what is on other devices than one. Classes that the device does not support
stay, and where memories have limits a block ends where its device's is full.

Batches have the placements in their last axis, see `placement.simulators.tensors`. Several children
share an order, which saves a gather for each and a transposition of them all.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.search.orders import BALL, GROUP, Orders
from placement.types import Array


class Children(NamedTuple):
    """M children of each of K parents, in Q sets with an order each."""

    placement: Array  # int32 [C, K, Q, M / Q]
    changed: Array  # bool [K, Q, M / Q]: whether it differs from its parent
    kind: Array  # int32 [K, Q]: of the order


class Blocks(NamedTuple):
    """Intervals of orders [K, Q], and devices; int32 [K, Q, M / Q]."""

    begin: Array
    end: Array
    device: Array


def draw(
    key: chex.PRNGKey,
    orders: Orders,
    allowed: Array,
    parents: Array,
    room_bytes: Array | None,
    share: Array,
    shape: tuple[int, int],
) -> Children:
    """Draws children of parents int32 [C, K].

    Args:
      key: consumed.
      orders: of the problem.
      allowed: bool [C, D].
      parents: placements of the classes.
      room_bytes: float32 [D, K], of the devices under each parent; None where all is unlimited.
      share: float32 [4], how often an order of each kind is drawn; their sum may be anything.
      shape: Q and M / Q.
    """
    chex.assert_rank([parents, share, allowed], [2, 1, 2])
    chex.assert_type([parents, share, allowed], [int, float, bool])
    (size, num_devices), num_parents = allowed.shape, parents.shape[1]
    for_kind, for_order, for_blocks, for_source = jax.random.split(key, 4)
    kind = jax.random.categorical(
        for_kind, jnp.log(jnp.where(orders.number > 0, share, 0.0)), shape=(num_parents, shape[0])
    )
    nth = (jax.random.uniform(for_order, kind.shape) * orders.number[kind]).astype(jnp.int32)
    order = orders.first[kind] + nth
    blocks = _intervals(for_blocks, orders, kind, nth, num_devices, shape[1])
    if room_bytes is not None:
        blocks = _fitted(orders, order, blocks, room_bytes)
    rank = orders.rank[order]
    begin = jnp.maximum(blocks.begin, 0).astype(rank.dtype)
    end = jnp.minimum(blocks.end, size).astype(rank.dtype)
    rank = jnp.moveaxis(rank, -1, 0)[..., None]
    now = parents[:, :, None, None]
    source = jax.random.randint(for_source, blocks.device.shape, 0, 2 * num_devices)
    # Else XLA computes them anew for every class.
    rank, begin, end, device, source = jax.lax.optimization_barrier(
        (rank, begin, end, blocks.device, source)
    )
    able = [allowed[:, d, None, None, None] & (device == d) for d in range(num_devices)]
    moves = (rank >= begin) & (rank < end) & ((source >= num_devices) | (now == source))
    moves &= (now != device) & jnp.any(jnp.stack(able), axis=0)
    return Children(jnp.where(moves, device, now), moves.any(axis=0), kind)


def _intervals(
    key: chex.PRNGKey, orders: Orders, kind: Array, nth: Array, num_devices: int, count: int
) -> Blocks:
    """`count` intervals of each order, the `nth` of its kind [K, Q]."""
    for_length, for_begin, for_device = jax.random.split(key, 3)
    shape = (*kind.shape, count)
    kind, nth = kind[..., None], nth[..., None]
    size = orders.length[orders.first[kind] + nth]
    length = jnp.exp(jax.random.uniform(for_length, shape) * jnp.log(size + 1.0)).astype(jnp.int32)
    uniform = jax.random.uniform(for_begin, shape)
    begin = (uniform * (size + length - 1)).astype(jnp.int32) + 1 - length
    begin = jnp.where(kind == BALL, 0, begin)
    parse = jnp.where(kind == GROUP, nth, 0)
    group = orders.groups[parse, (uniform * orders.num_groups[parse]).astype(jnp.int32)]
    begin, end = (
        jnp.where(kind == GROUP, group[..., 0], begin),
        jnp.where(kind == GROUP, group[..., 1], begin + length),
    )
    return Blocks(begin, end, jax.random.randint(for_device, shape, 0, num_devices))


def _fitted(orders: Orders, order: Array, blocks: Blocks, room_bytes: Array) -> Blocks:
    """Blocks that end where their device is full, as if none of their classes were there already.

    The end is found by halving: `before_bytes` of an order ascends.
    """
    before = jnp.asarray(orders.before_bytes)[order]  # [K, Q, C + 1]
    size = before.shape[-1] - 1
    begin = jnp.maximum(blocks.begin, 0)
    parent = jnp.arange(len(order))[:, None, None]
    room = room_bytes[blocks.device, parent]
    least = jnp.take_along_axis(before, begin, axis=-1)
    low, high = begin, jnp.clip(blocks.end, begin, size)
    for _ in range(size.bit_length()):
        middle = (low + high + 1) // 2
        fits = jnp.take_along_axis(before, middle, axis=-1) - least <= room
        low, high = jnp.where(fits, middle, low), jnp.where(fits, high, middle - 1)
    return blocks._replace(end=low)
