"""Graph parsing: groups against SciPy."""

import jax
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.policies import graph_parsing
from placement.policies.graph_parsing import Edges

NODES, EDGES = 16, 40  # every graph is padded to these: one compilation serves all


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


def test_groups_are_components():
    rng, node = np.random.default_rng(0), np.arange(NODES)

    @jax.jit
    def parse(scores, edges):
        kept_end = graph_parsing.find_highest_ends(scores, edges, NODES)
        return kept_end, graph_parsing.connect(kept_end, edges)

    for _ in range(20):
        edges = _edges(rng, int(rng.integers(1, EDGES)))
        scores = rng.normal(size=2 * EDGES).astype(np.float32)
        kept_end, root = map(np.asarray, parse(scores, edges))
        ends = np.concatenate([edges.senders, edges.receivers])
        at_node = (ends == node[:, None]) & np.tile(edges.mask, 2)  # [N, 2E]
        highest = np.where(at_node, scores, -np.inf).argmax(axis=1)
        np.testing.assert_array_equal(kept_end, np.where(at_node.any(axis=1), highest, 2 * EDGES))
        kept = kept_end[kept_end < 2 * EDGES] % EDGES
        is_same = root[:, None] == root
        np.testing.assert_array_equal(
            is_same, _components(edges.senders[kept], edges.receivers[kept])
        )
        assert is_same[node, root].all()
