"""Rewards of latencies, returns of episodes, and advantages over a baseline.

Shapes: B samples, T steps of an episode. Latencies of placements that could not run are inf.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.types import Array

REWARDS = ("inverse", "sqrt", "log", "improvement")
FAILED_RATIO = 100.0  # see `failures_as_constant`
EARLY_UPDATES = 500
BEST_SHARE = 0.25  # see `risk_seeking`
_KEPT = 0.9  # share of the moving average that an update keeps, as in the authors' code


class Weighed(NamedTuple):
    """Latencies to learn from."""

    latency_s: Array  # float32 [B, T]
    counts: Array  # bool [B, T]: False where a step is left out of baseline and gradient


def failures_as_constant(latency_s: Array, reference_s: Array, updates: Array) -> Weighed:
    """Weighs what could not run as 100 times the reference, early; later it is left out.

    Early are the first 500 updates. So Mirhoseini et al. (2017 and 2018): a large
    constant until the policy mostly avoids what fails, since later a rare failure, far from the
    baseline, would undo what has been learned. The numbers are in units of `reference_s` [] and of
    this project's batches; the papers' constant is in seconds of their machine. The returns of an
    episode's earlier steps hold the constant still.
    """
    chex.assert_rank([latency_s, reference_s, updates], [2, 0, 0])
    chex.assert_type([latency_s, reference_s, updates], [float, float, int])
    ran = jnp.isfinite(latency_s)
    early = updates < EARLY_UPDATES
    return Weighed(jnp.where(ran, latency_s, FAILED_RATIO * reference_s), ran | early)


def rewards(kind: str, latency_s: Array, reference_s: Array) -> Array:
    """Computes rewards [B, T] of latencies [B, T]: larger is better, about 1 at `reference_s` [].

    'inverse'      reference / latency           HSDAG (Duan et al. 2024): 1/latency, unit-free
    'sqrt'         -sqrt(latency / reference)    Hierarchical Planner (Mirhoseini et al. 2018)
    'log'          -log(latency / reference)     relative differences count alike everywhere
    'improvement'  (latency before the step - after it) / reference   Placeto (Addanki et al. 2019)

    A placement that could not run is worth the batch's worst that could, less one; 0 as 'inverse'.
    Before the first step an episode's latency is taken to be the reference: a constant, the same in
    every sample, which a baseline takes off.
    """
    chex.assert_rank([latency_s, reference_s], [2, 0])
    chex.assert_type([latency_s, reference_s], float)
    ratio = latency_s / reference_s
    ran = jnp.isfinite(ratio)
    safe = jnp.maximum(jnp.where(ran, ratio, 1.0), 1e-6)  # a free placement has a finite reward
    if kind == "inverse":
        return jnp.where(ran, 1.0 / safe, 0.0)
    value = {"sqrt": lambda r: -jnp.sqrt(r), "log": lambda r: -jnp.log(r)}.get(kind, jnp.negative)(
        safe
    )
    worst = jnp.where(ran, value, jnp.inf).min()
    value = jnp.where(ran, value, jnp.where(jnp.isfinite(worst), worst, 0.0) - 1.0)
    return jnp.diff(value, axis=1, prepend=-1.0) if kind == "improvement" else value


def discounted_returns(reward: Array, discount: float) -> Array:
    """Sums discount^k * reward over later steps, [B, T] -> [B, T]."""
    chex.assert_rank(reward, 2)
    chex.assert_type(reward, float)

    def backwards(total: jax.Array, r: Any) -> tuple[jax.Array, jax.Array]:
        total = r + discount * total
        return total, total

    start = jnp.zeros(reward.shape[0])
    _, returns = jax.lax.scan(backwards, start, jnp.asarray(reward).T, reverse=True)
    return returns.T


def episode_returns(reward: Array, discount: float) -> Array:
    """Gives every step the sum of all steps' discounted returns, as HSDAG's code: [B, T] alike."""
    total = discounted_returns(reward, discount).sum(axis=1, keepdims=True)
    return jnp.broadcast_to(total, reward.shape)


def leave_one_out(returns: Array, counts: Array) -> Array:
    """Takes off returns the mean of the other samples' at the step, and scales to unit deviation.

    The baseline of a sample does not depend on it, so the gradient stays unbiased up to the scale
    (Kool et al. 2019, 'Buy 4 REINFORCE samples, get a baseline for free'). B must be at least 2.
    Zero where `counts`, bool [B, T], is False, and where no other sample counts.
    """
    chex.assert_rank([returns, counts], 2)
    chex.assert_type([returns, counts], [float, bool])
    number = counts.sum(axis=0)
    # Equal returns cancel exactly, so that no rounding of their mean is scaled up to an advantage.
    shifted = jnp.where(counts, returns - returns[:1], 0.0)
    mean = shifted.sum(axis=0) / jnp.maximum(number, 1)
    centred = (shifted - mean) * number / jnp.maximum(number - 1, 1)
    centred = jnp.where(counts & (number > 1), centred, 0.0)
    return centred / (_deviation(centred, counts) + 1e-8)


def risk_seeking(returns: Array, counts: Array) -> Array:
    """Keeps of returns [B, T] what is beyond the best quarter's limit, scaled to unit deviation.

    The gradient is then that of the mean of the best quarter (Petersen et al. 2021, arXiv
    1912.04871, proposition 1): for policies of whose samples the best is taken, which are not to
    give up their variety for a better mean.
    """
    chex.assert_rank([returns, counts], 2)
    chex.assert_type([returns, counts], [float, bool])
    limit = jnp.quantile(jnp.where(counts, returns, -jnp.inf), 1 - BEST_SHARE, axis=0)
    beyond = jnp.where(counts & jnp.isfinite(limit), jnp.maximum(returns - limit, 0.0), 0.0)
    return beyond / (_deviation(beyond, counts) + 1e-8)


def moving_average(returns: Array, counts: Array, baseline: Array) -> tuple[Array, Array]:
    """Takes off returns a moving average [T] of earlier batches' means, and moves that average.

    Mirhoseini et al. 2017 and 2018; not scaled. `baseline` is nan before the first batch that
    counts, which is then its own. A step of which no sample counts leaves the average as it is.
    """
    chex.assert_rank([returns, counts, baseline], [2, 2, 1])
    chex.assert_type([returns, counts, baseline], [float, bool, float])
    number = counts.sum(axis=0)
    mean = jnp.where(counts, returns, 0.0).sum(axis=0) / jnp.maximum(number, 1)
    so_far = jnp.where(jnp.isnan(baseline), mean, baseline)
    after = jnp.where(number > 0, _KEPT * so_far + (1 - _KEPT) * mean, baseline)
    return jnp.where(counts, returns - so_far, 0.0), after


def _deviation(centred: Array, counts: Array) -> Array:
    number = jnp.maximum(counts.sum(), 1)
    mean = centred.sum() / number
    return jnp.sqrt(jnp.where(counts, (centred - mean) ** 2, 0.0).sum() / number)
