"""PPO (Schulman et al. 2017, arXiv 1707.06347) over any policy: several gradient steps a batch.

With ratio[b, t] = pi(placement[b, t]) / pi_sampled(placement[b, t]), the surrogate of the expected
return is

    1/(B T) sum_b sum_t min( ratio * advantage, clip(ratio, 1 - c, 1 + c) * advantage )

which stops rewarding a step once its probability has moved by the share c. At the first gradient
step every ratio is 1 and the gradient is REINFORCE's.

Departures from the paper: no value network, since an episode's advantage is its difference from the
other episodes', as in `reinforce`; advantages are normalised over the batch and not again over a
minibatch.
"""

from collections.abc import Callable
from functools import partial

import chex
import jax
import jax.numpy as jnp
import jraph

from placement.errors import UserError
from placement.learning import base
from placement.types import Array, Params, Policy

_LARGEST_LOG_RATIO = 20.0  # far beyond any clip; an infinite ratio would make the gradient nan


def make(
    policy: Policy,
    settings: base.Settings,
    *,
    epochs: int = 3,
    num_minibatches: int = 2,
    clip: float = 0.2,
) -> base.Learner:
    """Makes the learner of a policy.

    Args:
      policy: draws the episodes.
      settings: see `base.Settings`.
      epochs: passes over the samples of an update.
      num_minibatches: gradient steps a pass, on equal shares of the B samples, shuffled with the
        state's key.
      clip: c, the share by which a step's probability may move before its gradient vanishes.

    Raises:
      UserError: settings that `base.make` refuses, or samples that do not split into minibatches.
    """
    _check(settings, epochs, num_minibatches, clip)

    def loss(
        params: Params, graph: jraph.GraphsTuple, batch: base.Batch
    ) -> tuple[Array, base.Metrics]:
        now = policy.log_prob(params, graph, batch.drawn)
        log_ratio = now.log_prob - batch.drawn.log_prob
        gain, clipped = surrogate(log_ratio, batch.advantage, clip=clip)
        value = -gain.mean() - base.bonus(settings, now)
        return value, {"entropy": now.entropy.mean(), "clipped": clipped.mean()}

    cut = partial(shares, num_minibatches=num_minibatches, num_samples=settings.num_samples)
    passes = partial(_epochs, epochs=epochs, cut=cut)
    return base.make(policy, settings, loss, passes, num_minibatches)


def surrogate(log_ratio: Array, advantage: Array, *, clip: float) -> tuple[Array, Array]:
    """Computes the clipped gain of each step, and whether clipping took its gradient away.

    Args:
      log_ratio: float32 [B, T], or any other shape, which the results have too.
      advantage: of the same shape.
      clip: c, see `make`.
    """
    chex.assert_equal_shape([log_ratio, advantage])
    chex.assert_type([log_ratio, advantage], float)
    ratio = jnp.exp(jnp.minimum(log_ratio, _LARGEST_LOG_RATIO))
    free, bounded = ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage
    return jnp.minimum(free, bounded), bounded < free


def shares(key: Array, batch: base.Batch, num_minibatches: int, num_samples: int) -> base.Batch:
    """Shuffles and cuts a batch: every leaf [B, ...] becomes [num_minibatches, B', ...].

    Each share has as many of each graph's `num_samples` episodes, graph after graph.
    """
    order = jax.random.permutation(key, num_samples).reshape(num_minibatches, 1, -1)
    first = jnp.arange(0, batch.advantage.shape[0], num_samples)[:, None]
    index = (first + order).reshape(num_minibatches, -1)
    return jax.tree.map(lambda leaf: leaf[index], batch)


def _epochs(
    descend: base.Descend,
    state: base.State,
    batch: base.Batch,
    *,
    epochs: int,
    cut: Callable[[Array, base.Batch], base.Batch],
) -> tuple[base.State, base.Metrics]:
    """The metrics are means over the gradient steps."""

    def epoch(state: base.State, _: None) -> tuple[base.State, base.Metrics]:
        key, shuffle_key = jax.random.split(state.key)
        return jax.lax.scan(descend, state._replace(key=key), cut(shuffle_key, batch))

    state, metrics = jax.lax.scan(epoch, state, length=epochs)
    return state, jax.tree.map(jnp.mean, metrics)


def _check(settings: base.Settings, epochs: int, num_minibatches: int, clip: float) -> None:
    if epochs < 1:
        raise UserError(f"epochs={epochs}: give at least 1")
    if num_minibatches < 1 or settings.num_samples % num_minibatches:
        raise UserError(
            f"num_samples={settings.num_samples} does not split into "
            f"num_minibatches={num_minibatches} equal shares; give a divisor"
        )
    if not 0 < clip < 1:
        raise UserError(f"clip={clip}: give a share between 0 and 1")
