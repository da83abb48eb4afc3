import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from placement import simulators
from placement.learning import reinforce
from placement.learning.reinforce import Settings
from placement.types import Array, Problem, Sample
from tests import helpers

pytestmark = pytest.mark.usefixtures("quick_compilation")

NUM_OPS, NUM_SAMPLES = 4, 20_000
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


def _latency_s(placements: Array) -> Array:
    costs = helpers.random_costs(np.random.default_rng(3), helpers.diamond(), 2)
    return simulators.evaluator(Problem(helpers.diamond(), costs, "serial", ("a", "b")))(placements)


def _learned_gradient(
    settings: Settings, latency_of: Callable = _latency_s, reference_s: float = 100.0
) -> tuple[Array, Array, Array]:
    """Initial parameters, latencies of the samples, and the gradient of the loss on these.

    Adam's first moment after one update is (1 - 0.9) times the gradient.
    """
    learner = reinforce.make(POLICY, settings)
    state, drawn = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    latency_s = latency_of(drawn.placement[:, 0, :NUM_OPS])
    after, _ = learner.update(state, GRAPH, drawn, latency_s[:, None], reference_s)
    return state.params, latency_s, optax.tree.get(after.opt_state, "mu") / (1 - 0.9)


def _expected_reward_gradient(params: Array, reference_s: float = 100.0) -> Array:
    """By enumeration: of the sum over all placements of probability times reference / latency."""
    placements = helpers.all_placements(NUM_OPS, 2)
    padded = np.pad(placements, ((0, 0), (0, 16 - NUM_OPS)))[:, None]
    reward = reference_s / _latency_s(placements)

    def expected(params: Array) -> Array:
        every = Sample(padded, np.zeros(()), np.zeros(()))
        return jnp.exp(POLICY.log_prob(params, GRAPH, every).log_prob[:, 0]) @ reward

    return jax.grad(expected)(params)


def _settings(**changes: object) -> Settings:
    plain = Settings(
        num_samples=NUM_SAMPLES, reward="inverse", entropy_weight=0.0, max_grad_norm=np.inf
    )
    return dataclasses.replace(plain, **changes)


def _relative_error(estimate: Array, exact: Array) -> float:
    return float(jnp.linalg.norm(estimate - exact) / jnp.linalg.norm(exact))


def test_without_a_baseline_the_gradient_is_that_of_the_expected_reward():
    params, _, gradient = _learned_gradient(_settings(baseline="none"))
    assert _relative_error(gradient, -_expected_reward_gradient(params)) < 0.1


def test_the_leave_one_out_baseline_changes_the_scale_and_the_variance_alone():
    params, latency_s, gradient = _learned_gradient(_settings())
    exact = -_expected_reward_gradient(params)
    assert _relative_error(gradient * np.std(100.0 / latency_s), exact) < 0.05


def test_where_all_placements_are_alike_only_the_entropy_is_learned():
    def alike(placements: Array) -> Array:
        return jnp.full(len(placements), 0.3)

    params, _, gradient = _learned_gradient(_settings(entropy_weight=0.25), alike, 0.7)

    def entropy(params: Array) -> Array:
        return -(jax.nn.softmax(params) * jax.nn.log_softmax(params))[:NUM_OPS].sum()

    np.testing.assert_allclose(gradient, -0.25 * jax.grad(entropy)(params), rtol=1e-3, atol=1e-6)


def test_the_gradient_is_clipped_to_the_norm():
    settings = _settings(num_samples=64, max_grad_norm=1e-3)
    _, _, gradient = _learned_gradient(settings)
    assert float(jnp.linalg.norm(gradient)) == pytest.approx(1e-3, rel=1e-3)


@functools.cache
def _drawn() -> tuple[reinforce.State, Sample]:
    learner = reinforce.make(POLICY, Settings(num_samples=8))
    return learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)


@pytest.mark.parametrize("reward", ["inverse", "sqrt", "log"])
@pytest.mark.parametrize("baseline", ["leave_one_out", "none"])
def test_failures_leave_the_parameters_finite(reward, baseline):
    state, drawn = _drawn()
    learner = reinforce.make(POLICY, Settings(num_samples=8, reward=reward, baseline=baseline))
    for failed in (np.arange(8) % 2 == 0, np.ones(8, bool)):
        latency_s = np.where(failed, np.inf, 2.0).astype(np.float32)[:, None]
        after, metrics = learner.update(state, GRAPH, drawn, latency_s, 1.0)
        assert np.isfinite(after.params).all()
        assert all(np.isfinite(value) for value in metrics.values())
        assert (after.params[:NUM_OPS] != state.params[:NUM_OPS]).all()  # it still learned


def test_failures_become_less_likely():
    learner = reinforce.make(POLICY, Settings(num_samples=64, learning_rate=0.1))
    state = learner.init(jax.random.key(0), GRAPH)

    def failures(placements: Array) -> Array:  # whatever puts op0 on device 1
        return placements[:, 0, 0] == 1

    before = None
    for _ in range(30):
        state, drawn = learner.sample(state, GRAPH)
        failed = failures(drawn.placement)
        before = failed.mean() if before is None else before
        latency_s = jnp.where(failed, jnp.inf, 1.0)[:, None]
        state, _ = learner.update(state, GRAPH, drawn, latency_s, 1.0)
    assert before > 0.2
    assert failed.mean() < before / 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "speed"}, "unknown reward 'speed'; valid: inverse, sqrt, log"),
        ({"baseline": "mean"}, "unknown baseline 'mean'; valid: leave_one_out, none"),
        ({"num_samples": 1}, "num_samples=1: the leave_one_out baseline needs at least 2"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        reinforce.make(POLICY, Settings(**settings))
    assert "\n" not in str(error.value)


def test_a_single_sample_is_fine_without_a_baseline():
    learner = reinforce.make(POLICY, Settings(num_samples=1, baseline="none"))
    _, drawn = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    assert drawn.log_prob.shape == (1, 1)
