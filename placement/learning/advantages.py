"""Rewards of latencies, returns of episodes, and advantages over a baseline.

Shapes: B samples, T steps of an episode. Latencies of placements that could not run are inf.
"""

from typing import Any

import jax
import jax.numpy as jnp

from placement.types import Array


def rewards(kind: str, latency_s: Array, reference_s: Array) -> Array:
    """Rewards [B, T] of latencies [B, T], larger is better, of order 1 near `reference_s` [].

    'inverse'  reference / latency              HSDAG (Duan et al. 2024): 1/latency, made unit-free
    'sqrt'     -sqrt(latency / reference)       Hierarchical Planner (Mirhoseini et al. 2018)
    'log'      -log(latency / reference)        relative differences count alike everywhere

    A placement that could not run is worth the batch's worst that could, less one; 0 as 'inverse'.
    """
    ratio = latency_s / reference_s
    ran = jnp.isfinite(ratio)
    safe = jnp.maximum(jnp.where(ran, ratio, 1.0), 1e-6)  # a free placement has a finite reward
    if kind == "inverse":
        return jnp.where(ran, 1.0 / safe, 0.0)
    value = {"sqrt": lambda r: -jnp.sqrt(r), "log": lambda r: -jnp.log(r)}[kind](safe)
    worst = jnp.where(ran, value, jnp.inf).min()
    return jnp.where(ran, value, jnp.where(jnp.isfinite(worst), worst, 0.0) - 1.0)


def discounted_returns(reward: Array, discount: float) -> Array:
    """Sum over later steps of discount^k * reward, [B, T] -> [B, T]."""

    def backwards(total: jax.Array, r: Any) -> tuple[jax.Array, jax.Array]:
        total = r + discount * total
        return total, total

    start = jnp.zeros(reward.shape[0])
    _, returns = jax.lax.scan(backwards, start, jnp.asarray(reward).T, reverse=True)
    return returns.T


def leave_one_out(returns: Array) -> Array:
    """Returns less the mean of the other samples' at the same step, scaled to unit deviation.

    The baseline of a sample does not depend on it, so the gradient stays unbiased up to the scale
    (Kool et al. 2019, 'Buy 4 REINFORCE samples, get a baseline for free'). B must be at least 2.
    """
    batch = returns.shape[0]
    # Equal returns cancel exactly, so that no rounding of their mean is scaled up to an advantage.
    shifted = returns - returns[:1]
    centred = (shifted - shifted.mean(axis=0)) * (batch / (batch - 1))
    return centred / (centred.std() + 1e-8)
