"""The tensors of a graph as the simulators read them, and who reads them under a placement.

Batched arrays have the placements in their *last* axis, [N, B]: a gather then copies whole rows,
and what follows runs over contiguous vectors. With the batch first, the same gathers fetch single
elements and cost several times as much. For the same reason sets of devices are bits of the
narrowest integers that hold them.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.types import Array, CostModel, OpGraph

_UNROLLED = 16  # readers of a tensor: of more, the loop stays one, or compiling takes minutes
_Carry = tuple[jax.Array, jax.Array]  # readers and `fusion_loss_s` of a `Readers` so far


class Block(NamedTuple):
    """k tensors with more than m/2 and at most m readers, m a power of two.

    So finding who reads what takes gathers alone and no scatter. A tensor with fewer than m readers
    repeats its last one.
    """

    edge: Array  # int32 [k]: the first that carries the tensor
    source: Array  # int32 [k]: the operation that produces it
    readers: Array  # int32 [k, m]
    fusion_loss_s: Array  # float32 [k, m]: of the reader's edge; zero where it is repeated
    transfer_s: Array  # float32 [k, D, D]: one transfer; zero on the diagonal


class Readers(NamedTuple):
    """A block under B placements; sets of devices have bit d for device d."""

    source: Array  # [k, B]: the device that holds the tensor, as a set
    readers: Array  # [k, B]: the devices that read it, as a set
    fusion_loss_s: Array  # float32 [k, B]: of the edges whose ends are apart, summed


def blocks(graph: OpGraph, fusion_loss_s: Array, transfer_s: np.ndarray) -> tuple[Block, ...]:
    """Makes blocks of all tensors that are read, on the host.

    Args:
      graph: E edges.
      fusion_loss_s: float [E], see `CostModel`.
      transfer_s: float32 [E, D, D], of `edge_transfer_s`.
    """
    _, first, number = np.unique(graph.tensors, return_index=True, return_inverse=True)
    edges = np.argsort(number, kind="stable")  # grouped by tensor
    count = np.bincount(number, minlength=len(first))
    start = np.cumsum(count) - count
    width = 2 ** np.ceil(np.log2(np.maximum(count, 1))).astype(int)
    fusion_loss_s = np.asarray(fusion_loss_s, np.float32)
    made = []
    for m in np.unique(width):
        chosen = np.flatnonzero(width == m)
        rank = np.minimum(np.arange(m), count[chosen, None] - 1)
        edge = edges[start[chosen, None] + rank]
        made.append(
            Block(
                edge=first[chosen].astype(np.int32),
                source=graph.senders[first[chosen]],
                readers=graph.receivers[edge],
                fusion_loss_s=np.where(np.arange(m) == rank, fusion_loss_s[edge], np.float32(0)),
                transfer_s=transfer_s[first[chosen]],
            )
        )
    return tuple(made)


def edge_transfer_s(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Computes one transfer of each edge's tensor between two devices, float32 [E, D, D]."""
    latency_s = np.asarray(costs.transfer_latency_s)
    s_per_byte = np.asarray(costs.transfer_s_per_byte)
    num_bytes = graph.edge_bytes.astype(np.float64)
    fixed_s = np.asarray(costs.transfer_fixed_s, np.float64)
    transfer_s = np.zeros((graph.num_edges, *latency_s.shape), np.float32)
    for pair in _apart(len(latency_s)):
        transfer_s[:, *pair] = fixed_s + (latency_s[pair] + num_bytes * s_per_byte[pair])
    return transfer_s


def edge_delay_s(transfer_s: np.ndarray, fusion_loss_s: Array) -> np.ndarray:
    """Computes the time from an edge's sender's end to arrival, float32 [E, D, D].

    Args:
      transfer_s: float32 [E, D, D], of `edge_transfer_s`.
      fusion_loss_s: float [E], see `CostModel`.
    """
    delay_s = transfer_s.copy()
    for pair in _apart(delay_s.shape[-1]):
        delay_s[:, *pair] += np.asarray(fusion_loss_s, np.float32)
    return delay_s


def interchangeable(num_devices: int, is_symmetric: Callable[[np.ndarray], bool]) -> np.ndarray:
    """Returns int64 [D]: for each device the first one it can change places with.

    Args:
      num_devices: D.
      is_symmetric: whether nothing changes under a permutation of the devices, int [D].
    """
    first = np.arange(num_devices)
    for device in range(num_devices):
        for other in np.unique(first[:device]).tolist():
            swap = np.arange(num_devices)
            swap[[other, device]] = device, other
            if is_symmetric(swap):
                first[device] = other
                break
    return first


def as_sets(placement: Array, num_devices: int) -> Array:
    """Makes a set of one of each operation's device, of placements int32 [N, B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    dtype = jnp.uint8 if num_devices <= 8 else jnp.uint32
    return jnp.left_shift(jnp.ones((), dtype), placement.astype(dtype))


def read(block: Block, sets: Array) -> Readers:
    """Finds where a block's tensors are and who reads them, of sets [N, B] from `as_sets`."""
    chex.assert_rank(sets, 2)
    chex.assert_type(sets, int)
    source = sets[block.source]

    def add(carry: _Carry, of_rank: tuple[Array, Array]) -> tuple[_Carry, None]:
        (readers, fusion_loss_s), (reader, edge_loss_s) = carry, of_rank
        device = sets[reader]
        return (
            readers | device,
            fusion_loss_s + jnp.where(device != source, edge_loss_s[:, None], 0.0),
        ), None

    carry = jnp.zeros_like(source), jnp.zeros(source.shape)
    ranks = block.readers.T, block.fusion_loss_s.T
    if len(ranks[0]) > _UNROLLED:
        return Readers(source, *jax.lax.scan(add, carry, ranks)[0])
    for rank in zip(*ranks, strict=True):
        carry, _ = add(carry, rank)
    return Readers(source, *carry)


def pick(table: Array, is_device: Callable[[int], Array]) -> Array:
    """Picks of a table float32 [N, D] the entry [n, d] where `is_device(d)`, bool [N, B], holds.

    Selects, not a gather: they vectorise, and an infinite cost stays where it is.
    """
    chex.assert_rank(table, 2)
    chex.assert_type(table, float)
    value = jnp.broadcast_to(table[:, :1], is_device(0).shape)
    for device in range(1, table.shape[1]):
        value = jnp.where(is_device(device), table[:, device, None], value)
    return value


def _apart(num_devices: int) -> Iterator[tuple[int, int]]:
    """Yields all pairs of different devices, in each of which NumPy runs over many edges."""
    return itertools.permutations(range(num_devices), 2)
