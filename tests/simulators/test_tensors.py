"""Who reads which tensor, however many do."""

import jax
import numpy as np
import pytest

from placement.simulators import OBJECTIVES, tensors
from tests import helpers


def test_many_readers(monkeypatch):
    rng = np.random.default_rng(0)
    graph = helpers.fork_join(13)
    costs = helpers.random_costs(rng, graph, 3)
    costs = costs._replace(fusion_loss_s=rng.random(graph.num_edges, np.float32))
    problem = helpers.as_problem(graph, costs, "serial")
    (wide,) = (b for b in problem.tensor_blocks if b.readers.shape[1] > 1)
    placement = rng.integers(0, 3, (graph.num_ops, 5), np.int32)
    sets = tensors.make_sets(placement, 3)
    one_by_one = tensors.find_devices(wide, sets)
    monkeypatch.setattr(tensors, "_MAX_UNROLLED", 1)
    looped = tensors.find_devices(wide, sets)
    for found, expected in zip(looped, one_by_one, strict=True):
        np.testing.assert_array_equal(found, expected)
    expected_s = [
        sum(
            fusion_loss_s
            for fusion_loss_s, u, v in zip(
                costs.fusion_loss_s, graph.senders, graph.receivers, strict=True
            )
            if u == 0 and row[u] != row[v]
        )
        for row in placement.T
    ]
    np.testing.assert_allclose(looped.fusion_loss_s[0], expected_s, rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_buckets_share_shapes(objective):
    shapes = set()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        graph = helpers.random_dag_of_size(rng, 26 + seed, 41 + seed, 30 + seed)
        costs = helpers.random_costs(rng, graph, 3)
        costs = costs._replace(
            transfer_latency_s=1 - np.eye(3, dtype=np.float32),
            transfer_s_per_byte=np.zeros((3, 3), np.float32),
            capacity_bytes=np.full(3, np.inf, np.float32),
        )
        problem = helpers.as_problem(graph, costs, objective)
        shapes.add(str(jax.tree.map(np.shape, problem.padded_tables)))
    assert len(shapes) == 1
