"""Rewards of latencies, returns of episodes, and advantages over a baseline.

Shapes: B samples, T steps of an episode. The latency of a placement that could not run is inf.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from placement.types import Array

REWARDS = ("inverse", "sqrt", "log", "linear", "improvement")
# The failing signal in units of the reference latency, and the updates in which failures count.
FAILED_RATIO = 100.0
EARLY_UPDATES = 1_000
BEST_SHARE = 0.25  # see `risk_seeking`
_AVERAGE_DECAY = 0.9  # of the moving average in an update, as in the authors' code


def penalise_failures(latency_s: Array, reference_s: Array, updates: Array) -> tuple[Array, Array]:
    """Gives failed placements the failing signal, and leaves them out later.

    The failing signal is 100 times the reference latency; that of Mirhoseini et al. (2018) is 100
    seconds on their machine. As in their released code, failures count in the first 1,000 updates.
    By then the policy mostly avoids them, and a rare failure, far from the baseline, would undo
    what it has learned. A placement that is as slow as the signal is left out like a failure, but
    keeps its latency. The returns of an episode's earlier steps always include the signal.

    Returns:
      Latencies float32 [B, T], and bool [B, T]: whether a step counts in baseline and gradient.
    """
    chex.assert_rank([latency_s, reference_s, updates], [2, 0, 0])
    chex.assert_type([latency_s, reference_s, updates], [float, float, int])
    failing_signal_s = FAILED_RATIO * reference_s
    is_early = updates < EARLY_UPDATES
    return (
        jnp.where(jnp.isfinite(latency_s), latency_s, failing_signal_s),
        (latency_s < failing_signal_s) | is_early,
    )


def rewards(kind: str, latency_s: Array, reference_s: Array) -> Array:
    """Computes rewards [B, T] of latencies [B, T]: larger is better, about 1 at `reference_s` [].

    'inverse'      reference / latency           HSDAG (Duan et al. 2024): 1/latency, unit-free
    'sqrt'         -sqrt(latency / reference)    Hierarchical Planner (Mirhoseini et al. 2018)
    'log'          -log(latency / reference)     relative differences count alike everywhere
    'linear'       -latency / reference          DOPPLER (Yao et al. 2026)
    'improvement'  (latency before the step - after it) / reference   Placeto (Addanki et al. 2019)

    A placement that could not run gets the worst reward of the batch less one, or 0 for 'inverse'.
    Before its first step an episode has the reference latency. This constant is the same in all
    samples, so that a baseline removes it.
    """
    chex.assert_rank([latency_s, reference_s], [2, 0])
    chex.assert_type([latency_s, reference_s], float)
    ratio = latency_s / reference_s
    ran = jnp.isfinite(ratio)
    # The reward of a zero latency stays finite.
    ratio = jnp.maximum(jnp.where(ran, ratio, 1.0), 1e-6)
    if kind == "inverse":
        return jnp.where(ran, 1.0 / ratio, 0.0)
    scale = {"sqrt": jnp.sqrt, "log": jnp.log}.get(kind)
    value = -(scale(ratio) if scale else ratio)
    worst = jnp.where(ran, value, jnp.inf).min()
    value = jnp.where(ran, value, jnp.where(jnp.isfinite(worst), worst, 0.0) - 1.0)
    return jnp.diff(value, axis=1, prepend=-1.0) if kind == "improvement" else value


def discounted_returns(reward: Array, discount: float) -> Array:
    """Sums discount^k * reward over later steps, [B, T] -> [B, T]."""
    chex.assert_rank(reward, 2)
    chex.assert_type(reward, float)

    def backwards(total: jax.Array, step_reward: Any) -> tuple[jax.Array, jax.Array]:
        total = step_reward + discount * total
        return total, total

    start = jnp.zeros(reward.shape[0])
    _, returns = jax.lax.scan(backwards, start, jnp.asarray(reward).T, reverse=True)
    return returns.T


def episode_returns(reward: Array, discount: float) -> Array:
    """Gives every step sum_k discount^(T-1-k) reward_k, as in HSDAG's code; [B, T] -> [B, T]."""
    chex.assert_rank(reward, 2)
    chex.assert_type(reward, float)
    num_steps = reward.shape[1]
    total = reward @ (discount ** jnp.arange(num_steps - 1, -1, -1.0))
    return jnp.broadcast_to(total[:, None], reward.shape)


def leave_one_out(returns: Array, counts: Array) -> Array:
    """Subtracts the mean return of the other samples at the step, and scales to unit deviation.

    A sample's baseline does not depend on the sample, so that the gradient stays unbiased up to
    the scale (Kool et al. 2019, 'Buy 4 REINFORCE samples, get a baseline for free'). B must be at
    least 2. The result is zero where `counts`, bool [B, T], is False or no other sample counts.
    """
    chex.assert_rank([returns, counts], 2)
    chex.assert_type([returns, counts], [float, bool])
    count = counts.sum(axis=0)
    # Equal returns cancel exactly here; a rounded mean would be scaled up to an advantage.
    shifted = jnp.where(counts, returns - returns[:1], 0.0)
    mean = shifted.sum(axis=0) / jnp.maximum(count, 1)
    centred = (shifted - mean) * count / jnp.maximum(count - 1, 1)
    centred = jnp.where(counts & (count > 1), centred, 0.0)
    return centred / (_deviation(centred, counts) + 1e-8)


def risk_seeking(returns: Array, counts: Array) -> Array:
    """Subtracts the 75% quantile from returns [B, T], and drops samples below it; unit deviation.

    The gradient is then that of the mean of the best quarter (Petersen et al. 2021, arXiv
    1912.04871, proposition 1), so that a policy whose best sample is used keeps its variety.
    """
    chex.assert_rank([returns, counts], 2)
    chex.assert_type([returns, counts], [float, bool])
    quantile = jnp.quantile(jnp.where(counts, returns, -jnp.inf), 1 - BEST_SHARE, axis=0)
    excess = jnp.maximum(returns - quantile, 0.0)
    excess = jnp.where(counts & jnp.isfinite(quantile), excess, 0.0)
    return excess / (_deviation(excess, counts) + 1e-8)


def running_mean(reward: Array) -> Array:
    """Computes the mean of an episode's rewards up to each step, [B, T] -> [B, T], as in GiPH.

    The released code of GiPH (Hu et al. 2023) subtracts it from the return of the step. The reward
    of the first step is left out: it is of the episode's start, not of a choice. Its mean is 0.
    """
    chex.assert_rank(reward, 2)
    chex.assert_type(reward, float)
    later = jnp.asarray(reward)[:, 1:]
    mean = jnp.cumsum(later, axis=1) / jnp.arange(1, later.shape[1] + 1)
    return jnp.pad(mean, ((0, 0), (1, 0)))


def moving_average(returns: Array, counts: Array, baseline: Array) -> tuple[Array, Array]:
    """Subtracts a moving average [T] of earlier batches' mean returns, and updates the average.

    The advantages are not scaled (Mirhoseini et al. 2017 and 2018). Where `baseline` is nan, the
    mean of this batch takes its place. A step without a sample that counts leaves the average
    unchanged.
    """
    chex.assert_rank([returns, counts, baseline], [2, 2, 1])
    chex.assert_type([returns, counts, baseline], [float, bool, float])
    count = counts.sum(axis=0)
    mean = jnp.where(counts, returns, 0.0).sum(axis=0) / jnp.maximum(count, 1)
    average = jnp.where(jnp.isnan(baseline), mean, baseline)
    updated = _AVERAGE_DECAY * average + (1 - _AVERAGE_DECAY) * mean
    updated = jnp.where(count > 0, updated, baseline)
    return jnp.where(counts, returns - average, 0.0), updated


def _deviation(centred: Array, counts: Array) -> Array:
    count = jnp.maximum(counts.sum(), 1)
    mean = centred.sum() / count
    return jnp.sqrt(jnp.where(counts, (centred - mean) ** 2, 0.0).sum() / count)
