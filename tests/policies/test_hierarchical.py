import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.learning import base
from placement.methods import learned
from placement.policies import hierarchical
from placement.types import Policy, Sample
from tests import helpers

GRAPH = helpers.batched(helpers.diamond())
SMALL = {"num_devices": 2, "hidden_size": 8}


@functools.cache
def _compiled(policy: Policy) -> Callable[..., Sample]:
    return jax.jit(policy.sample, static_argnums=3)


def _draw(policy: Policy, graph: jraph.GraphsTuple = GRAPH) -> Sample:
    """64 samples under initial parameters."""
    key = jax.random.key(0)
    return _compiled(policy)(base.initial_params(policy.init, key, graph), key, graph, 64)


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


def test_followers_are_in_no_group():
    graph = jax.tree.map(np.copy, GRAPH)
    graph.nodes["mask"][1] = False
    graph.nodes["allowed"][1] = False
    features = graph.nodes["features"]
    pooled = _pool([0, 0, 0, 2], 3, graph)
    np.testing.assert_allclose(
        np.expm1(np.abs(pooled.embedding[:, :7])),
        [[1, 0, 1, 1, 0, 0, 2], [0] * 7, [0, 0, 0, 1, 0, 0, 1]],
        atol=1e-6,
    )
    np.testing.assert_allclose(
        np.expm1(np.abs(pooled.embedding[0, 7:])), np.abs(features[0] + features[2]), rtol=1e-5
    )
    assert pooled.present.tolist() == [True, False, True]
    assert pooled.allowed.tolist() == [[True, True], [False, False], [True, True]]


EIGHT = hierarchical.make(num_groups=8, num_devices=2, hidden_size=32)


@functools.cache
def _drawn_of_eight() -> Sample:
    return _draw(EIGHT)


@pytest.mark.slow
def test_empty_groups_cost_nothing():
    """A search starts near the uniform policy: of the devices, each group in use counts alike."""
    drawn = _drawn_of_eight()
    used = np.array([len(set(row)) for row in np.asarray(drawn.latent)[:, 0, :4].tolist()])
    assert len(set(used.tolist())) > 1
    np.testing.assert_allclose(drawn.entropy[:, 0], used * np.log(2), atol=0.05)


@pytest.mark.slow
def test_groups_start_as_slices():
    slices = np.repeat(np.arange(3), 4)
    for pull, least, most in ((20.0, 0.9, 1.0), (0.0, 0.0, 0.5)):
        policy = hierarchical.make(num_groups=3, slices=pull, **SMALL)
        latent = _draw(policy, helpers.batched(helpers.chain(12))).latent
        assert least <= (np.asarray(latent)[:, 0, :12] == slices).mean() <= most


@pytest.mark.slow
def test_members_share_a_device():
    drawn = _drawn_of_eight()
    group, device = (np.asarray(x)[:, 0, :4] for x in (drawn.latent, drawn.placement))
    together = group[:, :, None] == group[:, None]
    alike = device[:, :, None] == device[:, None]
    assert together.sum() > 4 * 64  # not only with themselves
    assert alike[together].all()
    assert not alike[~together].all()


def test_random_groups_follow_their_seed():
    groups = hierarchical.random_groups(jnp.float32(0), 1000, 8)
    np.testing.assert_array_equal(hierarchical.random_groups(jnp.float32(0), 400, 8), groups[:400])
    assert (hierarchical.random_groups(jnp.float32(1), 1000, 8) != groups).sum() > 800
    assert np.bincount(groups, minlength=8).min() > 90


@pytest.mark.parametrize(("num_devices", "expected"), [(2, 40), (13, 256)])
def test_paper_number_of_groups(num_devices, expected):
    method = learned.make("hierarchical:variant=paper", num_devices, False)
    graph = helpers.batched(helpers.chain(300), num_devices)
    params = jax.eval_shape(method.policy.init, jax.random.key(0), graph)
    assert params["grouper"]["params"]["Dense_0"]["bias"].shape == (expected,)
    assert params["grouper"]["params"]["Embedding_0"]["Dense_0"]["bias"].shape == (64,)
