"""The contract of all learners, on REINFORCE."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.errors import UserError
from placement.learning import base
from placement.learning.base import Settings
from placement.learning.base import make_reinforce_learner as make_learner
from placement.types import LogProb
from tests import helpers

NUM_OPS, NUM_SAMPLES = 4, 8
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


def _begin(**settings):
    """Returns a learner with its first state and samples."""
    learner = make_learner(POLICY, Settings(num_samples=NUM_SAMPLES, **settings))
    return learner, *learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)


@pytest.mark.parametrize(
    ("reward", "baseline", "failed"),
    [
        ("inverse", "none", "worst"),
        ("log", "leave_one_out", "worst"),
        ("improvement", "leave_one_out", "constant"),
    ],
)
def test_failures_leave_parameters_finite(reward, baseline, failed):
    learner, state, samples = _begin(reward=reward, baseline=baseline, failed=failed)
    for is_broken in (np.arange(NUM_SAMPLES) % 2 == 0, np.ones(NUM_SAMPLES, bool)):
        latency_s = np.where(is_broken, np.inf, 2.0).astype(np.float32)[:, None]
        updated_state, metrics = learner.update(state, GRAPH, samples, latency_s, 1.0)
        assert np.isfinite(updated_state.params).all()
        assert all(np.isfinite(value) for value in metrics.values())
        assert (updated_state.params[:NUM_OPS] != state.params[:NUM_OPS]).all()  # it still learned


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "speed"}, "unknown reward 'speed'; valid: inverse, sqrt, log"),
        ({"baseline": "mean"}, "unknown baseline 'mean'; valid: leave_one_out, risk_seeking, mov"),
        ({"failed": "never"}, "unknown failed 'never'; valid: worst, constant"),
        ({"num_samples": 1}, "num_samples=1 is out of range; set at least 2"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message) as error:
        make_learner(POLICY, Settings(**settings))
    assert "\n" not in str(error.value)


def test_constant_failure_counts_early():
    """The signal is 100 times the reference, whose reward is -10; it begins the moving average."""
    learner, state, samples = _begin(
        reward="sqrt", baseline="moving_average", failed="constant", entropy_weight=0.0
    )
    assert state.baseline.tolist() == [-10.0]
    latency_s, runs = np.full((NUM_SAMPLES, 1), 4.0, np.float32), np.ones((NUM_SAMPLES, 1), bool)
    updated_state, _ = learner.update(state, GRAPH, samples, latency_s, 1.0, runs)
    np.testing.assert_allclose(updated_state.baseline, [0.9 * -10 + 0.1 * -2], rtol=1e-6)
    # The penalised latency of 4 of infeasible placements is not learned from.
    for updates, expected in ((999, 0.9 * -3 + 0.1 * -10), (1_000, -3.0)):
        late_state = state._replace(updates=jnp.int32(updates), baseline=jnp.full(1, -3.0))
        updated_state, _ = learner.update(late_state, GRAPH, samples, latency_s, 1.0, ~runs)
        np.testing.assert_allclose(updated_state.baseline, [expected], rtol=1e-6)
        assert (updated_state.params != state.params).any() == (updates == 999)


def test_entropy_weight_falls_linearly():
    log_prob = LogProb(jnp.zeros((2, 1)), jnp.full((2, 1), 6.0), jnp.full((2, 1), 4.0))
    for decay, expected in ((40, [1.5, 0.75, 0.0, 0.0]), (0, [1.5] * 4)):
        settings = Settings(entropy_weight=0.5, entropy_decay_updates=decay)
        bonus = [float(base.entropy_bonus(settings, log_prob, n)) for n in (0, 20, 40, 60)]
        assert bonus == pytest.approx(expected)


def test_learning_rate_decays_later():
    """By half at every 50th gradient step after the first 400."""
    learner, state, samples = _begin(learning_rate_decay=0.5, entropy_weight=0.0)
    latency_s = np.arange(1.0, NUM_SAMPLES + 1, dtype=np.float32)[:, None]
    distances = []
    for count in (440, 450, 501):
        late = jax.tree.map(
            lambda leaf, count=count: jnp.full_like(leaf, count) if leaf.ndim == 0 else leaf,
            state.opt_state,
        )
        updated_state, _ = learner.update(
            state._replace(opt_state=late), GRAPH, samples, latency_s, 1.0
        )
        distances.append(np.abs(updated_state.params - state.params).max())
    # Adam's correction of its second moment adds up to 5%.
    assert np.divide(distances[1:], distances[0]) == pytest.approx([0.5, 0.25], rel=0.1)
