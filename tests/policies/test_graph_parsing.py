"""Graph parsing: groups against SciPy, probabilities against frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.policies import graph_parsing
from placement.policies.graph_parsing import Edges, Parse

NODES, EDGES = 16, 40  # every graph is padded to these: one compilation serves all
LEVELS = 4  # of sampled parses


def _edges(rng: np.random.Generator, num_edges: int) -> Edges:
    """A random graph, padded as policies' graphs are: the last node is padding."""
    pairs = np.argwhere(np.triu(np.ones((NODES - 1, NODES - 1)), 1))
    ends = np.full((EDGES, 2), NODES - 1, np.int32)
    ends[:num_edges] = rng.permutation(pairs)[:num_edges]
    is_flipped = rng.random(EDGES) < 0.5
    ends[is_flipped] = ends[is_flipped, ::-1]
    return Edges(ends[:, 0], ends[:, 1], np.arange(EDGES) < num_edges)


def _components(senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Returns whether two nodes are connected, bool [N, N]."""
    matrix = sparse.coo_array((np.ones(len(senders)), (senders, receivers)), (NODES, NODES))
    _, component = csgraph.connected_components(matrix, directed=False)
    return component[:, None] == component


@jax.jit
def _draw(key, scores, edges) -> Parse:
    return graph_parsing.draw(key, scores, Edges(*edges), NODES, LEVELS)


def _sampled(seed: int, scores, edges: Edges) -> Parse:
    return _draw(jax.random.key(seed), jnp.asarray(scores), edges)


def test_groups_are_components():
    rng = np.random.default_rng(0)
    for seed in range(20):
        edges = _edges(rng, int(rng.integers(1, EDGES)))
        parse = _sampled(seed, rng.normal(size=EDGES).astype(np.float32), edges)
        np.testing.assert_array_equal(parse.root[0], np.arange(NODES))
        levels = zip(parse.root, parse.kept_end, parse.root[1:], strict=False)
        for root, kept_end, joined in levels:
            root, kept_end, joined = map(np.asarray, (root, kept_end, joined))
            kept_edges = kept_end[kept_end < 2 * EDGES] % EDGES
            assert edges.mask[kept_edges].all()
            ends = root[edges.senders[kept_edges]], root[edges.receivers[kept_edges]]
            is_same = joined[:, None] == joined
            np.testing.assert_array_equal(is_same, _components(*ends)[root][:, root])
            assert set(joined) <= set(root)
            # A slot keeps an edge of its group that leads out of it.
            for slot in np.flatnonzero(kept_end < 2 * EDGES):
                edge = kept_end[slot] % EDGES
                ends = edges.senders[edge], edges.receivers[edge]
                inner, outer = ends if kept_end[slot] < EDGES else ends[::-1]
                assert root[inner] == slot != root[outer]


def test_edges_kept_by_score():
    edges = _edges(np.random.default_rng(1), 22)
    scores = np.random.default_rng(2).normal(size=EDGES).astype(np.float32)
    draw = jax.vmap(lambda key: graph_parsing.draw(key, scores, edges, NODES, 1).kept_end[0])
    kept_end = np.asarray(jax.jit(draw)(jax.vmap(jax.random.key)(jnp.arange(2000))))
    for node in range(NODES):
        is_here = np.concatenate([edges.senders == node, edges.receivers == node])
        is_here &= np.tile(edges.mask, 2)
        if not is_here.any():
            assert (kept_end[:, node] == 2 * EDGES).all()
            continue
        weight = np.where(is_here, np.exp(np.tile(scores, 2)), 0.0)
        kept = kept_end[kept_end[:, node] < 2 * EDGES, node]
        frequency = np.bincount(kept, minlength=2 * EDGES) / len(kept)
        np.testing.assert_allclose(frequency, weight / weight.sum(), atol=0.06)
        assert 0.5 < len(kept) / len(kept_end) < 0.8


def test_log_prob_is_border_softmax():
    rng = np.random.default_rng(3)
    edges = _edges(rng, 30)
    scores = rng.normal(size=EDGES).astype(np.float32)
    parse = _sampled(0, scores, edges)
    value = np.asarray(jax.jit(graph_parsing.log_prob)(scores, edges, parse))
    assert (np.asarray(parse.kept_end) < 2 * EDGES).sum() >= 10
    for root, kept_end, row in zip(parse.root, parse.kept_end, value, strict=False):
        u, v = np.asarray(root)[edges.senders], np.asarray(root)[edges.receivers]
        leaves, end_scores = np.tile(edges.mask & (u != v), 2), np.tile(scores, 2)
        for slot, end in enumerate(np.asarray(kept_end).tolist()):
            border = leaves & (np.concatenate([u, v]) == slot)
            expected = 0.0
            if end < 2 * EDGES:
                expected = end_scores[end] - np.log(np.exp(end_scores[border]).sum())
            np.testing.assert_allclose(row[slot], expected, rtol=1e-4, atol=1e-5)
