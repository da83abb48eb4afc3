"""What every learner promises, whatever its algorithm."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning import base, ppo, reinforce
from placement.learning.base import Settings
from placement.types import Array, Sample
from tests import helpers

pytestmark = [
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.parametrize("make", [reinforce.make, ppo.make], ids=["reinforce", "ppo"]),
]

NUM_OPS = 4
POLICY = helpers.independent_policy()
GRAPH = helpers.batched(helpers.diamond())


@functools.cache
def _drawn() -> tuple[base.State, Sample]:
    learner = reinforce.make(POLICY, Settings(num_samples=8))
    return learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)


def test_the_algorithm_decides_the_update_alone(make):
    state, drawn = _drawn()
    learner = make(POLICY, Settings(num_samples=8))
    own_state, own = learner.sample(learner.init(jax.random.key(0), GRAPH), GRAPH)
    np.testing.assert_array_equal(own_state.params, state.params)
    np.testing.assert_array_equal(own.placement, drawn.placement)


@pytest.mark.parametrize(
    ("reward", "baseline"),
    [("inverse", "none"), ("inverse", "leave_one_out"), ("sqrt", "none"), ("log", "leave_one_out")],
)
def test_failures_leave_the_parameters_finite(make, reward, baseline):
    state, drawn = _drawn()
    learner = make(POLICY, Settings(num_samples=8, reward=reward, baseline=baseline))
    for failed in (np.arange(8) % 2 == 0, np.ones(8, bool)):
        latency_s = np.where(failed, np.inf, 2.0).astype(np.float32)[:, None]
        after, metrics = learner.update(state, GRAPH, drawn, latency_s, 1.0)
        assert np.isfinite(after.params).all()
        assert all(np.isfinite(value) for value in metrics.values())
        assert (after.params[:NUM_OPS] != state.params[:NUM_OPS]).all()  # it still learned


def test_failures_become_less_likely(make):
    learner = make(POLICY, Settings(num_samples=64, learning_rate=0.1))
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
        (
            {"num_samples": 1},
            "num_samples=1: the leave_one_out baseline needs at least 2|num_samples=1 does not",
        ),
    ],
)
def test_impossible_settings_are_refused_in_one_line(make, settings, message):
    with pytest.raises(ValueError, match=message) as error:
        make(POLICY, Settings(**settings))
    assert "\n" not in str(error.value)
