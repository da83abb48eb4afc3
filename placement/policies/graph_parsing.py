"""Graph parsing: groups of operations from scores of edges, compiled.

HSDAG (Duan et al. 2024, section 2.3) groups operations with the graph parsing network of Song et
al. (2024). At one level, on N nodes:

    kept edges   every node u keeps the edge e at u with the highest score s_e
    groups       the connected components of the kept edges

The groups are the nodes of the next level. An edge between two nodes becomes an edge between their
groups. Levels repeat until no edge is left, or a given number of times.

Shapes are static. A group lives in the slot of one of its nodes, its *root*; the other slots are
empty. The *end* of an edge is e at the edge's sender and E + e at its receiver; 2E stands for none.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.types import Array


class Edges(NamedTuple):
    """E undirected edges between nodes."""

    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    mask: Array  # bool [E]: False for padding and inside a group


def order_edges(edges: Edges, node: Array) -> Edges:
    """Moves the ends of E edges to nodes, by a map int32 [n]; orders them and merges equal ones.

    Returns:
      E edges between different nodes, in the order of their ends, the smaller end first. Both ends
      are 0 where the mask is False.
    """
    num_edges, none = len(edges.mask), len(node)
    u, v = node[edges.senders], node[edges.receivers]
    is_edge = edges.mask & (u != v)
    ends = jnp.where(is_edge, jnp.minimum(u, v), none), jnp.where(is_edge, jnp.maximum(u, v), none)
    u, v = jax.lax.sort(ends, num_keys=2)
    is_first = (u < none) & jnp.append(True, (u[1:] != u[:-1]) | (v[1:] != v[:-1]))
    position = jnp.where(is_first, jnp.cumsum(is_first) - 1, num_edges)
    u, v = (jnp.zeros(num_edges, jnp.int32).at[position].set(x, mode="drop") for x in (u, v))
    return Edges(u, v, jnp.arange(num_edges) < is_first.sum())


def find_highest_ends(scores: Array, edges: Edges, num_nodes: int) -> Array:
    """Finds the end of the highest-scored edge at each node, int32 [N].

    Args:
      scores: float32 [2E], of each end of an edge. Of equal scores the first edge's counts.
      edges: E edges.
      num_nodes: N.
    """
    chex.assert_rank([scores, *edges], 1)
    chex.assert_type([scores, *edges], [float, int, int, bool])
    num_edges = len(edges.senders)
    node_of_end = jnp.concatenate([edges.senders, edges.receivers])
    mask = jnp.tile(edges.mask, 2)
    scores = jnp.where(mask, scores, -jnp.inf)
    is_highest = mask & (scores == jax.ops.segment_max(scores, node_of_end, num_nodes)[node_of_end])
    number = jnp.tile(jnp.arange(num_edges, dtype=jnp.int32), 2)
    edge = jax.ops.segment_min(jnp.where(is_highest, number, num_edges), node_of_end, num_nodes)
    edge = jnp.minimum(edge, num_edges)  # segment_min of no edges is the largest integer
    is_sender = edges.senders[jnp.minimum(edge, num_edges - 1)] == jnp.arange(num_nodes)
    end = jnp.where(is_sender, edge, num_edges + edge)
    return jnp.where(edge < num_edges, end, 2 * num_edges).astype(jnp.int32)


def connect(kept_end: Array, edges: Edges) -> Array:
    """Finds the root int32 [N] of each node's component, given the end int32 [N] that it keeps.

    Every node points along the edge that it keeps, or at itself. Following these pointers from any
    node of a component leads into its only cycle, whose smallest node is the root. Pointer doubling
    finds it in log2(N) rounds: after round r, a pointer leads 2^r steps ahead.
    """
    chex.assert_rank([kept_end, *edges], 1)
    chex.assert_type([kept_end, *edges], [int, int, int, bool])
    node = jnp.arange(len(kept_end), dtype=jnp.int32)
    opposite = jnp.concatenate([edges.receivers, edges.senders])
    is_kept = kept_end < len(opposite)
    pointer = jnp.where(is_kept, opposite[jnp.minimum(kept_end, len(opposite) - 1)], node)

    def follow(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        pointer, smallest = state  # `smallest` of the nodes that the pointer has passed
        return pointer[pointer], jnp.minimum(smallest, smallest[pointer])

    num_rounds = max(1, (len(node) - 1).bit_length())
    pointer, smallest = jax.lax.fori_loop(0, num_rounds, follow, (pointer, node))
    return smallest[pointer]
