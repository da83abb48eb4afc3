"""Block moves: one block of classes moves to one device, drawn and applied inside jit.

Moving single operations fails where everything runs on one device: each move adds two transfers.
Only a whole block that overlaps with other work can pay for them (large neighbourhoods: Shaw 1998).

A block is an interval of an order of `placement.search.block_orders`: a group of a parse, drawn
uniformly; the beginning of a ball; any interval of another order. Lengths other than those of
groups are log-uniform. Half of the blocks are confined to the classes on one device. A class that
the target device does not support does not move, and a block ends where the device's memory is
full.

Placements are columns, see `placement.simulators.tensors`. Proposals of one set share an order,
which saves a gather for each of them and a transposition of all.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.search.block_orders import BALL, GROUP, Orders
from placement.types import Array


class BlockMoves(NamedTuple):
    """M neighbours of each of K placements, in Q sets that have an order each."""

    placements: Array  # int32 [C, K, Q, M / Q]
    differs_from_parent: Array  # bool [K, Q, M / Q]
    kinds: Array  # int32 [K, Q]: kind of each set's order


class _Blocks(NamedTuple):
    """Intervals of the sets' orders and their target devices; int32 [K, Q, M / Q] each."""

    begin: Array
    end: Array
    device: Array


def draw_moves(
    key: chex.PRNGKey,
    orders: Orders,
    allowed: Array,
    parents: Array,
    free_bytes: Array | None,
    kind_weights: Array,
    shape: tuple[int, int],
) -> BlockMoves:
    """Draws block moves of K placements.

    Args:
      key: consumed.
      orders: of the problem.
      allowed: bool [C, D].
      parents: int32 [C, K], the placements.
      free_bytes: float32 [D, K], memory left under each parent; None where no memory is limited.
      kind_weights: float32 [4], relative frequency of each kind of order.
      shape: Q and M / Q.
    """
    chex.assert_rank([parents, kind_weights, allowed], [2, 1, 2])
    chex.assert_type([parents, kind_weights, allowed], [int, float, bool])
    (num_classes, num_devices), num_parents = allowed.shape, parents.shape[1]
    kind_key, order_key, block_key, source_key = jax.random.split(key, 4)
    logits = jnp.log(jnp.where(orders.num_orders > 0, kind_weights, 0.0))
    kinds = jax.random.categorical(kind_key, logits, shape=(num_parents, shape[0]))
    # Index of the set's order among those of its kind.
    index = jax.random.uniform(order_key, kinds.shape) * orders.num_orders[kinds]
    index = index.astype(jnp.int32)
    order = orders.first_order[kinds] + index
    blocks = _draw_blocks(block_key, orders, kinds, index, num_devices, shape[1])
    if free_bytes is not None:
        blocks = _shorten_to_fit(orders, order, blocks, free_bytes)
    ranks = orders.ranks[order]
    begin = jnp.maximum(blocks.begin, 0).astype(ranks.dtype)
    end = jnp.minimum(blocks.end, num_classes).astype(ranks.dtype)
    ranks = jnp.moveaxis(ranks, -1, 0)[..., None]
    current = parents[:, :, None, None]
    # A source below D confines the block to the classes on that device.
    source = jax.random.randint(source_key, blocks.device.shape, 0, 2 * num_devices)
    # Without a barrier XLA would compute these again for every class.
    ranks, begin, end, device, source = jax.lax.optimization_barrier(
        (ranks, begin, end, blocks.device, source)
    )
    supports = [allowed[:, d, None, None, None] & (device == d) for d in range(num_devices)]
    moves = (ranks >= begin) & (ranks < end) & ((source >= num_devices) | (current == source))
    moves &= (current != device) & jnp.any(jnp.stack(supports), axis=0)
    return BlockMoves(jnp.where(moves, device, current), moves.any(axis=0), kinds)


def _draw_blocks(
    key: chex.PRNGKey, orders: Orders, kinds: Array, index: Array, num_devices: int, set_size: int
) -> _Blocks:
    """Draws blocks of the orders that have an `index` [K, Q] among those of their kind."""
    length_key, begin_key, device_key = jax.random.split(key, 3)
    shape = (*kinds.shape, set_size)
    kinds, index = kinds[..., None], index[..., None]
    order_length = orders.lengths[orders.first_order[kinds] + index]
    log_length = jax.random.uniform(length_key, shape) * jnp.log(order_length + 1.0)
    length = jnp.exp(log_length).astype(jnp.int32)
    uniform = jax.random.uniform(begin_key, shape)
    # An interval may reach beyond either end, so that every class is as likely to be in a block.
    begin = (uniform * (order_length + length - 1)).astype(jnp.int32) + 1 - length
    begin = jnp.where(kinds == BALL, 0, begin)
    parse = jnp.where(kinds == GROUP, index, 0)
    group = orders.groups[parse, (uniform * orders.num_groups[parse]).astype(jnp.int32)]
    return _Blocks(
        jnp.where(kinds == GROUP, group[..., 0], begin),
        jnp.where(kinds == GROUP, group[..., 1], begin + length),
        jax.random.randint(device_key, shape, 0, num_devices),
    )


def _shorten_to_fit(orders: Orders, order: Array, blocks: _Blocks, free_bytes: Array) -> _Blocks:
    """Ends blocks where their device is full, as if none of their classes were there already.

    Bisects for the end, because the prefix sums of an order's bytes ascend.
    """
    prefix_bytes = jnp.asarray(orders.prefix_bytes)[order]  # [K, Q, C + 1]
    num_classes = prefix_bytes.shape[-1] - 1
    begin = jnp.maximum(blocks.begin, 0)
    parent = jnp.arange(len(order))[:, None, None]
    limit_bytes = free_bytes[blocks.device, parent]
    begin_bytes = jnp.take_along_axis(prefix_bytes, begin, axis=-1)
    low, high = begin, jnp.clip(blocks.end, begin, num_classes)
    for _ in range(num_classes.bit_length()):
        middle = (low + high + 1) // 2
        middle_bytes = jnp.take_along_axis(prefix_bytes, middle, axis=-1)
        fits = middle_bytes - begin_bytes <= limit_bytes
        low, high = jnp.where(fits, middle, low), jnp.where(fits, high, middle - 1)
    return blocks._replace(end=low)
