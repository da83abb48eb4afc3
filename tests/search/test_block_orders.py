import itertools

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.search import block_orders
from tests import helpers


def _draw(seed: int, num_nodes: int = 24) -> tuple[np.ndarray, np.ndarray, block_orders.Parses]:
    graph = helpers.random_dag(np.random.default_rng(seed), num_nodes, edge_probability=0.15)
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.2, 5.0, graph.num_edges)
    parses = block_orders.draw_parses(rng, num_nodes, graph.senders, graph.receivers, weight, 6)
    return graph.senders, graph.receivers, parses


def _groups(parses: block_orders.Parses, parse: int) -> list[set[int]]:
    order = np.argsort(parses.ranks[parse])
    places = parses.groups[parse, : parses.num_groups[parse]].tolist()
    return [set(order[begin:end].tolist()) for begin, end in places]


def test_groups_are_nested_and_connected():
    senders, receivers, parses = _draw(0)
    for parse, rank in enumerate(parses.ranks):
        assert sorted(rank) == list(range(len(rank)))
        groups = _groups(parses, parse)
        assert len(groups) > 3
        assert all(len(group) > 1 for group in groups)
        for one, other in itertools.combinations(groups, 2):
            assert one != other
            assert one <= other or other <= one or not one & other
        for group in groups:
            members = np.array(sorted(group))
            matrix = sparse.coo_array((np.ones(len(senders)), (senders, receivers)), (24, 24))
            inside = matrix.tocsr()[members][:, members]
            assert csgraph.connected_components(inside, directed=False)[0] == 1


def test_expensive_edges_stay_together():
    senders, receivers = np.arange(9), np.arange(1, 10)
    weight = np.where(np.arange(9) % 2 == 0, 20.0, 0.2)  # pairs of nodes, loosely chained
    parses = block_orders.draw_parses(np.random.default_rng(0), 10, senders, receivers, weight, 200)
    pairs = [{node, node + 1} for node in range(9)]
    count = [sum(pair in _groups(parses, parse) for parse in range(200)) for pair in pairs]
    assert min(count[::2]) > 5 * max(count[1::2])


def test_graph_without_edges():
    no_edges = np.zeros(0, int)
    parses = block_orders.draw_parses(
        np.random.default_rng(0), 3, no_edges, no_edges, np.zeros(0), 2
    )
    np.testing.assert_array_equal(parses.num_groups, 1)
    np.testing.assert_array_equal(parses.groups[:, 0], [[0, 1], [0, 1]])
