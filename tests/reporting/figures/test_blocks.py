import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.graphs import coarsen, dag
from placement.reporting.figures import blocks
from tests import helpers
from tests.reporting import drawn


def _details(graph, num_devices, placement=None):
    found = drawn.placed(graph, coarsen.coarsen(graph), num_devices)
    if placement is None:
        return found
    return dataclasses.replace(found, placement=np.asarray(placement, np.int32))


def _uncoarsened(graph, placement):
    assignment = np.arange(graph.num_ops, dtype=np.int32)
    coarsening = coarsen.Coarsening(graph, assignment, np.arange(graph.num_edges, dtype=np.int32))
    found = drawn.placed(graph, coarsening, int(max(placement)) + 1)
    return dataclasses.replace(found, placement=np.array(placement, np.int32))


def _assert_valid(details, parts):
    assert parts.dtype == np.int32
    np.testing.assert_array_equal(np.unique(parts), np.arange(parts.max() + 1))
    pairs = np.unique(np.stack([parts, details.placement]), axis=1)
    assert pairs.shape[1] == parts.max() + 1  # a device each
    coarse = details.coarse
    senders, receivers = dag.quotient(coarse.senders, coarse.receivers, parts)
    num_parts = int(parts.max()) + 1
    assert len(dag.sort_nodes(num_parts, senders, receivers)) == num_parts
    return senders, receivers


@given(
    seed=st.integers(0, 2**32 - 1),
    num_ops=st.integers(2, 40),
    num_devices=st.integers(1, 4),
    most=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_blocks_are_valid(seed, num_ops, num_devices, most):
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, num_ops, edge_probability=0.15)
    num_coarse = coarsen.coarsen(graph).graph.num_ops
    details = _details(graph, num_devices, rng.integers(0, num_devices, num_coarse))
    parts = blocks.blocks(details, most)
    senders, receivers = _assert_valid(details, parts)
    if num_coarse > most:
        assert np.all(senders < receivers)
    if num_devices == 1:
        assert parts.max() < max(most, 1)


def test_few_operations_stay_single():
    details = drawn.diamond()
    np.testing.assert_array_equal(blocks.blocks(details, 4), [0, 1, 2, 3])
    np.testing.assert_array_equal(blocks.blocks(details, 3), [0, 1, 0, 2])


def test_branches_stay_apart():
    graph = helpers.fork_join(3, 4)  # layers 0 to 5; branches 1-4, 5-8, 9-12
    details = _uncoarsened(graph, [0] * 14)
    in_twos = [0, 0, 1, 1, 4, 0, 2, 2, 4, 0, 3, 3, 4, 4]  # the ends join what they touch
    np.testing.assert_array_equal(blocks.blocks(details, 5), in_twos)
    side_by_side = [0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(blocks.blocks(details, 4), side_by_side)
    np.testing.assert_array_equal(blocks.blocks(details, 1), np.zeros(14))


@pytest.mark.parametrize("most", [30, 60, 120])
def test_thousand_operations_become_few_blocks(most):
    details = drawn.large(1_000)
    parts = blocks.blocks(details, most)
    _assert_valid(details, parts)
    stages = 39  # the placement alternates in runs of 25 operations
    assert parts.max() < max(most, stages)
    assert parts.max() >= most // 2


def test_summaries_name_slowest_types():
    details = drawn.diamond()
    types = ("Convolution", "MatMul", "Convolution", "Relu")
    graph = dataclasses.replace(details.graph, op_types=types)
    details = dataclasses.replace(details, graph=graph, coarse=graph)
    parts = np.array([0, 1, 0, 0])
    texts = [["3 ops", "Convolution x2", "Relu"], ["op1", "MatMul"]]
    assert blocks.summaries(details, parts) == texts
