"""The tensors of a graph as the simulators read them, and their devices under a placement.

Batched arrays have the placements in their *last* axis, [N, B]: a gather then copies whole rows,
and the operations after it run over contiguous vectors. With the batch first, the same gathers
would fetch single elements and cost several times as much. For the same reason a set of devices is
an integer, as narrow as possible, with bit d set if it contains device d.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.types import Array, OpGraph

_MAX_PADDED = 256  # readers; every padded graph has blocks for so many, if its edges suffice
_MAX_UNROLLED = 16  # readers of a tensor; unrolled loops over more would take minutes to compile


class TensorBlock(NamedTuple):
    """The k tensors with more than m/2 and at most m readers, for m a power of two.

    With equal numbers of readers, the devices of a tensor are found by gathers alone, without a
    scatter. A tensor with fewer than m readers repeats its last one.
    """

    edge: Array  # int32 [k]: the first edge that carries the tensor
    source: Array  # int32 [k]: the operation that produces it
    readers: Array  # int32 [k, m]: the operations that read it
    fusion_loss_s: Array  # float32 [k, m]: of the reader's edge; zero for a repeated reader
    transfer_s: Array  # float32 [k, D, D]: one transfer; zero on the diagonal


class TensorDevices(NamedTuple):
    """The devices of a block's k tensors under B placements, as sets."""

    source: Array  # [k, B]: the device that holds the tensor, a set of one
    readers: Array  # [k, B]: the devices that read it
    fusion_loss_s: Array  # float32 [k, B]: the sum over the edges between two devices


def make_blocks(
    graph: OpGraph, fusion_loss_s: Array, transfer_s: np.ndarray
) -> tuple[TensorBlock, ...]:
    """Groups all tensors that are read by their number of readers, on the host.

    Args:
      graph: E edges.
      fusion_loss_s: float [E], see `CostModel`.
      transfer_s: float32 [E, D, D], see `Problem.edge_transfer_s`.
    """
    _, first_edge, tensor = np.unique(graph.tensors, return_index=True, return_inverse=True)
    edges = np.argsort(tensor, kind="stable")  # grouped by tensor
    num_readers = np.bincount(tensor, minlength=len(first_edge))
    start = np.cumsum(num_readers) - num_readers
    width = 2 ** np.ceil(np.log2(np.maximum(num_readers, 1))).astype(int)
    fusion_loss_s = np.asarray(fusion_loss_s, np.float32)
    result = []
    for m in np.unique(width):
        members = np.flatnonzero(width == m)
        # Of 3 readers in a block with m = 4: 0, 1, 2, 2.
        reader = np.minimum(np.arange(m), num_readers[members, None] - 1)
        edge = edges[start[members, None] + reader]
        loss_s = np.where(np.arange(m) == reader, fusion_loss_s[edge], np.float32(0))
        edge_of_tensor = first_edge[members]
        result.append(
            TensorBlock(
                edge=edge_of_tensor.astype(np.int32),
                source=graph.senders[edge_of_tensor],
                readers=graph.receivers[edge],
                fusion_loss_s=loss_s,
                transfer_s=transfer_s[edge_of_tensor],
            )
        )
    return tuple(result)


def pad_blocks(
    blocks: tuple[TensorBlock, ...], padded_edges: int
) -> tuple[tuple[TensorBlock, ...], list[np.ndarray]]:
    """Merges and pads blocks, on the host, so that their sizes hardly depend on the graph.

    The new blocks are for 1, 4, 16, ... readers, at least up to 256. Up to 16 readers a block has
    space for as many tensors as a graph with so many edges can have: those of a block for m readers
    have more than m/4. Tensors with more readers are rare: their blocks have space for 4, 16, ...
    tensors. Padding tensors are produced and read by operation 0, so that they never cross.

    Args:
      blocks: of `make_blocks`.
      padded_edges: at least the number of edges.

    Returns:
      The new blocks, and for each of them int [k]: the position of each tensor among those of all
      `blocks`; their number for padding.
    """
    starts = np.cumsum([0, *(len(block.edge) for block in blocks)])
    num_devices = blocks[0].transfer_s.shape[-1] if blocks else 1
    max_readers = max((block.readers.shape[1] for block in blocks), default=1)
    padded, rows = [], []
    m = 1
    while m <= max(_MAX_PADDED, 2 * max_readers) and (size := padded_edges // (m // 4 + 1)):
        if m > _MAX_UNROLLED:
            members = sum(
                len(block.edge) for block in blocks if m // 4 < block.readers.shape[1] <= m
            )
            size = min(size, 4 ** max(1, math.ceil(math.log(max(members, 1), 4))))
        result = TensorBlock(
            edge=np.zeros(size, np.int32),
            source=np.zeros(size, np.int32),
            readers=np.zeros((size, m), np.int32),
            fusion_loss_s=np.zeros((size, m), np.float32),
            transfer_s=np.zeros((size, num_devices, num_devices), np.float32),
        )
        row, begin = np.full(size, starts[-1]), 0
        for block, start in zip(blocks, starts, strict=False):
            num_readers = block.readers.shape[1]
            if not m // 4 < num_readers <= m:
                continue
            here = slice(begin, begin := begin + len(block.edge))
            result.edge[here], result.source[here] = block.edge, block.source
            result.readers[here] = block.readers[:, -1:]
            result.readers[here, :num_readers] = block.readers
            result.fusion_loss_s[here, :num_readers] = block.fusion_loss_s
            result.transfer_s[here] = block.transfer_s
            row[here] = start + np.arange(len(block.edge))
        padded.append(result)
        rows.append(row)
        m *= 4
    return tuple(padded), rows


def make_sets(placement: Array, num_devices: int) -> Array:
    """Returns the device of each operation as a set of one, [N, B], of placements int32 [N, B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    dtype = jnp.uint8 if num_devices <= 8 else jnp.uint32
    return jnp.left_shift(jnp.ones((), dtype), placement.astype(dtype))


def find_devices(block: TensorBlock, sets: Array) -> TensorDevices:
    """Finds the devices of a block's tensors, given the sets [N, B] of `make_sets`."""
    chex.assert_rank(sets, 2)
    chex.assert_type(sets, int)
    source = sets[block.source]

    def add_reader(
        carry: tuple[Array, Array], reader: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        (devices, total_loss_s), (op, loss_s) = carry, reader
        device = sets[op]
        edge_loss_s = jnp.where(device != source, loss_s[:, None], 0.0)
        return (devices | device, total_loss_s + edge_loss_s), None

    carry: tuple[Array, Array] = jnp.zeros_like(source), jnp.zeros(source.shape)
    readers = block.readers.T, block.fusion_loss_s.T  # [m, k] each
    if len(readers[0]) > _MAX_UNROLLED:
        return TensorDevices(source, *jax.lax.scan(add_reader, carry, readers)[0])
    for reader in zip(*readers, strict=True):
        carry, _ = add_reader(carry, reader)
    return TensorDevices(source, *carry)


def select(rows: Sequence[Array] | Array, index: Array, *, is_set: bool = False) -> jax.Array:
    """Returns `rows[index]`, element by element: result[..., b] = rows[index[..., b]][..., b].

    It is a chain of K selects rather than a gather, which would fetch single elements. An infinite
    row has no effect where it is not selected, unlike in a sum of products.

    Args:
      rows: K arrays, or an array [K, ...], that broadcast with the index.
      index: int [..., B], from 0 to K - 1; other values count as 0.
      is_set: whether the index is a set of one, of `make_sets`.
    """
    value = rows[0]
    for k in range(1, len(rows)):
        value = jnp.where(index == (1 << k if is_set else k), rows[k], value)
    return jnp.broadcast_to(value, jnp.broadcast_shapes(value.shape, index.shape))
