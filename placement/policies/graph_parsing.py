"""Graph parsing: groups of operations from scores of edges, compiled.

HSDAG (Duan et al. 2024, section 2.3) groups operations with the graph parsing network of Song et
al. (2024). At one level, on N nodes:

    kept edges   every node u keeps the edge e at u with the highest score s_e
    groups       the connected components of the kept edges

The groups are the nodes of the next level. An edge between two nodes becomes an edge between their
groups. Levels repeat until no edge is left, or a given number of times. `hsdag` parses
so. `draw` samples a parse from fixed scores, so that groups are explored, and have a probability by
which gradients reach the scores. Node u keeps edge e with probability

    k * exp(s_e) / (sum over edges f at u of exp(s_f)),      k ~ U(0.3, 1), once for each level,

and no edge with probability 1 - k, so that sizes vary. The highest of the scores plus Gumbel noise
is such a draw. The log-probability of a parse is a sum over nodes and levels (`log_prob`).

Shapes are static. A group lives in the slot of one of its nodes, its *root*; the other slots are
empty. The *end* of an edge is e at the edge's sender and E + e at its receiver; 2E stands for none.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.types import Array

_MIN_KEEP_PROBABILITY = 0.3


class Edges(NamedTuple):
    """E undirected edges between nodes."""

    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    mask: Array  # bool [E]: False for padding and inside a group


class Parse(NamedTuple):
    """A parse of N nodes in L levels."""

    root: Array  # int32 [L + 1, N]: the slot of each node's group; at first its own
    kept_end: Array  # int32 [L, N]: the end at which the group in each slot keeps an edge


def contract(edges: Edges, root: Array) -> Edges:
    """Returns the edges between groups, given the slot int32 [N] of each node's group."""
    u, v = root[edges.senders], root[edges.receivers]
    return Edges(u, v, edges.mask & (u != v))


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


def draw(key: chex.PRNGKey, scores: Array, edges: Edges, num_nodes: int, num_levels: int) -> Parse:
    """Draws a parse in L levels of N nodes, by scores float32 [E]; the key is consumed."""
    chex.assert_rank(scores, 1)
    chex.assert_type(scores, float)
    num_ends = 2 * len(scores)
    node = jnp.arange(num_nodes, dtype=jnp.int32)

    def draw_level(root: jax.Array, uniform: jax.Array) -> tuple[jax.Array, tuple[Array, Array]]:
        gumbel = -jnp.log(-jnp.log(uniform[:num_ends]))
        groups = contract(edges, root)
        end = find_highest_ends(jnp.tile(scores, 2) + gumbel, groups, num_nodes)
        keep_probability = _MIN_KEEP_PROBABILITY + (1 - _MIN_KEEP_PROBABILITY) * uniform[-1]
        kept_end = jnp.where(uniform[num_ends:-1] < keep_probability, end, num_ends)
        root = jnp.asarray(connect(kept_end, groups))[root]
        return root, (root, kept_end)

    # The numbers of all levels in one draw: every draw adds a quarter of a second of compilation.
    shape = num_levels, num_ends + num_nodes + 1
    uniforms = jax.random.uniform(key, shape, minval=1e-20)
    _, (roots, kept_end) = jax.lax.scan(draw_level, node, uniforms)
    return Parse(jnp.concatenate([node[None], roots]), kept_end)


def log_prob(scores: Array, edges: Edges, parse: Parse) -> Array:
    """Computes the log-probability of the edge that each slot keeps, float32 [L, N].

    It is that of the edge, given that the slot keeps one; 0 for a slot that keeps none.
    """
    chex.assert_rank(scores, 1)
    chex.assert_type(scores, float)
    num_nodes, num_ends = parse.root.shape[1], 2 * len(scores)

    def level_log_prob(root: Array, kept_end: Array) -> Array:
        u, v, mask = contract(edges, root)
        node_of_end, mask = jnp.concatenate([u, v]), jnp.tile(mask, 2)
        end_scores = jnp.where(mask, jnp.tile(scores, 2), -jnp.inf)
        highest = jax.ops.segment_max(end_scores, node_of_end, num_nodes)
        highest = jax.lax.stop_gradient(highest)
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        # Masked before the exponential, which might overflow and make the gradient nan.
        relative = jnp.where(mask, jnp.tile(scores, 2) - highest[node_of_end], -jnp.inf)
        total = jax.ops.segment_sum(jnp.exp(relative), node_of_end, num_nodes)
        is_kept = kept_end < num_ends
        kept_score = jnp.tile(scores, 2)[jnp.minimum(kept_end, num_ends - 1)]
        log_total = jnp.log(jnp.where(is_kept, total, 1.0))
        return jnp.where(is_kept, kept_score - highest - log_total, 0.0)

    return jax.vmap(level_log_prob)(parse.root[:-1], parse.kept_end)
