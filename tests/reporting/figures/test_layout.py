import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.reporting.figures import layout
from tests import helpers


def draw_valid(graph):
    """Draws a graph, and checks that nodes are apart and lines lead from node to node."""
    drawing = layout.layered(graph.num_ops, graph.senders, graph.receivers)
    for number in np.unique(drawing.x):
        assert np.all(np.diff(np.sort(drawing.y[drawing.x == number])) >= 1 - 1e-9)
    ends = np.array([path[[0, -1]] for path in drawing.paths]).reshape(-1, 2, 2)
    nodes = np.stack([drawing.x, drawing.y], axis=1)
    np.testing.assert_array_equal(ends[:, 0], nodes[graph.senders])
    np.testing.assert_array_equal(ends[:, 1], nodes[graph.receivers])
    assert all(np.all(np.diff(path[:, 0]) >= 1) for path in drawing.paths)
    assert drawing.y.min() >= 0
    return drawing


@given(seed=st.integers(0, 2**32 - 1), num_ops=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_random_graphs_are_drawn_validly(seed, num_ops):
    graph = helpers.random_dag(np.random.default_rng(seed), num_ops, edge_probability=0.2)
    drawing = draw_valid(graph)
    assert all(np.all(np.diff(path[:, 0]) == 1) for path in drawing.paths)
    np.testing.assert_array_equal(drawing.y, draw_valid(graph).y)


def test_constants_stand_before_their_reader():
    # A chain of four; 4 -> 5 -> 3 serves its end, 6 its end and its second node.
    edges = np.array([(0, 1), (1, 2), (2, 3), (4, 5), (5, 3), (6, 1), (6, 3)])
    np.testing.assert_array_equal(layout.layers(7, *edges.T), [0, 1, 2, 3, 1, 2, 0])


def test_avoidable_crossings_are_avoided():
    # Ten chains from one node, numbered so that every layer is in another order.
    rng = np.random.default_rng(0)
    rows = np.array([rng.permutation(column) for column in 1 + np.arange(30).reshape(3, 10)])
    steps = np.stack([rows[:-1].ravel(), rows[1:].ravel()])
    firsts = np.stack([np.zeros(10, int), rows[0]])
    drawing = layout.layered(31, *np.concatenate([firsts, steps], axis=1))
    np.testing.assert_allclose(drawing.y[steps[0]], drawing.y[steps[1]])
