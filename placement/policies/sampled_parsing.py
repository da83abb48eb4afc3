"""Sampled parses: groups within groups, of edges that nodes keep at random.

HSDAG's parse (Duan et al. 2024, section 2.3; `placement.policies.parsing`) is a function of the
edges' scores: every node keeps the highest. Here each node u keeps an edge e with the probability

    softmax over the edges at u of score(e)

or none, with a probability of the level's, so that sizes vary. What kept edges connect is a node of
the next level, at whose border are the edges of all its members to others. So a parse has a
probability, a product over nodes and levels, by which gradients reach the scores.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.types import Array

_LEAST_KEPT = 0.3  # of the probabilities to keep an edge


class Edges(NamedTuple):
    """E edges between N nodes."""

    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    mask: Array  # bool [E]: False where there is none
    num_nodes: int  # N


class Parse(NamedTuple):
    """L levels; a group lives in the slot of one of its nodes, its root."""

    root: Array  # int32 [L + 1, N]: of each node's group; at the first level each is its own
    # int32 [L, N]: the end of an edge that the group in each slot keeps, 2E where it keeps none:
    # e is the edge's sender, E + e its receiver
    kept: Array


def draw(key: chex.PRNGKey, score: Array, edges: Edges, levels: int) -> Parse:
    """Draws a parse by scores float32 [E]; the key is consumed."""
    chex.assert_rank(score, 1)
    chex.assert_type(score, float)
    size, num_ends = edges.num_nodes, 2 * len(score)
    root = jnp.arange(size, dtype=jnp.int32)

    def level(root: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple[Array, Array]]:
        uniform = jax.random.uniform(key, (num_ends + size + 1,), minval=1e-20)
        here, there, alive = _ends(root, edges)
        gumbel = -jnp.log(-jnp.log(uniform[:num_ends]))
        noisy = jnp.where(alive, jnp.tile(score, 2) + gumbel, -jnp.inf)
        highest = alive & (noisy == jax.ops.segment_max(noisy, here, size)[here])
        number = jnp.where(highest, jnp.arange(num_ends, dtype=jnp.int32), -1)
        chosen = jax.ops.segment_max(number, here, size)
        share = _LEAST_KEPT + (1 - _LEAST_KEPT) * uniform[-1]
        keeps = (chosen >= 0) & (uniform[num_ends:-1] < share)
        pointer = jnp.where(keeps, there[chosen], jnp.arange(size, dtype=jnp.int32))
        root = jnp.asarray(_components(pointer))[root]
        return root, (root, jnp.where(keeps, chosen, num_ends))

    _, (later, kept) = jax.lax.scan(level, root, jax.random.split(key, levels))
    return Parse(jnp.concatenate([root[None], later]), kept)


def log_prob(score: Array, edges: Edges, parse: Parse) -> Array:
    """Computes the log-probability of what each slot keeps, float32 [L, N]; 0 where nothing."""
    chex.assert_rank(score, 1)
    chex.assert_type(score, float)

    def level(root: Array, kept: Array) -> Array:
        here, _, alive = _ends(root, edges)
        each = jnp.where(alive, jnp.tile(score, 2), -jnp.inf)
        highest = jax.lax.stop_gradient(jax.ops.segment_max(each, here, edges.num_nodes))
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        # Of what is not there the exponential may overflow, whose gradient would be no number.
        above = jnp.where(alive, jnp.tile(score, 2) - highest[here], -jnp.inf)
        weight = jnp.exp(above)
        total = jax.ops.segment_sum(weight, here, edges.num_nodes)
        keeps = kept < len(here)
        chosen = jnp.tile(score, 2)[jnp.minimum(kept, len(here) - 1)]
        log_total = jnp.log(jnp.where(keeps, total, 1.0))
        return jnp.where(keeps, chosen - highest - log_total, 0.0)

    return jax.vmap(level)(parse.root[:-1], parse.kept)


def _ends(root: Array, edges: Edges) -> tuple[Array, Array, Array]:
    """The groups at both ends of edges, [2E]: at this one, at the other; whether they differ."""
    u, v = root[edges.senders], root[edges.receivers]
    alive = edges.mask & (u != v)
    return jnp.concatenate([u, v]), jnp.concatenate([v, u]), jnp.tile(alive, 2)


def _components(pointer: Array) -> Array:
    """The least node, int32 [N], of the cycle that following pointers int32 [N] ends in."""
    least = jnp.arange(len(pointer), dtype=jnp.int32)
    for _ in range(max(1, (len(pointer) - 1).bit_length())):
        least = jnp.minimum(least, least[pointer])
        pointer = pointer[pointer]
    return least[pointer]  # a node in the cycle, from which no other is met
