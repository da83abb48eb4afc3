"""Independent categorical distributions over the devices of G groups."""

import math

import chex
import jax
import jax.numpy as jnp

from placement.types import Array


def masked_log_softmax(logits: Array, allowed: Array) -> Array:
    """Normalises logits [G, D] over the allowed devices; a group without any may use all."""
    chex.assert_type([logits, allowed], [float, bool])
    allowed = allowed | ~allowed.any(axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(allowed, logits, -1e9))


def noise(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws Gumbel noise [..., G, D] at once. That of the first groups does not depend on G.

    One draw of a vector is a small program: with four axes it compiles for six times as long, and a
    key for each sample or step would add the kernels of a split.
    """
    *leading, num_groups, num_devices = shape
    values = jax.random.gumbel(key, (math.prod(shape),))
    return jnp.moveaxis(values.reshape(num_groups, *leading, num_devices), 0, -2)


def sample(key: Array, log_probs: Array) -> Array:
    """Draws devices int32 [..., G] from [..., G, D]; the first groups' do not depend on G."""
    chex.assert_type(log_probs, float)
    return jnp.argmax(log_probs + noise(key, log_probs.shape), axis=-1).astype(jnp.int32)


def log_prob(log_probs: Array, choice: Array, mask: Array) -> Array:
    """Sums the log-probabilities of choices int32 [G] over the groups in the mask bool [G]."""
    chex.assert_rank([log_probs, choice, mask], [2, 1, 1])
    chex.assert_type([log_probs, choice, mask], [float, int, bool])
    choice_log_probs = jnp.take_along_axis(log_probs, choice[:, None], axis=1)[:, 0]
    return jnp.where(mask, choice_log_probs, 0.0).sum()


def entropy(log_probs: Array, mask: Array) -> Array:
    """Sums the entropies in nats over the groups in the mask bool [G]."""
    chex.assert_rank([log_probs, mask], [2, 1])
    chex.assert_type([log_probs, mask], [float, bool])
    entropies = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
    return jnp.where(mask, entropies, 0.0).sum()
