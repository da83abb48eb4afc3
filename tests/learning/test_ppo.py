import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from placement.errors import UserError
from placement.learning import base, ppo, reinforce
from placement.learning.base import Settings
from placement.types import Sample
from tests import helpers

NUM_SAMPLES = 8
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())
LATENCY_S = np.arange(1, NUM_SAMPLES + 1, dtype=np.float32)[:, None]


def _sample(learner: base.Learner) -> tuple[base.State, Sample]:
    return learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)


@pytest.mark.slow
def test_single_step_equals_reinforce():
    settings = Settings(num_samples=NUM_SAMPLES)
    updated = []
    for learner in (
        reinforce.make_learner(POLICY, settings),
        ppo.make_learner(POLICY, settings, epochs=1, num_minibatches=1),
    ):
        state, samples = _sample(learner)
        updated.append(learner.update(state, GRAPH, samples, LATENCY_S, 1.0))
    (expected, metrics), (actual, actual_metrics) = updated
    np.testing.assert_allclose(
        optax.tree.get(actual.opt_state, "mu"), optax.tree.get(expected.opt_state, "mu"), atol=1e-6
    )
    assert actual_metrics["grad_norm"] == pytest.approx(float(metrics["grad_norm"]))
    assert actual_metrics["clipped"] == 0


def test_surrogate_by_hand():
    """Clipping applies to steps that would move further out of the range, not back into it."""
    ratio = jnp.array([0.5, 0.5, 1.0, 1.5, 1.5])
    advantage = jnp.array([1.0, -1.0, 2.0, 1.0, -1.0])
    gain, clipped = ppo.surrogate(jnp.log(ratio), advantage, clip=0.2)
    np.testing.assert_allclose(gain, [0.5, -0.8, 2.0, 1.2, -1.5], rtol=1e-6)
    assert clipped.tolist() == [False, True, False, True, False]
    slope = jax.grad(lambda x: ppo.surrogate(x, advantage, clip=0.2)[0].sum())(jnp.log(ratio))
    np.testing.assert_allclose(slope, [0.5, 0.0, 2.0, 0.0, -1.5], rtol=1e-6)


@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_overflowing_ratio_stays_finite(advantage):
    def gain_of(log_ratio):
        return ppo.surrogate(log_ratio, jnp.float32(advantage), clip=0.2)[0]

    gain, slope = jax.value_and_grad(gain_of)(1000.0)
    assert np.isfinite(gain)
    assert np.isfinite(slope)


def test_minibatches_balance_graphs():
    index = np.arange(12)
    samples = Sample(index[:, None, None], index[:, None], index[:, None])
    minibatches = ppo.shuffle(jax.random.key(0), base.Batch(samples, index[:, None]), 2, 6)
    assert minibatches.advantage.shape == (2, 6, 1)
    graph_index = np.asarray(minibatches.advantage[..., 0]) // 6
    np.testing.assert_array_equal(graph_index, [[0, 0, 0, 1, 1, 1]] * 2)
    assert sorted(minibatches.advantage.ravel().tolist()) == index.tolist()


def test_update_steps_through_minibatches():
    learner = ppo.make_learner(
        POLICY, Settings(num_samples=NUM_SAMPLES), epochs=3, num_minibatches=4
    )
    state, samples = _sample(learner)
    updated_state, _ = learner.update(state, GRAPH, samples, LATENCY_S, 1.0)
    assert optax.tree.get(updated_state.opt_state, "count") == 12
    assert (jax.random.key_data(updated_state.key) != jax.random.key_data(state.key)).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs=0 is out of range; set at least 1"),
        ({"num_minibatches": 3}, "num_samples=8 does not split into num_minibatches=3 equal"),
        ({"num_minibatches": 0}, "num_samples=8 does not split into num_minibatches=0 equal"),
        ({"clip": -0.1}, "clip=-0.1 is out of range; set from 0 to 1"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(UserError, match=message) as error:
        ppo.make_learner(POLICY, Settings(num_samples=NUM_SAMPLES), **changes)
    assert "\n" not in str(error.value)
