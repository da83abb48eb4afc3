import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import dag
from tests import helpers

SEEDS = st.integers(0, 2**32 - 1)
few = hypothesis.settings(max_examples=25, deadline=None)


def _random(seed, largest=14):
    rng = np.random.default_rng(seed)
    return rng, helpers.random_dag(
        rng, int(rng.integers(1, largest)), edge_probability=rng.random()
    )


def _plain_order(graph):
    waiting, order = set(range(graph.num_ops)), []
    while waiting:
        blocked = graph.receivers[np.isin(graph.senders, list(waiting))]
        order.append(min(waiting - set(blocked.tolist())))
        waiting.remove(order[-1])
    return order


@few
@hypothesis.given(SEEDS)
def test_random_orders(seed):
    rng, graph = _random(seed)
    assert dag.topological_order(graph).tolist() == _plain_order(graph)
    place = np.argsort(dag.topological_order(graph))  # as numbers these are in order already
    ends = place[graph.senders], place[graph.receivers]
    assert dag.sort_nodes(graph.num_ops, *ends).tolist() == list(range(graph.num_ops))

    edges = dag.sort_edges(dag.topological_order(graph), graph.receivers)
    assert sorted(edges.tolist()) == list(range(graph.num_edges))
    for nth, edge in enumerate(edges):  # nothing that comes later ends where it begins
        assert graph.senders[edge] not in graph.receivers[edges[nth:]]

    weights = rng.random(graph.num_ops)
    total = weights.copy()
    for node in dag.topological_order(graph):
        before = graph.senders[graph.receivers == node]
        total[node] += max(total[before], default=0.0)
    paths = dag.longest_paths(graph.senders, graph.receivers, weights)
    assert paths.tolist() == total.tolist()


def test_depth_first_order():
    # Two branches, 0 -> 1 -> 2 and 3 -> 4 -> 5, join in 6.
    senders, receivers = np.array([0, 1, 3, 4, 2, 5]), np.array([1, 2, 4, 5, 6, 6])
    assert dag.depth_first_order(7, senders, receivers).tolist() == [0, 1, 2, 3, 4, 5, 6]
    interleaved = np.array([0, 2, 4, 1, 3, 5, 6])  # the same graph, numbered in turns
    order = dag.depth_first_order(7, interleaved[senders], interleaved[receivers])
    assert order.tolist() == [0, 2, 4, 1, 3, 5, 6]


def test_integer_sums_are_exact():
    values = np.array([[2**60, 1], [1, 2], [3, 4]])
    assert dag.sum_by_part(np.array([1, 1, 0]), values).tolist() == [[3, 4], [2**60 + 1, 3]]


@few
@hypothesis.given(SEEDS)
def test_random_levels_and_reachability(seed):
    _, graph = _random(seed)
    order = dag.topological_order(graph)
    levels = dag.levels(graph.num_ops, graph.senders, graph.receivers)
    assert order.dtype == levels.dtype == np.int32
    position = np.argsort(order)
    assert sorted(order) == list(range(graph.num_ops))
    assert np.all(position[graph.senders] < position[graph.receivers])

    adjacency = np.zeros((graph.num_ops, graph.num_ops), bool)
    adjacency[graph.senders, graph.receivers] = True
    walks, longest, reached = np.eye(graph.num_ops, dtype=bool), np.zeros(graph.num_ops), 0
    for length in range(1, graph.num_ops + 1):
        walks = walks @ adjacency
        longest[walks.any(axis=0)] = length
        reached = reached | walks
    np.testing.assert_array_equal(levels, longest)
    np.testing.assert_array_equal(dag.reachability(graph), reached)


@few
@hypothesis.given(SEEDS)
def test_random_connected_parts(seed):
    rng, graph = _random(seed)
    placement = rng.integers(0, 3, graph.num_ops)
    expected = np.arange(graph.num_ops)
    for _ in range(graph.num_ops):  # the smallest member spreads along the kept edges
        for sender, receiver in zip(graph.senders, graph.receivers, strict=True):
            if placement[sender] == placement[receiver]:
                expected[[sender, receiver]] = expected[[sender, receiver]].min()
    expected = np.unique(expected, return_inverse=True)[1]
    np.testing.assert_array_equal(dag.connected_parts(graph, placement), expected)


def test_quotient():
    graph = helpers.fork_join(3)
    senders, receivers = dag.quotient(graph.senders, graph.receivers, np.array([0, 1, 1, 2, 0]))
    edges = list(zip(senders.tolist(), receivers.tolist(), strict=True))
    assert edges == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert senders.dtype == np.int32
    assert len(dag.sort_nodes(3, senders, receivers)) < 3  # it leaves out cycles


def test_wrong_orders_are_refused():
    graph = helpers.diamond()
    dag.check_order(graph, np.int32([0, 2, 1, 3]))
    for order, message in (
        ([0, 1, 2], "each of the 4 operations"),
        ([0, 1, 1, 3], "each of the 4 operations"),
        ([1, 0, 2, 3], "after its inputs"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            dag.check_order(graph, np.int32(order))
        assert "\n" not in str(caught.value)
