import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.graphs import dag
from placement.reporting.figures import layout
from placement.zoo import synthetic
from tests import helpers


def _layered(graph):
    return layout.layered(graph.num_ops, graph.senders, graph.receivers)


def _assert_fits(graph, found):
    for number in np.unique(found.x):
        assert np.all(np.diff(np.sort(found.y[found.x == number])) >= 1 - 1e-9)
    ends = np.array([path[[0, -1]] for path in found.paths]).reshape(-1, 2, 2)
    nodes = np.stack([found.x, found.y], axis=1)
    np.testing.assert_array_equal(ends[:, 0], nodes[graph.senders])
    np.testing.assert_array_equal(ends[:, 1], nodes[graph.receivers])
    assert all(np.all(np.diff(path[:, 0]) >= 1) for path in found.paths)
    assert found.y.min() >= 0


@given(seed=st.integers(0, 2**32 - 1), num_ops=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_nodes_are_apart_and_edges_go_forward_past_every_layer(seed, num_ops):
    graph = helpers.random_dag(np.random.default_rng(seed), num_ops, edge_probability=0.2)
    found = _layered(graph)
    _assert_fits(graph, found)
    assert all(np.all(np.diff(path[:, 0]) == 1) for path in found.paths)
    again = _layered(graph)
    np.testing.assert_array_equal(found.y, again.y)


def test_chains_are_straight_and_branches_lie_side_by_side():
    graph = helpers.fork_join(3, 2)
    found = _layered(graph)
    np.testing.assert_array_equal(found.x, [0, 1, 2, 1, 2, 1, 2, 3])
    np.testing.assert_allclose(found.y, [1, 0, 0, 1, 1, 2, 2, 1], atol=1e-9)


def test_what_serves_one_node_stands_before_it():
    # A chain of four; 4 -> 5 -> 3 serves its end, 6 its end and its second node.
    edges = np.array([(0, 1), (1, 2), (2, 3), (4, 5), (5, 3), (6, 1), (6, 3)])
    found = layout.layers(7, *edges.T)
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 1, 2, 0])


def test_edges_of_a_sender_share_their_way_until_they_part():
    # A chain of six, the first of which is also read by the fourth and the last.
    edges = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 3), (0, 5)])
    found = layout.layered(6, *edges.T)
    short, long = found.paths[-2:]
    np.testing.assert_array_equal(short[:3], long[:3])
    beside = long[1:-1, 1] - found.y[1:-1]
    assert np.all(np.abs(beside) >= 0.6 - 1e-9)  # clear of the chain, on one side of it
    assert np.ptp(np.sign(beside)) == 0
    assert np.ptp(long[1:-1, 1]) < 0.2  # and nearly straight


def test_crossings_that_an_order_avoids_are_avoided():
    # Ten chains from one node, numbered so that every layer is in another order.
    rng = np.random.default_rng(0)
    rows = np.array([rng.permutation(column) for column in 1 + np.arange(30).reshape(3, 10)])
    steps = np.stack([rows[:-1].ravel(), rows[1:].ravel()])
    firsts = np.stack([np.zeros(10, int), rows[0]])
    found = layout.layered(31, *np.concatenate([firsts, steps], axis=1))
    np.testing.assert_allclose(found.y[steps[0]], found.y[steps[1]])


@pytest.mark.parametrize("family", ["layered", "series_parallel", "chain"])
def test_a_thousand_operations_fit(family):
    graph = synthetic.build(f"synthetic:family={family},ops=1000,seed=0")
    found = _layered(graph)
    _assert_fits(graph, found)
    np.testing.assert_array_equal(found.x, dag.levels(graph))  # of one source, nothing moves


def test_edges_over_too_many_layers_go_straight():
    count = 500
    ends = np.arange(count)
    far = np.flatnonzero(ends < count // 2)
    senders = np.concatenate([ends[:-1], far])
    receivers = np.concatenate([ends[1:], count - 1 - far])
    found = layout.layered(count, senders, receivers)
    lengths = np.array([len(path) for path in found.paths[count - 1 :]])
    assert lengths.sum() - 2 * len(lengths) <= 20_000
    assert lengths[0] == 2
    assert lengths[-2] == 4  # from 248 to 251


def test_spread_moves_no_more_than_it_must():
    moved = layout.spread(np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(moved, [-0.5, 0.5, 5.0])
    heavy = layout.spread(np.zeros(2), np.ones(1), np.array([1.0, 3.0]))
    np.testing.assert_allclose(heavy, [-0.75, 0.25])
