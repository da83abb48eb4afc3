import itertools

import jraph
import numpy as np
import pytest

from placement.graphs import batching, opgraph
from placement.types import OpGraph
from tests import helpers


def _to_tuple(graph: OpGraph, **sizes: int) -> jraph.GraphsTuple:
    features = np.arange(3.0 * graph.num_ops).reshape(graph.num_ops, 3) + 1
    allowed = np.zeros((graph.num_ops, 2), bool)
    return batching.to_graphs_tuple(graph.senders, graph.receivers, features, allowed, **sizes)


def _pairs(graph: jraph.GraphsTuple) -> list[tuple[int, int]]:
    real = graph.edges["mask"]
    return list(zip(graph.senders[real].tolist(), graph.receivers[real].tolist(), strict=True))


def test_a_bucket_holds_its_size_and_one_more():
    sizes = np.arange(3000)
    buckets = np.array([batching.bucket(size) for size in sizes])
    assert (buckets > sizes).all()
    assert (np.diff(buckets) >= 0).all()


def test_buckets_are_few_and_waste_little():
    buckets = sorted({batching.bucket(size) for size in range(3000)})
    assert buckets[0] == batching.bucket(0) == 16
    assert len(buckets) < 30
    assert all(large <= np.ceil(1.25 * small) for small, large in itertools.pairwise(buckets))


def test_a_size_that_fills_a_bucket_takes_the_next():
    assert batching.bucket(15) == 16
    assert batching.bucket(16) == 20


def test_padding_goes_to_the_buckets_by_default():
    graph = _to_tuple(helpers.chain(16))
    assert graph.nodes["features"].shape == (20, 3)
    assert graph.senders.shape == graph.receivers.shape == (16,)
    assert graph.n_node.tolist() == [20]
    assert graph.n_edge.tolist() == [16]


def test_given_sizes_are_taken():
    graph = _to_tuple(helpers.diamond(), num_nodes=5, num_edges=7)
    assert graph.nodes["features"].shape == (5, 3)
    assert graph.senders.shape == (7,)


def test_masks_mark_what_is_real():
    graph = _to_tuple(helpers.diamond(), num_nodes=7, num_edges=6)
    assert graph.nodes["mask"].tolist() == [True] * 4 + [False] * 3
    assert graph.edges["mask"].tolist() == [True] * 4 + [False] * 2


def test_padding_is_zero_allowed_everywhere_and_joins_the_last_node_to_itself():
    graph = _to_tuple(helpers.diamond(), num_nodes=7, num_edges=6)
    assert (graph.nodes["features"][:4] > 0).all()
    assert (graph.nodes["features"][4:] == 0).all()
    assert not graph.nodes["allowed"][:4].any()
    assert graph.nodes["allowed"][4:].all()
    assert graph.senders[4:].tolist() == graph.receivers[4:].tolist() == [6, 6]


def test_types_are_those_that_jax_takes_unchanged():
    graph = _to_tuple(helpers.diamond())
    for indices in (graph.senders, graph.receivers, graph.n_node, graph.n_edge):
        assert indices.dtype == np.int32
    assert graph.nodes["features"].dtype == np.float32
    assert {graph.nodes["mask"].dtype, graph.nodes["allowed"].dtype} == {np.dtype(bool)}
    assert graph.edges["mask"].dtype == bool


def test_neighbours_are_joined_once_producer_first():
    graph = opgraph.make_graph(
        name="parallel",
        op_names=["a", "b", "c"],
        op_types=["Split", "Add", "Add"],
        senders=[2, 2, 1, 2],
        receivers=[1, 1, 0, 0],
        edge_bytes=[1, 2, 3, 1],
        tensors=[0, 1, 2, 0],
    )
    assert _pairs(_to_tuple(graph)) == [(1, 0), (2, 0), (2, 1)]


def test_random_graphs_keep_exactly_their_pairs_of_neighbours():
    rng = np.random.default_rng(0)
    for _ in range(50):
        graph = helpers.random_dag(rng, int(rng.integers(1, 20)))
        ends = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
        assert _pairs(_to_tuple(graph)) == sorted(set(ends))


def test_a_graph_without_edges_has_only_padding_edges():
    graph = _to_tuple(helpers.chain(1))
    assert not graph.edges["mask"].any()
    assert graph.senders.tolist() == [15] * 16


@pytest.mark.parametrize("sizes", [{"num_nodes": 4}, {"num_edges": 4}, {"num_nodes": 2}])
def test_sizes_without_room_for_padding_are_refused_in_one_line(sizes):
    with pytest.raises(ValueError, match="4 nodes and 4 edges; give at least one more") as error:
        _to_tuple(helpers.diamond(), **sizes)
    assert "\n" not in str(error.value)
