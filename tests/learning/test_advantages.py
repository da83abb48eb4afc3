import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning import advantages

INF = np.inf


def _leave_one_out(returns, counts=None):
    counts = jnp.ones(returns.shape, bool) if counts is None else counts
    return advantages.leave_one_out(jnp.asarray(returns, jnp.float32), counts)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inverse", [[2.0, 1.0, 0.5]]),
        ("sqrt", [[-np.sqrt(0.5), -1.0, -np.sqrt(2.0)]]),
        ("log", [[np.log(2.0), 0.0, -np.log(2.0)]]),
        ("linear", [[-0.5, -1.0, -2.0]]),
        ("improvement", [[0.5, -0.5, -1.0]]),
    ],
)
def test_rewards_by_hand(kind, expected):
    latency_s = jnp.array([[2.0, 4.0, 8.0]])
    np.testing.assert_allclose(advantages.rewards(kind, latency_s, 4.0), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "slowest", "failed", "all_failed"),
    [("inverse", 0.25, 0.0, 0.0), ("sqrt", -2.0, -3.0, -1.0), ("linear", -4.0, -5.0, -1.0)],
)
def test_failure_is_worse_than_slowest(kind, slowest, failed, all_failed):
    reward = advantages.rewards(kind, jnp.array([[INF, 4.0], [2.0, INF]]), 1.0)
    assert reward[0].tolist() == pytest.approx([failed, slowest])
    assert reward[1, 1] == pytest.approx(failed)
    reward = advantages.rewards(kind, jnp.full((2, 3), INF), 1.0)
    assert reward.tolist() == [[all_failed] * 3] * 2


def test_returns_by_hand():
    reward = jnp.array([[1.0, 2.0, 4.0], [0.0, 0.0, 8.0]])
    returns = advantages.discounted_returns(reward, 0.5)
    assert returns.tolist() == [[3.0, 4.0, 4.0], [2.0, 4.0, 8.0]]
    assert advantages.episode_returns(reward, 0.5).tolist() == [[5.25] * 3, [8.0] * 3]


def test_leave_one_out_subtracts_others():
    returns = np.random.default_rng(0).normal(size=(5, 3))
    others = [[np.delete(returns[:, t], b).mean() for t in range(3)] for b in range(5)]
    advantage = np.asarray(_leave_one_out(returns))
    ratio = advantage / (returns - np.array(others))
    assert (ratio > 0).all()
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)


def test_advantages_have_unit_deviation():
    rng = np.random.default_rng(1)
    returns = 50.0 * np.arange(4) + 1e-2 * rng.normal(size=(200, 4))
    assert np.std(_leave_one_out(returns)) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("value", [-0.3, 1 / 3, 1234.567])
def test_equal_returns_have_no_advantage(value):
    """Rounding in the mean must not be blown up by the deviation, which is rounding as well."""
    advantage = jax.jit(_leave_one_out)(jnp.full((7, 2), value, jnp.float32))
    assert np.abs(advantage).max() == 0.0


def test_best_quarter_counts():
    returns = jnp.arange(9.0)[:, None]  # the quantile is 6
    counts = returns < 8
    advantage = advantages.risk_seeking(returns, jnp.ones((9, 1), bool))[:, 0]
    assert 0 < 2 * advantage[7] == pytest.approx(float(advantage[8]))
    assert not advantage[:7].any()
    assert not advantages.risk_seeking(returns, counts)[8].any()


def test_ignored_samples_shift_no_other():
    returns = np.random.default_rng(0).normal(size=(6, 2))
    counts = np.ones((6, 2), bool)
    counts[3:, 0] = False
    all_returns = np.concatenate([returns, 100 * np.ones((1, 2))])
    all_counts = np.concatenate([counts, np.zeros((1, 2), bool)])
    advantage = np.asarray(_leave_one_out(all_returns, all_counts))
    np.testing.assert_allclose(advantage[:6], _leave_one_out(returns, counts), rtol=1e-5)
    assert (advantage[~all_counts] == 0).all()
    assert (advantage[all_counts] != 0).all()


def test_running_mean_omits_first_reward():
    reward = jnp.array([[9.0, 1, 3, 5], [9, 0, 0, -3]])
    expected = [[0, 1, 2, 3], [0, 0, 0, -1]]
    np.testing.assert_allclose(advantages.running_mean(reward), expected)


def test_moving_average_by_hand():
    """There are two steps; no sample counts at the second step of the first batch."""
    returns = jnp.array([[1.0, 5.0], [3.0, 7.0]])
    first = jnp.array([[True, False], [True, False]])
    no_baseline = jnp.full(2, jnp.nan)
    advantage, baseline = advantages.moving_average(returns, first, no_baseline)
    assert advantage.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert baseline[0] == 2.0
    assert jnp.isnan(baseline[1])
    advantage, baseline = advantages.moving_average(returns + 10, ~first, baseline)
    assert advantage.tolist() == [[0.0, -1.0], [0.0, 1.0]]
    advantage, baseline = advantages.moving_average(returns, ~first | first, baseline)
    np.testing.assert_allclose(advantage, [[-1.0, -11.0], [1.0, -9.0]])
    np.testing.assert_allclose(baseline, [2.0, 0.9 * 16 + 0.1 * 6], rtol=1e-6)


def test_failures_count_in_early_updates():
    """As in Grappler's code, a placement as slow as the constant no longer counts either."""
    latency_s = jnp.array([[2.0], [INF], [301.0]])
    early = advantages.penalise_failures(latency_s, 3.0, 999)
    late = advantages.penalise_failures(latency_s, 3.0, 1_000)
    assert early[0].tolist() == late[0].tolist() == [[2.0], [300.0], [301.0]]
    assert early[1].tolist() == [[True], [True], [True]]
    assert late[1].tolist() == [[True], [False], [False]]
