"""Who reads which tensor, however many do."""

import numpy as np

from placement.simulators import tensors
from tests import helpers


def test_many_readers_are_looked_at_in_a_loop_as_few_are_one_by_one(monkeypatch):
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
