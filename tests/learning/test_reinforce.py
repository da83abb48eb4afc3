import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from placement.instance import Instance
from placement.learning import reinforce
from placement.learning.base import Settings
from placement.types import Array, Sample
from tests import helpers

NUM_OPS, NUM_SAMPLES = 4, 20_000
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


def _latency_s(placements: Array) -> Array:
    costs = helpers.random_costs(np.random.default_rng(3), helpers.diamond(), 2)
    return Instance(helpers.diamond(), costs, "serial", ("a", "b")).evaluate(placements)


def _learned_gradient(
    settings: Settings, latency_of: Callable = _latency_s, reference_s: float = 100.0
) -> tuple[Array, Array, Array]:
    """Returns initial parameters, latencies of samples, and the gradient of the loss on them.

    Adam's first moment after one update is (1 - 0.9) times the gradient.
    """
    learner = reinforce.make_learner(POLICY, settings)
    state, samples = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    latency_s = latency_of(samples.placement[:, 0, :NUM_OPS])
    updated_state, _ = learner.update(state, GRAPH, samples, latency_s[:, None], reference_s)
    gradient = optax.tree.get(updated_state.opt_state, "mu") / (1 - 0.9)
    return state.params, latency_s, gradient.reshape(state.params.shape)


def _expected_reward_gradient(params: Array, reference_s: float = 100.0) -> Array:
    """Enumerates placements: the gradient of the sum of probability times reference / latency."""
    placements = helpers.all_placements(NUM_OPS, 2)
    padded = np.pad(placements, ((0, 0), (0, 16 - NUM_OPS)))[:, None]
    reward = reference_s / _latency_s(placements)

    def expected(params: Array) -> Array:
        enumerated = Sample(padded, np.zeros(()), np.zeros(()))
        return jnp.exp(POLICY.log_prob(params, GRAPH, enumerated).log_prob[:, 0]) @ reward

    return jax.grad(expected)(params)


def _settings(**changes: object) -> Settings:
    plain = Settings(
        num_samples=NUM_SAMPLES, reward="inverse", entropy_weight=0.0, max_grad_norm=np.inf
    )
    return dataclasses.replace(plain, **changes)


def _relative_error(estimate: Array, exact: Array) -> float:
    return float(jnp.linalg.norm(estimate - exact) / jnp.linalg.norm(exact))


@pytest.mark.slow
def test_gradient_is_that_of_enumeration():
    params, latency_s, gradient = _learned_gradient(_settings())
    exact = -_expected_reward_gradient(params)
    assert _relative_error(gradient * np.std(100.0 / latency_s), exact) < 0.05


def test_equal_latencies_teach_entropy_only():
    def constant(placements: Array) -> Array:
        return jnp.full(len(placements), 0.3)

    params, _, gradient = _learned_gradient(_settings(entropy_weight=0.25), constant, 0.7)

    def entropy(params: Array) -> Array:
        return -(jax.nn.softmax(params) * jax.nn.log_softmax(params))[:NUM_OPS].sum()

    weight = 0.25 / np.sqrt(NUM_OPS)
    np.testing.assert_allclose(gradient, -weight * jax.grad(entropy)(params), rtol=1e-3, atol=1e-6)


def test_gradient_is_clipped():
    settings = _settings(num_samples=64, max_grad_norm=1e-3)
    _, _, gradient = _learned_gradient(settings)
    assert float(jnp.linalg.norm(gradient)) == pytest.approx(1e-3, rel=1e-3)
