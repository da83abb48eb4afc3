"""The contract of all learners."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.errors import UserError
from placement.learning import base, ppo, reinforce
from placement.learning.base import Settings
from placement.types import LogProb, Sample
from tests import helpers

pytestmark = pytest.mark.parametrize(
    "make", [reinforce.make_learner, ppo.make_learner], ids=["reinforce", "ppo"]
)

NUM_OPS = 4
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


@functools.cache
def _sample() -> tuple[base.State, Sample]:
    learner = reinforce.make_learner(POLICY, Settings(num_samples=8))
    return learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reward", "baseline", "failed"),
    [
        ("inverse", "none", "worst"),
        ("log", "leave_one_out", "worst"),
        ("sqrt", "moving_average", "constant"),
        ("improvement", "leave_one_out", "constant"),
    ],
)
def test_failures_leave_parameters_finite(make, reward, baseline, failed):
    state, samples = _sample()
    learner = make(POLICY, Settings(num_samples=8, reward=reward, baseline=baseline, failed=failed))
    for broken in (np.arange(8) % 2 == 0, np.ones(8, bool)):
        latency_s = np.where(broken, np.inf, 2.0).astype(np.float32)[:, None]
        updated_state, metrics = learner.update(state, GRAPH, samples, latency_s, 1.0)
        assert np.isfinite(updated_state.params).all()
        assert all(np.isfinite(value) for value in metrics.values())
        assert (updated_state.params[:NUM_OPS] != state.params[:NUM_OPS]).all()  # it still learned


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "speed"}, "unknown reward 'speed'; valid: inverse, sqrt, log"),
        (
            {"baseline": "mean"},
            "unknown baseline 'mean'; valid: leave_one_out, risk_seeking, moving_average, "
            "running_mean, none",
        ),
        ({"failed": "never"}, "unknown failed 'never'; valid: worst, constant"),
        (
            {"num_samples": 1},
            "num_samples=1 is out of range; set at least 2|num_samples=1 does not",
        ),
    ],
)
def test_impossible_settings_are_refused(make, settings, message):
    with pytest.raises(UserError, match=message) as error:
        make(POLICY, Settings(**settings))
    assert "\n" not in str(error.value)


_FAILING = Settings(
    num_samples=8, reward="sqrt", baseline="moving_average", failed="constant", entropy_weight=0.0
)


@pytest.mark.slow
def test_moving_average_starts_at_failure(make):
    """The signal is 100 times the reference, whose reward is -10."""
    learner = make(POLICY, _FAILING)
    state, samples = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    assert state.baseline.tolist() == [-10.0]
    latencies = np.full((8, 1), 4.0, np.float32)
    advantage, _ = base.compute_advantages(_FAILING, state, latencies, 1.0)
    np.testing.assert_allclose(advantage, np.full((8, 1), 8.0), rtol=1e-6)
    state, _ = learner.update(state, GRAPH, samples, latencies, 1.0)
    np.testing.assert_allclose(state.baseline, [0.9 * -10 + 0.1 * -2], rtol=1e-6)


@pytest.mark.slow
def test_infeasible_placements_fail_early_only(make):
    """Their penalised latency of 4 is not learned from."""
    learner = make(POLICY, _FAILING)
    state, samples = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    state = state._replace(baseline=jnp.full(1, -3.0))
    latencies, infeasible = np.full((8, 1), 4.0, np.float32), np.zeros((8, 1), bool)
    for updates, expected in ((999, 0.9 * -3 + 0.1 * -10), (1_000, -3.0)):
        late_state = state._replace(updates=jnp.int32(updates))
        updated_state, _ = learner.update(late_state, GRAPH, samples, latencies, 1.0, infeasible)
        np.testing.assert_allclose(updated_state.baseline, [expected], rtol=1e-6)
        assert (updated_state.params != state.params).any() == (updates == 999)


def test_entropy_weight_falls_linearly(make):
    del make
    log_prob = LogProb(jnp.zeros((2, 1)), jnp.full((2, 1), 6.0), jnp.full((2, 1), 4.0))
    for decay, expected in ((40, [1.5, 0.75, 0.0, 0.0]), (0, [1.5] * 4)):
        settings = Settings(entropy_weight=0.5, entropy_decay_updates=decay)
        bonus = [float(base.entropy_bonus(settings, log_prob, n)) for n in (0, 20, 40, 60)]
        assert bonus == pytest.approx(expected)


@functools.cache
def _decaying(make, decay: float) -> base.Learner:
    return make(POLICY, Settings(num_samples=8, learning_rate_decay=decay, entropy_weight=0.0))


def _distance(make, decay: float, count: int) -> float:
    """Returns how far an update after `count` gradient steps moves the parameters."""
    learner = _decaying(make, decay)
    state, samples = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    late_state = jax.tree.map(
        lambda leaf: jnp.full_like(leaf, count) if leaf.dtype == jnp.int32 else leaf,
        state.opt_state,
    )
    latency_s = np.arange(1.0, 9.0, dtype=np.float32)[:, None]
    updated_state, _ = learner.update(
        state._replace(opt_state=late_state), GRAPH, samples, latency_s, 1.0
    )
    return float(np.abs(updated_state.params - state.params).max())


@pytest.mark.slow
@pytest.mark.parametrize(("count", "halvings"), [(440, 0), (450, 1), (501, 2)])
def test_learning_rate_decays_later(make, count, halvings):
    ratio = _distance(make, 0.5, count) / _distance(make, 1.0, count)
    assert ratio == pytest.approx(0.5**halvings, rel=0.05)
