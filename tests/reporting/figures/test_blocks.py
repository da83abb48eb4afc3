import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.graphs import coarsen, dag
from placement.reporting.figures import blocks
from tests import helpers
from tests.reporting import drawn


def assert_valid(details, parts):
    num_parts = int(parts.max()) + 1
    np.testing.assert_array_equal(np.unique(parts), np.arange(num_parts))
    pairs = np.unique(np.stack([parts, details.placement]), axis=1)
    assert pairs.shape[1] == num_parts  # a device each
    coarse = details.coarse
    senders, receivers = dag.quotient(coarse.senders, coarse.receivers, parts)
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
    details = drawn.placed(graph, coarsen.coarsen(graph), num_devices)
    placement = rng.integers(0, num_devices, details.coarse.num_ops).astype(np.int32)
    details = dataclasses.replace(details, placement=placement)
    parts = blocks.blocks(details, most)
    senders, receivers = assert_valid(details, parts)
    if details.coarse.num_ops > most:
        assert np.all(senders < receivers)
    if num_devices == 1:
        assert parts.max() < max(most, 1)


def test_few_operations_stay_single():
    details = drawn.diamond()
    np.testing.assert_array_equal(blocks.blocks(details, 4), [0, 1, 2, 3])
    np.testing.assert_array_equal(blocks.blocks(details, 3), [0, 1, 0, 2])


def test_branches_stay_apart():
    graph = helpers.fork_join(3, 4)  # layers 0 to 5; branches 1-4, 5-8, 9-12
    uncoarsened = coarsen.Coarsening(
        graph, np.arange(14, dtype=np.int32), np.arange(graph.num_edges, dtype=np.int32)
    )
    details = drawn.placed(graph, uncoarsened, 1)
    in_twos = [0, 0, 1, 1, 4, 0, 2, 2, 4, 0, 3, 3, 4, 4]  # the ends join what they touch
    np.testing.assert_array_equal(blocks.blocks(details, 5), in_twos)
    side_by_side = [0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(blocks.blocks(details, 4), side_by_side)


def test_summaries_name_slowest_types():
    details = drawn.diamond()
    types = ("Convolution", "MatMul", "Convolution", "Relu")
    graph = dataclasses.replace(details.graph, op_types=types)
    details = dataclasses.replace(details, graph=graph, coarse=graph)
    texts = [["3 ops", "Convolution x2", "Relu"], ["op1", "MatMul"]]
    assert blocks.summaries(details, np.array([0, 1, 0, 0])) == texts
