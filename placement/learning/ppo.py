"""PPO (Schulman et al. 2017, arXiv 1707.06347) over any policy: several gradient steps a batch.

The importance ratio is ratio[b, t] = pi(placement[b, t]) / pi_sampled(placement[b, t]). The
surrogate of the expected return,

    1/(B T) sum_b sum_t min( ratio * advantage, clip(ratio, 1 - c, 1 + c) * advantage ),

stops rewarding a step once its probability has moved by the share c. At the first gradient step
every ratio is 1 and the gradient is that of REINFORCE.

Departures from the paper: the value network is left out, because advantages compare an episode with
the others. Advantages are normalised over the batch and not again over a
minibatch.
"""

import chex
import jax
import jax.numpy as jnp

from placement import arguments
from placement.errors import UserError
from placement.learning import base
from placement.types import Array, LogProb, Policy

_MAX_LOG_RATIO = 20.0  # far beyond any clip; an infinite ratio would make the gradient nan


def make_learner(
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
      settings: the hyper-parameters.
      epochs: number of passes over the samples of an update.
      num_minibatches: number of gradient steps in a pass, each on an equal part of the shuffled
        samples.
      clip: c, the share by which a step's probability may move before its gradient vanishes.

    Raises:
      UserError: `base.make_learner` refuses the settings, or the samples do not split into
        minibatches.
    """
    arguments.check_range("epochs", epochs, 1)
    arguments.check_range("clip", clip, 0, 1)
    if num_minibatches < 1 or settings.num_samples % num_minibatches:
        raise UserError(
            f"num_samples={settings.num_samples} does not split into "
            f"num_minibatches={num_minibatches} equal shares; set a divisor"
        )

    def loss(current: LogProb, batch: base.Batch, num_updates: Array) -> tuple[Array, base.Metrics]:
        log_ratio = current.log_prob - batch.samples.log_prob
        gain, is_clipped = surrogate(log_ratio, batch.advantage, clip=clip)
        value = -gain.mean() - base.entropy_bonus(settings, current, num_updates)
        return value, {"entropy": current.entropy.mean(), "clipped": is_clipped.mean()}

    def take_steps(
        descend: base.Descend, state: base.State, batch: base.Batch
    ) -> tuple[base.State, base.Metrics]:
        def epoch(state: base.State, _: None) -> tuple[base.State, base.Metrics]:
            key, shuffle_key = jax.random.split(state.key)
            minibatches = shuffle(shuffle_key, batch, num_minibatches)
            return jax.lax.scan(descend, state._replace(key=key), minibatches)

        state, metrics = jax.lax.scan(epoch, state, length=epochs)
        return state, jax.tree.map(jnp.mean, metrics)  # means over the gradient steps

    return base.make_learner(policy, settings, loss, take_steps)


def surrogate(log_ratio: Array, advantage: Array, *, clip: float) -> tuple[Array, Array]:
    """Computes the clipped gain of each step, and whether clipping removed its gradient.

    Args:
      log_ratio: float32 of any shape, such as [B, T]; the results have the same shape.
      advantage: float32 of this shape.
      clip: c, see `make_learner`.
    """
    chex.assert_equal_shape([log_ratio, advantage])
    chex.assert_type([log_ratio, advantage], float)
    ratio = jnp.exp(jnp.minimum(log_ratio, _MAX_LOG_RATIO))
    unclipped, clipped = ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage
    return jnp.minimum(unclipped, clipped), clipped < unclipped


def shuffle(key: Array, batch: base.Batch, num_minibatches: int) -> base.Batch:
    """Shuffles and cuts a batch: every leaf [B, ...] becomes [num_minibatches, B', ...]."""
    order = jax.random.permutation(key, len(batch.advantage)).reshape(num_minibatches, -1)
    return jax.tree.map(lambda leaf: leaf[order], batch)
