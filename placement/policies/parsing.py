"""Graph parsing: groups of operations from edge scores, wholly inside jit.

HSDAG (Duan et al. 2024, section 2.3) groups with the graph parsing network of Song et al. (2024).
One level, on nodes with embeddings z:

    score(u, v) = sigmoid(MLP(z_u * z_v))        for neighbours u, v
    kept        = the highest-scored edge of every node (if it scores at least `threshold`)
    groups      = connected components of the kept edges
    z_group     = (sum of the members' z) * (mean kept score) * (number of kept edges)

The groups are the nodes of the next level; levels repeat until nothing shrinks. Without a
threshold every node that has a neighbour keeps an edge, so each level at least halves a connected
graph and the repetition ends in one single group: a bound on the levels, or a threshold, is what
makes placements over several devices possible at all.

Shapes are static: a group lives in the slot of its *root*, the smallest-numbered node in it, and
the other slots are dead. Every node points along its highest-scored edge; ties go to the edge with
the smallest index, so the order of edges is total and the only cycles of these pointers are pairs
that point at each other. The smaller of such a pair is made a root and pointer jumping finds every
node's root in log2(N) rounds, as in Boruvka's algorithm.
"""

import chex
import jax
import jax.numpy as jnp

from placement.types import Array


def dominant_edge(score: Array, live: Array, senders: Array, receivers: Array, n: int) -> Array:
    """Finds the highest-scored live edge at each node: int32 [n], len(score) where there is none.

    Args:
      score: float32 [E]; of equal ones the first counts.
      live: bool [E], the edges that count at all.
      senders, receivers: int32 [E]; an edge is at both of its ends.
      n: how many nodes there are.
    """
    chex.assert_rank([score, live, senders, receivers], 1)
    chex.assert_type([score, live, senders, receivers], [float, bool, int, int])
    num_edges = score.shape[0]
    ends = jnp.concatenate([senders, receivers])
    masked = jnp.where(live, score, -jnp.inf)
    best = jax.ops.segment_max(jnp.tile(masked, 2), ends, n)
    is_best = live & (masked == best[senders]), live & (masked == best[receivers])
    index = jnp.arange(num_edges, dtype=jnp.int32)
    candidates = jnp.where(jnp.concatenate(is_best), jnp.tile(index, 2), num_edges)
    first = jax.ops.segment_min(candidates, ends, n)
    return jnp.minimum(first, num_edges)  # segment_min of nothing is the largest integer


def components(edge: Array, senders: Array, receivers: Array) -> Array:
    """Finds the roots int32 [n] of the components that each node's chosen edge int32 [n] joins.

    `edge` must come from one total order of the edges (`dominant_edge`); len(senders) is none.
    """
    chex.assert_rank([edge, senders, receivers], 1)
    chex.assert_type([edge, senders, receivers], int)
    n = edge.shape[0]
    node = jnp.arange(n, dtype=jnp.int32)
    chosen = jnp.minimum(edge, senders.shape[0] - 1)
    other = jnp.where(senders[chosen] == node, receivers[chosen], senders[chosen])
    pointer = jnp.where(edge < senders.shape[0], other, node)
    mutual = (pointer[pointer] == node) & (node < pointer)
    pointer = jnp.where(mutual, node, pointer)
    for _ in range(max(1, (n - 1).bit_length())):
        pointer = pointer[pointer]
    return _smallest_member(pointer)


def _smallest_member(pointer: Array) -> Array:
    n = pointer.shape[0]
    smallest = jax.ops.segment_min(jnp.arange(n, dtype=jnp.int32), pointer, n)
    return smallest[pointer]


def kept(edge: Array, root: Array, num_edges: int) -> Array:
    """Finds the group int32 [E] that kept each edge, len(root) where none did.

    Args:
      edge: int32 [N], of `dominant_edge`.
      root: int32 [N], of `components`.
      num_edges: E.
    """
    chex.assert_rank([edge, root], 1)
    chex.assert_type([edge, root], int)
    none = jnp.full(num_edges + 1, len(root), jnp.int32)
    # Every kept edge is some node's choice: its group is that node's.
    return none.at[edge].set(root)[:-1]


def pool(embedding: Array, root: Array, score: Array, group: Array) -> Array:
    """Pools group embeddings [N, H] in the slots of their roots, from those of the nodes [N, H].

    The mean score of a group's edges times their number is the sum of their scores. A group
    without edges is a single node and keeps its embedding: the product would erase it.

    Args:
      embedding: float32 [N, H].
      root: int32 [N], the slot of each node's group.
      score: float32 [E].
      group: int32 [E], the slot of the group that an edge counts for; N: for none.
    """
    chex.assert_rank([embedding, root, score, group], [2, 1, 1, 1])
    chex.assert_type([embedding, root, score, group], [float, int, float, int])
    n = embedding.shape[0]
    total = jax.ops.segment_sum(score, group, n + 1)[:-1]
    count = jax.ops.segment_sum(jnp.ones_like(group), group, n + 1)[:-1]
    summed = jax.ops.segment_sum(embedding, root, n)
    return summed * jnp.where(count > 0, total, 1.0)[:, None]
