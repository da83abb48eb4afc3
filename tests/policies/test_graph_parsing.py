"""Graph parsing: groups against union-find and SciPy, probabilities against frequencies."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from placement.policies import graph_parsing
from placement.policies.graph_parsing import Edges, Parse
from placement.types import Array

NODES, EDGES, HIDDEN = 16, 40, 4  # every graph is padded to these: one compilation serves all
LEVELS = 4  # of sampled parses


class _Case(NamedTuple):
    """A random undirected graph; only edges in `mask` exist."""

    embedding: np.ndarray  # float32 [NODES, HIDDEN]
    senders: np.ndarray
    receivers: np.ndarray
    mask: np.ndarray


def _case(rng: np.random.Generator, num_nodes: int, edge_probability: float) -> _Case:
    joined = np.triu(rng.random((num_nodes, num_nodes)) < edge_probability, 1)
    pairs = rng.permutation(np.argwhere(joined))[: EDGES - 1]
    flipped = rng.random(len(pairs)) < 0.5
    pairs[flipped] = pairs[flipped, ::-1]
    return _padded(rng.normal(size=(num_nodes, HIDDEN)), pairs, NODES, EDGES)


def _padded(embedding: np.ndarray, pairs: np.ndarray, num_nodes: int, num_edges: int) -> _Case:
    ends = np.full((num_edges, 2), num_nodes - 1, np.int32)
    ends[: len(pairs)] = np.reshape(pairs, (-1, 2))
    padded = np.zeros((num_nodes, HIDDEN), np.float32)
    padded[: len(embedding)] = embedding
    return _Case(padded, ends[:, 0], ends[:, 1], np.arange(num_edges) < len(pairs))


def _path(num_nodes: int, embedding: float = 1.0) -> _Case:
    pairs = np.stack([np.arange(num_nodes - 1), np.arange(1, num_nodes)], axis=1)
    return _padded(np.full((num_nodes, HIDDEN), embedding), pairs, NODES, EDGES)


WEIGHTS = np.array([0.9, -1.1, 0.7, 1.3], np.float32)


def _weighted(products: Array) -> Array:
    return products @ WEIGHTS


def _constant(products: Array) -> Array:  # every edge ties with every other
    return 0.0 * products[:, 0]


class _Groups(NamedTuple):
    """The groups of the last level."""

    root: Array  # int32 [NODES]: the slot of each node's group
    embedding: Array  # float32 [NODES, HIDDEN]: of the group in each slot


def _parse(score_fn, case: _Case, levels: int, threshold: float) -> _Groups:
    """Parses level after level, without encoding anew."""
    embedding, *edges = map(jnp.asarray, case)
    n = len(embedding)
    root = jnp.arange(n, dtype=jnp.int32)
    for _ in range(levels):
        level = graph_parsing.contract(Edges(*edges), root)
        score = jax.nn.sigmoid(score_fn(embedding[level.senders] * embedding[level.receivers]))
        candidates = level._replace(mask=level.mask & (score >= threshold))
        end_scores = jnp.tile(jax.lax.stop_gradient(score), 2)
        kept_end = graph_parsing.find_highest_ends(end_scores, candidates, n)
        component = graph_parsing.connect(kept_end, level)
        joined = jax.ops.segment_min(jnp.arange(n, dtype=jnp.int32), component, n)[component]
        embedding = graph_parsing.pool(embedding, score, level, kept_end, joined)
        root = joined[root]
    return _Groups(root, embedding)


_jitted = jax.jit(_parse, static_argnums=(0, 2))


@functools.partial(jax.jit, static_argnums=2)
def _by_logits(logits: Array, case: _Case, levels: int, threshold: float) -> _Groups:
    """By scores of edges that depend on nothing; fewer than there are edges are padded."""
    padded = jnp.pad(logits, (0, EDGES - len(logits)))
    return _parse(lambda products: padded, case, levels, threshold)


def _find(parent: dict[int, int], node: int) -> int:
    while parent[node] != node:
        node = parent[node]
    return node


def _reference_level(
    score: np.ndarray, u: np.ndarray, v: np.ndarray, live: np.ndarray, embedding: np.ndarray
) -> tuple[dict[int, int], np.ndarray]:
    """One level with dictionaries and a union-find whose root is the smallest member."""
    chosen = {}
    for node in range(len(embedding)):
        mine = [e for e in range(len(score)) if live[e] and node in (u[e], v[e])]
        if mine:
            chosen[node] = max(mine, key=lambda e: (score[e], -e))
    parent = {node: node for node in range(len(embedding))}
    for edge in chosen.values():
        first, second = sorted((_find(parent, u[edge]), _find(parent, v[edge])))
        parent[second] = first
    root = {node: _find(parent, node) for node in parent}
    pooled = np.zeros_like(embedding)
    for node, slot in root.items():
        pooled[slot] += embedding[node]
    for slot in set(root.values()):
        kept = {edge for node, edge in chosen.items() if root[node] == slot}
        if kept:
            pooled[slot] *= np.mean([score[e] for e in kept]) * len(kept)
    return root, pooled


def _reference(
    score_fn, case: _Case, levels: int, threshold: float
) -> tuple[list[int], np.ndarray]:
    embedding = case.embedding.astype(np.float64)
    root = list(range(len(embedding)))
    for _ in range(levels):
        u = np.array([root[s] for s in case.senders])
        v = np.array([root[r] for r in case.receivers])
        score = 1 / (1 + np.exp(-np.asarray(score_fn(embedding[u] * embedding[v]))))
        live = case.mask & (u != v) & (score >= threshold)
        step, embedding = _reference_level(score, u, v, live, embedding)
        root = [step[group] for group in root]
    return root, embedding


def _agree(score_fn, case: _Case, levels: int, threshold: float) -> None:
    got = _jitted(score_fn, case, levels, threshold)
    root, embedding = _reference(score_fn, case, levels, threshold)
    assert np.asarray(got.root).tolist() == root
    np.testing.assert_allclose(got.embedding, embedding, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_equals_the_reference_on_random_graphs(levels):
    rng = np.random.default_rng(levels)
    for _ in range(30):
        case = _case(rng, int(rng.integers(1, NODES)), rng.random() ** 2)
        _agree(_weighted, case, levels, rng.choice([0.0, 0.3, 0.5, 0.8]))


def test_equals_the_reference_where_some_edges_tie():
    rng = np.random.default_rng(7)
    for _ in range(30):
        case = _case(rng, int(rng.integers(2, NODES)), rng.random())
        few_values = np.sign(case.embedding) * (np.arange(HIDDEN) == 0)
        _agree(_weighted, case._replace(embedding=few_values), 1, rng.choice([0.0, 0.5]))


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 3])
def test_equals_the_reference_where_all_edges_tie_at_every_level(levels):
    rng = np.random.default_rng(8)
    for _ in range(30):
        case = _case(rng, int(rng.integers(2, NODES)), rng.random())
        _agree(_constant, case, levels, 0.5)  # the tied score exactly: an edge is kept at it


def test_ties_go_to_the_first_edge_by_hand():
    root = _jitted(_constant, _path(6), 1, 0.0).root[:6]  # 1 and 0 keep 0-1, 2 keeps 1-2, ...
    assert root.tolist() == [0] * 6


@pytest.mark.slow
def test_pooling_by_hand():
    """Of a path of three nodes with scores 0.9 and 0.8, all join: 3 z * mean 0.85 * 2 edges."""
    logits = jnp.log(jnp.array([0.9, 0.8, 0.5]) / (1 - jnp.array([0.9, 0.8, 0.5])))
    case = _padded(np.ones((3, HIDDEN)), np.array([[0, 1], [1, 2]]), NODES, EDGES)
    parse = _by_logits(logits, case, 1, 0.5)
    assert parse.root.tolist() == [0, 0, 0, *range(3, NODES)]
    np.testing.assert_allclose(parse.embedding[0], 3 * 0.85 * 2, rtol=1e-5)
    assert (parse.embedding[1:] == 0).all()


@pytest.mark.slow
def test_an_edge_below_the_threshold_is_not_kept():
    case = _padded(np.ones((3, HIDDEN)), np.array([[0, 1], [1, 2]]), NODES, EDGES)
    parse = _by_logits(jnp.array([1.0, -1.0, 0.0]), case, 1, 0.5)
    assert parse.root.tolist() == [0, 0, *range(2, NODES)]


def test_edges_outside_the_mask_join_nothing():
    """Whatever nodes they join: here the second edge of a path of three."""
    case = _path(3)
    masked = case._replace(mask=case.mask & (np.arange(EDGES) != 1))
    assert _jitted(_constant, case, 2, 0.0).root[:3].tolist() == [0, 0, 0]
    assert _jitted(_constant, masked, 2, 0.0).root[:3].tolist() == [0, 0, 2]


@pytest.mark.slow
def test_every_node_keeps_its_own_best_edge_only():
    """Scores 3 > 1 < 2 along a path of four: the middle edge is nobody's best."""
    case = _padded(np.ones((4, HIDDEN)), np.array([[0, 1], [1, 2], [2, 3]]), NODES, EDGES)
    parse = _by_logits(jnp.array([3.0, 1.0, 2.0]), case, 1, 0.0)
    assert parse.root[:4].tolist() == [0, 0, 2, 2]


def test_without_edges_every_node_is_its_own_group_and_keeps_its_embedding():
    case = _case(np.random.default_rng(0), 9, 0.0)
    parse = _jitted(_weighted, case, 3, 0.0)
    assert parse.root.tolist() == list(range(NODES))
    np.testing.assert_array_equal(parse.embedding, case.embedding)


def _num_groups(root: Array, num_nodes: int) -> int:
    return len(set(np.asarray(root)[:num_nodes].tolist()))


@pytest.mark.slow
def test_a_level_at_least_halves_a_connected_graph_without_a_threshold():
    rng = np.random.default_rng(1)
    for _ in range(40):
        num_nodes = int(rng.integers(2, NODES))
        case = _case(rng, num_nodes, 0.1)
        tree = np.stack([rng.integers(0, np.arange(1, num_nodes)), np.arange(1, num_nodes)], 1)
        extra = np.stack([case.senders, case.receivers], 1)[case.mask]
        case = _padded(case.embedding[:num_nodes], np.concatenate([tree, extra]), NODES, EDGES)
        groups = num_nodes
        for levels in (1, 2, 3, 4):
            before, groups = (
                groups,
                _num_groups(_jitted(_weighted, case, levels, 0.0).root, num_nodes),
            )
            assert groups <= max(1, before // 2)
        assert groups == 1


def test_groups_are_connected():
    rng = np.random.default_rng(2)
    joined = 0
    for _ in range(40):
        case = _case(rng, NODES - 1, 0.15)
        root = np.asarray(_jitted(_weighted, case, 2, 0.4).root)
        within = case.mask & (root[case.senders] == root[case.receivers])
        parent = {node: node for node in range(NODES)}
        for a, b in zip(
            case.senders[within].tolist(), case.receivers[within].tolist(), strict=True
        ):
            parent[max(_find(parent, a), _find(parent, b))] = min(
                _find(parent, a), _find(parent, b)
            )
        assert [_find(parent, node) for node in range(NODES)] == root.tolist()
        joined += NODES - len(set(root.tolist()))
    assert joined > 40


@pytest.mark.slow
def test_jit_changes_nothing():
    case = _case(np.random.default_rng(3), 14, 0.3)
    eager, jitted = _parse(_weighted, case, 2, 0.4), _jitted(_weighted, case, 2, 0.4)
    np.testing.assert_array_equal(eager.root, jitted.root)
    np.testing.assert_allclose(eager.embedding, jitted.embedding, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(10, 20), (13, 40), (40, 21)])
def test_padding_changes_nothing(num_nodes, num_edges):
    rng = np.random.default_rng(4)
    pairs = np.array([[i, j] for i in range(9) for j in range(i) if rng.random() < 0.5][:19])
    embedding = rng.normal(size=(9, HIDDEN))
    tight = _jitted(_weighted, _padded(embedding, pairs, 10, 20), 2, 0.4)
    wide = _jitted(_weighted, _padded(embedding, pairs, num_nodes, num_edges), 2, 0.4)
    assert wide.root[:9].tolist() == tight.root[:9].tolist()
    assert wide.root[9:].tolist() == list(range(9, num_nodes))
    np.testing.assert_allclose(wide.embedding[:9], tight.embedding[:9], rtol=1e-5)


@pytest.mark.parametrize("length", [2, 3, NODES - 1, NODES])
def test_the_longest_chain_of_pointers_is_followed_to_its_end(length):
    """Scores that fall along a path make every node point at the one before it."""
    case = _path(length)
    logits = -0.1 * jnp.arange(EDGES)
    root = _by_logits(logits, case, 1, 0.0).root
    assert root[:length].tolist() == [0] * length


@functools.partial(jax.jit, static_argnums=(2, 3))
def _gradient(weights: Array, case: _Case, levels: int, threshold: float) -> Array:
    def loss(weights: Array) -> Array:
        return (_parse(lambda x: x @ weights, case, levels, threshold).embedding ** 2).sum()

    return jax.grad(loss)(weights)


@pytest.mark.parametrize("levels", [1, 2])
def test_the_score_function_receives_a_finite_gradient(levels):
    case = _case(np.random.default_rng(5), 12, 0.3)
    gradient = _gradient(WEIGHTS, case, levels, 0.0)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient) > 1e-3).all()


def test_the_gradient_is_that_of_the_pooled_embeddings():
    case = _case(np.random.default_rng(6), 8, 0.4)
    gradient = _gradient(WEIGHTS, case, 1, 0.0)

    def loss(weights: np.ndarray) -> float:
        _, embedding = _reference(lambda x: np.asarray(x) @ weights, case, 1, 0.0)
        return float((embedding**2).sum())

    step = 1e-4 * np.eye(HIDDEN)
    numeric = [(loss(WEIGHTS + s) - loss(WEIGHTS - s)) / 2e-4 for s in step]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3)


def test_without_levels_the_score_function_receives_no_gradient():
    case = _case(np.random.default_rng(5), 12, 0.3)
    assert (_gradient(WEIGHTS, case, 0, 0.0) == 0).all()


def _edges(rng: np.random.Generator, num_edges: int) -> Edges:
    """A random graph, padded as policies' graphs are: the last node is padding."""
    pairs = np.argwhere(np.triu(np.ones((NODES - 1, NODES - 1)), 1))
    ends = np.full((EDGES, 2), NODES - 1, np.int32)
    ends[:num_edges] = rng.permutation(pairs)[:num_edges]
    return Edges(ends[:, 0], ends[:, 1], np.arange(EDGES) < num_edges)


@jax.jit
def _draw(key, scores, edges) -> Parse:
    return graph_parsing.draw(key, scores, Edges(*edges), NODES, LEVELS)


def _sampled(seed: int, scores, edges: Edges) -> Parse:
    return _draw(jax.random.key(seed), jnp.asarray(scores), edges)


@jax.jit
@jax.grad
def _score_gradient(scores, edges, parse):
    return graph_parsing.log_prob(scores, edges, parse).sum()


def test_groups_of_a_sample_are_the_components_of_its_kept_edges():
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
            matrix = sparse.coo_array((np.ones(len(kept_edges)), ends), (NODES, NODES))
            _, expected = csgraph.connected_components(matrix, directed=False)
            is_same = joined[:, None] == joined
            np.testing.assert_array_equal(is_same, expected[root][:, None] == expected[root])
            assert set(joined) <= set(root)
            # A slot keeps an edge of its own group that leads out of it.
            for slot in np.flatnonzero(kept_end < 2 * EDGES):
                edge = kept_end[slot] % EDGES
                ends = edges.senders[edge], edges.receivers[edge]
                inner, outer = ends if kept_end[slot] < EDGES else ends[::-1]
                assert root[inner] == slot != root[outer]


def test_cycles_of_any_length_are_one_group():
    """Each node keeps the edge to its target, or none: edge v at its sender."""
    target = np.array([3, 0, 1, 2, 2, 4, 6, 8, 9, 7, 9, 11], np.int32)
    nodes = np.arange(12, dtype=np.int32)
    edges = Edges(nodes, target, target != nodes)
    kept_end = np.where(edges.mask, nodes, 24)
    groups = jax.jit(graph_parsing.connect)(kept_end, edges)
    assert groups.tolist() == [0, 0, 0, 0, 0, 0, 6, 7, 7, 7, 7, 11]


def test_nodes_keep_edges_as_often_as_scores_say():
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


def test_log_probabilities_are_those_of_a_softmax_over_a_groups_border():
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


def test_gradients_are_finite_where_a_node_has_no_edge():
    edges = _edges(np.random.default_rng(4), 2)
    parse = _sampled(0, np.zeros(EDGES, np.float32), edges)
    assert np.isfinite(_score_gradient(jnp.full(EDGES, 50.0), edges, parse)).all()


def test_gradients_are_finite_however_far_scores_are_apart():
    edges = _edges(np.random.default_rng(5), 20)
    scores = jnp.asarray(np.random.default_rng(6).normal(size=EDGES) * 200, jnp.float32)
    parse = _sampled(0, np.zeros(EDGES, np.float32), edges)
    gradient = _score_gradient(scores, edges, parse)
    assert np.isfinite(gradient).all()
    assert (gradient != 0).any()
