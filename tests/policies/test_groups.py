"""Groups of consecutive operations."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np

from placement.graphs import coarsen, dag
from placement.policies import groups
from placement.zoo import synthetic
from tests import helpers

SEEDS = st.integers(0, 2**32 - 1)


def _group(graph, num_groups, weight=None, kinds=None):
    weight = np.ones(graph.num_ops) if weight is None else weight
    kinds = np.zeros(graph.num_ops, int) if kinds is None else kinds
    edges = groups.Edges(graph.senders, graph.receivers, graph.edge_bytes)
    return coarsen.merge(graph, groups.assign_groups(edges, weight, kinds, num_groups))


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(SEEDS)
def test_groups_are_acyclic(seed):
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, int(rng.integers(1, 30)), edge_probability=rng.random() / 2)
    weight, kinds = rng.random(graph.num_ops), rng.integers(0, 2, graph.num_ops)
    num_groups = int(rng.integers(1, 10))
    order = dag.depth_first_order(graph.num_ops, graph.senders, graph.receivers)
    np.testing.assert_array_equal(np.sort(order), np.arange(graph.num_ops))
    place = np.argsort(order)
    assert (place[graph.senders] < place[graph.receivers]).all()
    coarse, assignment, edges = _group(graph, num_groups, weight, kinds)
    assert len(dag.sort_nodes(coarse.num_ops, coarse.senders, coarse.receivers)) == coarse.num_ops
    assert coarse.num_ops <= num_groups + np.count_nonzero(np.diff(kinds[order]))
    for part in range(coarse.num_ops):
        assert len(set(kinds[assignment == part])) == 1
    np.testing.assert_array_equal(assignment[graph.senders[edges]], coarse.senders)
    assert _group(graph, num_groups).graph.num_ops <= num_groups


def test_groups_end_at_small_tensors():
    edge_bytes = np.full(11, 100)
    edge_bytes[[2, 8]] = 1  # after op2 and op8; equal groups would end after op3 and op7
    graph = dataclasses.replace(helpers.chain(12), edge_bytes=edge_bytes)
    coarse, assignment, _ = _group(graph, 3)
    np.testing.assert_array_equal(assignment, np.repeat([0, 1, 2], [3, 6, 3]))
    np.testing.assert_array_equal(coarse.edge_bytes, [1, 1])


def test_groups_are_balanced():
    graph = synthetic.build("synthetic:family=layered,ops=5000,seed=1")
    weight = np.random.default_rng(0).uniform(0.5, 1.5, graph.num_ops)
    coarse, assignment, _ = _group(graph, 100, weight)
    assert 90 <= coarse.num_ops <= 100
    total = np.bincount(assignment, weight)
    assert total.max() < 2.1 * weight.sum() / 100
