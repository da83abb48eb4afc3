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


def _sampled(learner: base.Learner) -> tuple[base.State, Sample]:
    return learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)


@pytest.mark.slow
def test_one_epoch_of_one_minibatch_has_the_gradient_of_reinforce():
    settings = Settings(num_samples=NUM_SAMPLES)
    updated = []
    for learner in (
        reinforce.make(POLICY, settings),
        ppo.make(POLICY, settings, epochs=1, num_minibatches=1),
    ):
        state, drawn = _sampled(learner)
        updated.append(learner.update(state, GRAPH, drawn, LATENCY_S, 1.0))
    (expected, metrics), (actual, own_metrics) = updated
    np.testing.assert_allclose(
        optax.tree.get(actual.opt_state, "mu"), optax.tree.get(expected.opt_state, "mu"), atol=1e-6
    )
    assert own_metrics["grad_norm"] == pytest.approx(float(metrics["grad_norm"]))
    assert own_metrics["clipped"] == 0


def test_the_surrogate_by_hand():
    """Clipped is what would move a step on beyond the range, not what would bring it back."""
    ratio = jnp.array([0.5, 0.5, 1.0, 1.5, 1.5])
    advantage = jnp.array([1.0, -1.0, 2.0, 1.0, -1.0])
    gain, clipped = ppo.surrogate(jnp.log(ratio), advantage, clip=0.2)
    np.testing.assert_allclose(gain, [0.5, -0.8, 2.0, 1.2, -1.5], rtol=1e-6)
    assert clipped.tolist() == [False, True, False, True, False]
    slope = jax.grad(lambda x: ppo.surrogate(x, advantage, clip=0.2)[0].sum())(jnp.log(ratio))
    np.testing.assert_allclose(slope, [0.5, 0.0, 2.0, 0.0, -1.5], rtol=1e-6)


@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_a_ratio_beyond_all_numbers_has_a_finite_gain_and_slope(advantage):
    def gain_of(log_ratio):
        return ppo.surrogate(log_ratio, jnp.float32(advantage), clip=0.2)[0]

    gain, slope = jax.value_and_grad(gain_of)(1000.0)
    assert np.isfinite(gain)
    assert np.isfinite(slope)


def test_what_has_moved_too_far_already_is_not_learned():
    """Inverse rewards without a baseline: every advantage is positive."""
    settings = Settings(
        num_samples=NUM_SAMPLES, reward="inverse", baseline="none", entropy_weight=0.0
    )
    learner = ppo.make(POLICY, settings, epochs=1, num_minibatches=1, clip=0.2)
    state, drawn = _sampled(learner)
    for log_ratio, learns in ((0.1, True), (0.3, False)):
        earlier = drawn._replace(log_prob=drawn.log_prob - log_ratio)
        after, metrics = learner.update(state, GRAPH, earlier, LATENCY_S, 1.0)
        assert (after.params != state.params).any() == learns
        assert metrics["clipped"] == 1 - learns


def test_minibatches_hold_every_sample_once():
    number = np.arange(12)
    drawn = Sample(np.tile(number[:, None, None], (1, 2, 5)), number[:, None], number[:, None])
    batch = base.Batch(drawn, number[:, None])
    orders = []
    for seed in range(3):
        cut = ppo.shuffle(jax.random.key(seed), batch, 3, 12)
        assert cut.samples.placement.shape == (3, 4, 2, 5)
        assert sorted(cut.advantage.ravel().tolist()) == number.tolist()
        for leaf in jax.tree.leaves(cut):  # one sample's leaves stay together
            np.testing.assert_array_equal(leaf.reshape(12, -1)[:, 0], cut.advantage.ravel())
        orders.append(cut.advantage.ravel().tolist())
    assert len(set(map(tuple, orders))) == 3


def test_minibatches_hold_as_many_samples_of_every_graph():
    number = np.arange(12)
    drawn = Sample(number[:, None, None], number[:, None], number[:, None])
    cut = ppo.shuffle(jax.random.key(0), base.Batch(drawn, number[:, None]), 2, 6)
    assert cut.advantage.shape == (2, 6, 1)
    of_graph = np.asarray(cut.advantage[..., 0]) // 6
    np.testing.assert_array_equal(of_graph, [[0, 0, 0, 1, 1, 1]] * 2)
    assert sorted(cut.advantage.ravel().tolist()) == number.tolist()


def test_an_update_takes_a_step_a_minibatch_in_every_epoch():
    learner = ppo.make(POLICY, Settings(num_samples=NUM_SAMPLES), epochs=3, num_minibatches=4)
    state, drawn = _sampled(learner)
    after, _ = learner.update(state, GRAPH, drawn, LATENCY_S, 1.0)
    assert optax.tree.get(after.opt_state, "count") == 12
    assert (jax.random.key_data(after.key) != jax.random.key_data(state.key)).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs=0: give at least 1"),
        ({"num_minibatches": 3}, "num_samples=8 does not split into num_minibatches=3 equal"),
        ({"num_minibatches": 0}, "num_samples=8 does not split into num_minibatches=0 equal"),
        ({"clip": 0.0}, "clip=0.0: give a share between 0 and 1"),
    ],
)
def test_impossible_hyper_parameters_are_refused_in_one_line(changes, message):
    with pytest.raises(UserError, match=message) as error:
        ppo.make(POLICY, Settings(num_samples=NUM_SAMPLES), **changes)
    assert "\n" not in str(error.value)


def test_a_single_sample_is_fine_without_a_baseline():
    settings = Settings(num_samples=1, baseline="none")
    _, drawn = _sampled(ppo.make(POLICY, settings, num_minibatches=1))
    assert drawn.log_prob.shape == (1, 1)
