import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from placement.errors import UserError
from placement.learning import base, ppo
from placement.learning.base import Settings
from placement.types import Sample
from tests import helpers

NUM_SAMPLES = 8
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


def test_surrogate_by_hand():
    """Clipping applies to steps that would move further out of the range, not back into it."""
    ratio = jnp.array([0.5, 0.5, 1.0, 1.5, 1.5])
    advantage = jnp.array([1.0, -1.0, 2.0, 1.0, -1.0])
    gain, clipped = ppo.surrogate(jnp.log(ratio), advantage, clip=0.2)
    np.testing.assert_allclose(gain, [0.5, -0.8, 2.0, 1.2, -1.5], rtol=1e-6)
    assert clipped.tolist() == [False, True, False, True, False]
    slope = jax.grad(lambda x: ppo.surrogate(x, advantage, clip=0.2)[0].sum())(jnp.log(ratio))
    np.testing.assert_allclose(slope, [0.5, 0.0, 2.0, 0.0, -1.5], rtol=1e-6)


def test_overflowing_ratio_stays_finite():
    advantage = jnp.array([1.0, 0.0, -1.0])
    slope = jax.grad(lambda x: ppo.surrogate(x, advantage, clip=0.2)[0].sum())(jnp.full(3, 1e3))
    assert np.isfinite(slope).all()


def test_minibatches_have_every_sample():
    index = np.arange(12)
    samples = Sample(index[:, None, None], index[:, None], index[:, None])
    minibatches = ppo.shuffle(jax.random.key(0), base.Batch(samples, index[:, None]), 2)
    assert minibatches.advantage.shape == (2, 6, 1)
    assert sorted(minibatches.advantage.ravel().tolist()) == index.tolist()
    np.testing.assert_array_equal(minibatches.samples.log_prob, minibatches.advantage)


def test_update_steps_through_minibatches():
    learner = ppo.make_learner(
        POLICY, Settings(num_samples=NUM_SAMPLES), epochs=3, num_minibatches=4
    )
    state, samples = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    latency_s = np.arange(1, NUM_SAMPLES + 1, dtype=np.float32)[:, None]
    updated_state, _ = learner.update(state, GRAPH, samples, latency_s, 1.0)
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
