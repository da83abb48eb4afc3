"""Block moves: a block of operations goes to one device, drawn and applied inside jit.

Single operations do not do: where everything runs on one device, moving one costs two transfers,
and only a whole block that overlaps with the rest pays for them. A block is the front of, or a
segment of, one of a few orders of the classes of co-located operations, which the host computes
once:

- the simulator's priority order and a topological order: a segment of time;
- of the classes whose names are alike but for one number, or are of one folder, such as a layer of
  a network or one operation of all its steps: a segment of their time;
- breadth-first orders from a seed, against the edges, along them or both ways: a ball, the seed's
  ancestors or its descendants, nearest first.

So a block is a comparison of ranks, one a class, with two numbers. Half of the balls start at an
end of an edge between devices and go to the other end's device, so that borders move. Half of all
blocks leave out what is on other devices than one. Lengths are log-uniform. Classes that a device
does not support stay (large neighbourhoods: Shaw 1998).
"""

import re
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag
from placement.simulators import ranks
from placement.solvers import base
from placement.types import Array, Problem

SEEDS = 512  # balls have so many centres at most
ALIKE = 512  # sets of classes with names alike at most
_KINDS = 3  # of balls


class Orders(NamedTuple):
    """What blocks are drawn from: C classes, E edges between them, S seeds of balls."""

    # int16 or int32 [L + 3 S, C]: the rank of each class in linear orders, of all classes or of some,
    # then in balls, by kind and by seed; C where it has none.
    ranks: Array
    count: Array  # int32 [L]: how many have a rank
    ball: Array  # int32 [C]: the seed that is nearest
    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    allowed: Array  # bool [C, D]


def make_orders(problem: Problem, classes: base.Classes, seed: int) -> Orders:
    """Computes the orders of a problem, on the host."""
    graph, size = problem.graph, len(classes.compute_s)
    senders, receivers = dag.quotient_edges(graph.senders, graph.receivers, classes.number)
    priority, topological = (
        np.array(list(dict.fromkeys(classes.number[order].tolist())))
        for order in (ranks.priority_order(graph, problem.costs), dag.topological_order(graph))
    )
    first = np.unique(classes.number, return_index=True)[1]
    alike = _alike([graph.op_names[op] for op in first], priority)
    segments = [_rank(order, size) for order in (priority, topological, *alike)]
    seeds = np.random.default_rng(seed).permutation(size)[:SEEDS]
    along = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), (size, size))
    balls = [
        _rank(_ball(matrix, centre, directed), size)
        for matrix, directed in ((along, False), (along, True), (along.T.tocsr(), True))
        for centre in seeds.tolist()
    ]
    nearest = csgraph.dijkstra(
        along,
        directed=False,
        indices=seeds,
        unweighted=True,
        min_only=True,
        return_predecessors=True,
    )[2]
    number = np.zeros(size, np.int32)
    number[seeds] = np.arange(len(seeds))
    narrow = np.int16 if size < np.iinfo(np.int16).max else np.int32
    return Orders(
        ranks=np.stack([*segments, *balls]).astype(narrow),
        count=np.array([(rank < size).sum() for rank in segments], np.int32),
        ball=np.where(nearest < 0, 0, number[nearest]),
        senders=senders.astype(np.int32),
        receivers=receivers.astype(np.int32),
        allowed=classes.allowed,
    )


def _alike(names: list[str], order: np.ndarray) -> list[np.ndarray]:
    """The largest sets of classes that names put together, each in the given order."""
    sets: dict[str, list[int]] = {}
    for number in order.tolist():
        parts = names[number].split("/")
        for i, part in enumerate(parts):
            if (other := re.sub(r"\d+", "*", part)) != part:
                sets.setdefault("/".join([*parts[:i], other, *parts[i + 1 :]]), []).append(number)
            if i:
                sets.setdefault("/".join([*parts[:i], ""]), []).append(number)
    some = [numbers for numbers in sets.values() if 1 < len(numbers) < len(names)]
    return [np.array(numbers) for numbers in sorted(some, key=len, reverse=True)[:ALIKE]]


def _ball(matrix: sparse.csr_array, centre: int, directed: bool) -> np.ndarray:
    return csgraph.breadth_first_order(matrix, centre, directed=directed, return_predecessors=False)


def _rank(order: np.ndarray, size: int) -> np.ndarray:
    rank = np.full(size, size, np.int32)
    rank[order] = np.arange(len(order))
    return rank


def draw(key: chex.PRNGKey, orders: Orders, parents: Array, num_children: int) -> Array:
    """Draws children int32 [K, M, C] of parents int32 [K, C]: each a block of one on a device.

    Args:
      key: consumed.
      orders: of the problem.
      parents: placements of the classes.
      num_children: M, of each parent.
    """
    chex.assert_rank(parents, 2)
    chex.assert_type(parents, int)
    keys = iter(jax.random.split(key, 12))
    shape = len(parents), num_children
    size, num_devices = orders.allowed.shape
    device = jax.random.randint(next(keys), shape, 0, num_devices)
    share = jax.random.uniform(next(keys), shape)  # of the logarithm of all

    # Balls from one end of an edge between devices, to the other end's device.
    crossing = parents[:, orders.senders] != parents[:, orders.receivers]
    first = jnp.argsort(~crossing, axis=1)  # the edges between devices come first
    count = crossing.sum(axis=1)[:, None]
    nth = (jax.random.uniform(next(keys), shape) * count).astype(jnp.int32)
    edge = jnp.take_along_axis(first, nth, axis=1)
    ends = jnp.stack([orders.senders[edge], orders.receivers[edge]])
    swapped = jax.random.bernoulli(next(keys), 0.5, shape)
    inner, outer = jnp.where(swapped, ends[::-1], ends)
    at_border = jax.random.bernoulli(next(keys), 0.5, shape) & (count > 0)
    num_orders = len(orders.count)
    num_seeds = (len(orders.ranks) - num_orders) // _KINDS
    seed = jax.random.randint(next(keys), shape, 0, num_seeds)
    seed = jnp.where(at_border, orders.ball[inner], seed)
    kind = jax.random.randint(next(keys), shape, 0, _KINDS)

    is_ball = jax.random.bernoulli(next(keys), 0.5, shape)
    across = jnp.take_along_axis(parents, outer, axis=1)
    device = jnp.where(is_ball & at_border, across, device)
    bits = jax.random.bits(next(keys), shape)
    of_all = (bits % 2).astype(jnp.int32)
    of_some = 2 + (bits // 4 % max(1, num_orders - 2)).astype(jnp.int32)
    which = jnp.where((bits // 2 % 2 == 0) & (num_orders > 2), of_some, of_all)
    number = jnp.where(is_ball, size, orders.count[which])
    length = jnp.exp(share * jnp.log(number + 1.0)).astype(jnp.int32)
    begin = jax.random.randint(next(keys), shape, 1 - length, number)
    begin = jnp.where(is_ball, 0, begin)
    rank = orders.ranks[jnp.where(is_ball, num_orders + kind * num_seeds + seed, which)]
    end = jnp.minimum(begin + length, size).astype(rank.dtype)
    begin = jnp.maximum(begin, 0).astype(rank.dtype)
    inside = (rank >= begin[..., None]) & (rank < end[..., None])
    source = jax.random.randint(next(keys), shape, 0, 2 * num_devices)[..., None]
    now = parents[:, None]
    inside &= (source >= num_devices) | (now == source)
    inside &= orders.allowed.T[device]
    return jnp.where(inside, device[..., None], now)
