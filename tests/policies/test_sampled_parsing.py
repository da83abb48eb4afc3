"""Sampled parses: groups against SciPy, probabilities against frequencies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.policies import sampled_parsing
from placement.policies.sampled_parsing import Edges, Parse

NODES, EDGES, LEVELS = 12, 24, 4


def _edges(rng: np.random.Generator, num_edges: int) -> Edges:
    """Of a random graph, padded as policies' graphs are: the last node is none."""
    pairs = np.argwhere(np.triu(np.ones((NODES - 1, NODES - 1)), 1))
    ends = np.full((EDGES, 2), NODES - 1, np.int32)
    ends[:num_edges] = rng.permutation(pairs)[:num_edges]
    return Edges(ends[:, 0], ends[:, 1], np.arange(EDGES) < num_edges, NODES)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _draw(key, score, num_nodes, levels, ends) -> Parse:
    return sampled_parsing.draw(key, score, Edges(*ends, num_nodes), levels)


def _drawn(seed: int, score, edges: Edges, levels: int = LEVELS) -> Parse:
    return _draw(jax.random.key(seed), jnp.asarray(score), edges.num_nodes, levels, edges[:3])


@functools.partial(jax.jit, static_argnums=2)
def _gradient(score, ends, num_nodes, parse):
    def total(score):
        return sampled_parsing.log_prob(score, Edges(*ends, num_nodes), parse).sum()

    return jax.grad(total)(score)


def test_groups_are_what_kept_edges_connect():
    rng = np.random.default_rng(0)
    for seed in range(20):
        edges = _edges(rng, int(rng.integers(1, EDGES)))
        parse = _drawn(seed, rng.normal(size=EDGES).astype(np.float32), edges)
        np.testing.assert_array_equal(parse.root[0], np.arange(NODES))
        for root, kept, after in zip(parse.root, parse.kept, parse.root[1:], strict=False):
            root, kept = np.asarray(root), np.asarray(kept)
            chosen = kept[kept < 2 * EDGES] % EDGES
            assert edges.mask[chosen].all()
            joined = root[edges.senders[chosen]], root[edges.receivers[chosen]]
            matrix = sparse.coo_array((np.ones(len(chosen)), joined), (NODES, NODES))
            _, expected = csgraph.connected_components(matrix, directed=False)
            same = np.asarray(after)[:, None] == np.asarray(after)
            np.testing.assert_array_equal(same, expected[root][:, None] == expected[root])
            assert set(np.asarray(after)) <= set(root)
            # A slot keeps an edge of its own group that leads out of it.
            for slot in np.flatnonzero(kept < 2 * EDGES):
                ends = edges.senders[kept[slot] % EDGES], edges.receivers[kept[slot] % EDGES]
                here, there = ends if kept[slot] < EDGES else ends[::-1]
                assert root[here] == slot != root[there]


def test_cycles_of_any_length_are_one_group():
    pointer = jnp.array([3, 0, 1, 2, 2, 4, 6, 8, 9, 7, 9, 11])
    groups = jax.jit(sampled_parsing._components)(pointer)
    assert groups.tolist() == [0, 0, 0, 0, 0, 0, 6, 7, 7, 7, 7, 11]


def test_nodes_keep_edges_as_often_as_scores_say():
    edges = _edges(np.random.default_rng(1), 16)
    score = np.random.default_rng(2).normal(size=EDGES).astype(np.float32)
    draw = jax.jit(jax.vmap(lambda key: sampled_parsing.draw(key, score, edges, 1).kept[0]))
    kept = np.asarray(draw(jax.vmap(jax.random.key)(jnp.arange(2000))))
    for node in range(NODES):
        there = np.concatenate([edges.senders == node, edges.receivers == node])
        there &= np.tile(edges.mask, 2)
        if not there.any():
            assert (kept[:, node] == 2 * EDGES).all()
            continue
        weight = np.where(there, np.exp(np.tile(score, 2)), 0.0)
        some = kept[kept[:, node] < 2 * EDGES, node]
        frequency = np.bincount(some, minlength=2 * EDGES) / len(some)
        np.testing.assert_allclose(frequency, weight / weight.sum(), atol=0.06)
        assert 0.5 < len(some) / len(kept) < 0.8


def test_log_probabilities_are_those_of_a_softmax_over_a_groups_border():
    rng = np.random.default_rng(3)
    edges = _edges(rng, 20)
    score = rng.normal(size=EDGES).astype(np.float32)
    parse = _drawn(0, score, edges)
    log_prob = jax.jit(lambda score, parse: sampled_parsing.log_prob(score, edges, parse))
    value = np.asarray(log_prob(score, parse))
    assert (np.asarray(parse.kept) < 2 * EDGES).sum() >= NODES
    for root, kept, row in zip(parse.root, parse.kept, value, strict=False):
        u, v = np.asarray(root)[edges.senders], np.asarray(root)[edges.receivers]
        alive = np.tile(edges.mask & (u != v), 2)
        here, twice = np.concatenate([u, v]), np.tile(score, 2)
        for slot, chosen in enumerate(np.asarray(kept).tolist()):
            border = alive & (here == slot)
            expected = 0.0
            if chosen < 2 * EDGES:
                expected = twice[chosen] - np.log(np.exp(twice[border]).sum())
            np.testing.assert_allclose(row[slot], expected, rtol=1e-4, atol=1e-5)


def test_gradients_are_finite_where_a_node_has_no_edge():
    edges = _edges(np.random.default_rng(4), 2)
    parse = _drawn(0, np.zeros(EDGES, np.float32), edges)
    gradient = _gradient(jnp.full(EDGES, 50.0), edges[:3], NODES, parse)
    assert np.isfinite(gradient).all()


def test_gradients_are_finite_however_far_scores_are_apart():
    edges = _edges(np.random.default_rng(5), 20)
    score = jnp.asarray(np.random.default_rng(6).normal(size=EDGES) * 200, jnp.float32)
    parse = _drawn(0, np.zeros(EDGES, np.float32), edges)
    gradient = _gradient(score, edges[:3], NODES, parse)
    assert np.isfinite(gradient).all()
    assert (gradient != 0).any()
