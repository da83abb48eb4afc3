import jax
import jraph
import numpy as np
import pytest

from placement.learning import base
from placement.methods import learned
from placement.policies import hierarchical
from tests import helpers

GRAPH = helpers.batched(helpers.diamond())


def _pool(group: list[int], num_groups: int, graph: jraph.GraphsTuple = GRAPH):
    return hierarchical.pool(graph, np.array(group + [1] * 12), num_groups)


def test_pooled_groups_by_hand():
    """op0 and op2 in group 0, op1 in 2, op3 in 1, none in 3; padding says 1 and is in none."""
    pooled = _pool([0, 2, 0, 1], 4)
    features = GRAPH.nodes["features"]
    edges_to = [[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    edges_from = [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    summed = [features[0] + features[2], features[3], features[1], np.zeros(5)]
    every = np.concatenate([edges_to, edges_from, [[2], [1], [1], [0]], summed], axis=1)
    np.testing.assert_allclose(
        pooled.embedding, np.sign(every) * np.log1p(np.abs(every)), rtol=1e-6, atol=1e-7
    )
    assert pooled.present.tolist() == [True, True, True, False]


def test_groups_obey_their_members():
    allowed = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]], bool)
    pooled = _pool([0, 0, 1, 1], 4, helpers.batched(helpers.diamond(), 3, allowed=allowed))
    assert pooled.allowed.astype(int).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    pooled = _pool([0, 1, 0, 1], 2, helpers.batched(helpers.diamond(), 3, allowed=allowed))
    assert pooled.allowed.astype(int).tolist() == [[1, 0, 0], [0, 1, 1]]


@pytest.mark.slow
def test_groups_share_a_device():
    """A search starts near the uniform policy: of the devices, each group in use counts alike."""
    policy, key = hierarchical.make(num_groups=8, num_devices=2, hidden_size=32), jax.random.key(0)
    params = base.initial_params(policy.init, key, GRAPH)
    drawn = jax.jit(policy.sample, static_argnums=3)(params, key, GRAPH, 64)
    group, device = (np.asarray(x)[:, 0, :4] for x in (drawn.latent, drawn.placement))
    is_same_group = group[:, :, None] == group[:, None]
    is_same_device = device[:, :, None] == device[:, None]
    assert is_same_group.sum() > 4 * 64  # not only with themselves
    assert is_same_device[is_same_group].all()
    assert not is_same_device[~is_same_group].all()
    num_used = np.array([len(set(row)) for row in group.tolist()])
    assert len(set(num_used.tolist())) > 1
    np.testing.assert_allclose(drawn.entropy[:, 0], num_used * np.log(2), atol=0.05)


@pytest.mark.parametrize(("num_devices", "expected"), [(2, 40), (13, 256)])
def test_paper_number_of_groups(num_devices, expected):
    method = learned.make("hierarchical", num_devices)
    graph = helpers.batched(helpers.chain(300), num_devices)
    params = jax.eval_shape(method.policy.init, jax.random.key(0), graph)
    assert params["grouper"]["params"]["Dense_0"]["bias"].shape == (expected,)
    assert params["grouper"]["params"]["Embedding_0"]["Dense_0"]["bias"].shape == (64,)
