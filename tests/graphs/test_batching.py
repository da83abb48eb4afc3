import itertools

import jraph
import numpy as np
import pytest

from placement.graphs import batching
from placement.types import OpGraph
from tests import helpers


def _to_tuple(graph: OpGraph, **sizes: int) -> jraph.GraphsTuple:
    features = np.arange(3.0 * graph.num_ops).reshape(graph.num_ops, 3) + 1
    allowed = np.zeros((graph.num_ops, 2), bool)
    return batching.to_graphs_tuple(graph.senders, graph.receivers, features, allowed, **sizes)


def _pairs(graph: jraph.GraphsTuple) -> list[tuple[int, int]]:
    real = graph.edges["mask"]
    return list(zip(graph.senders[real].tolist(), graph.receivers[real].tolist(), strict=True))


def test_buckets():
    sizes = [batching.bucket(size) for size in range(3000)]
    assert all(bucket > size for size, bucket in enumerate(sizes))  # a padding item fits
    buckets = sorted(set(sizes))
    assert buckets[0] == sizes[0] == 16
    assert len(buckets) < 30
    assert all(large <= np.ceil(1.25 * small) for small, large in itertools.pairwise(buckets))


def test_padding():
    graph = _to_tuple(helpers.diamond(), num_nodes=7, num_edges=6)
    assert (graph.nodes["features"][:4] > 0).all()
    assert (graph.nodes["features"][4:] == 0).all()
    assert not graph.nodes["allowed"][:4].any()
    assert graph.nodes["allowed"][4:].all()
    assert graph.senders[4:].tolist() == graph.receivers[4:].tolist() == [6, 6]


def test_pairs_of_neighbours():
    rng = np.random.default_rng(0)
    for _ in range(50):
        graph = helpers.random_dag(rng, int(rng.integers(1, 20)))
        ends = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
        assert _pairs(_to_tuple(graph)) == sorted(set(ends))


@pytest.mark.parametrize("sizes", [{"num_nodes": 4}, {"num_edges": 4}, {"num_nodes": 2}])
def test_small_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="4 nodes and 4 edges; pass at least one more") as error:
        _to_tuple(helpers.diamond(), **sizes)
    assert "\n" not in str(error.value)
