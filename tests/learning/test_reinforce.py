import jax
import jax.numpy as jnp
import numpy as np
import optax

from placement.learning.base import Settings, make_reinforce_learner
from placement.problem import Problem
from placement.types import Array, Sample
from tests import helpers

NUM_OPS, NUM_SAMPLES, WEIGHT = 4, 20_000, 0.25
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


def test_gradient_is_that_of_enumeration():
    """Of the expected reward, or of the entropy alone where all latencies are equal."""
    graph = helpers.diamond()
    costs = helpers.random_costs(np.random.default_rng(3), graph, 2)
    problem = Problem(graph, costs, "serial", ("a", "b"))
    settings = Settings(
        num_samples=NUM_SAMPLES, reward="inverse", entropy_weight=WEIGHT, max_grad_norm=np.inf
    )
    learner = make_reinforce_learner(POLICY, settings)
    state, samples = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)

    def learned_gradient(latency_s: Array) -> Array:
        """Adam's first moment after one update is (1 - 0.9) times the gradient of the loss."""
        updated_state, _ = learner.update(state, GRAPH, samples, latency_s[:, None], 100.0)
        gradient = optax.tree.get(updated_state.opt_state, "mu") / (1 - 0.9)
        return gradient.reshape(state.params.shape)

    def entropy(params: Array) -> Array:
        return -(jax.nn.softmax(params) * jax.nn.log_softmax(params))[:NUM_OPS].sum()

    entropy_gradient = -WEIGHT / np.sqrt(NUM_OPS) * jax.grad(entropy)(state.params)
    actual = learned_gradient(jnp.full(NUM_SAMPLES, 0.3))
    np.testing.assert_allclose(actual, entropy_gradient, rtol=1e-3, atol=1e-6)

    placements = helpers.all_placements(NUM_OPS, 2)
    padded = np.pad(placements, ((0, 0), (0, len(state.params) - NUM_OPS)))[:, None]
    rewards = 100.0 / problem.evaluate(placements)

    def expected_reward(params: Array) -> Array:
        enumerated = Sample(padded, np.zeros(()), np.zeros(()))
        return jnp.exp(POLICY.log_prob(params, GRAPH, enumerated).log_prob[:, 0]) @ rewards

    latency_s = problem.evaluate(samples.placement[:, 0, :NUM_OPS])
    actual = (learned_gradient(latency_s) - entropy_gradient) * np.std(100.0 / latency_s)
    exact = -jax.grad(expected_reward)(state.params)
    assert jnp.linalg.norm(actual - exact) < 0.05 * jnp.linalg.norm(exact)
