"""Independent categorical distributions over the devices of G groups."""

import chex
import jax
import jax.numpy as jnp

from placement.types import Array


def masked_log_softmax(logits: Array, allowed: Array) -> Array:
    """Normalises logits [G, D] over the allowed devices; a group without any may use all."""
    chex.assert_type([logits, allowed], [float, bool])
    allowed = allowed | ~allowed.any(axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(allowed, logits, -1e9))


def sample(key: Array, log_probs: Array) -> Array:
    """Draws a device for each group, int32 [G]. The first groups' devices do not depend on G."""
    chex.assert_rank(log_probs, 2)
    chex.assert_type(log_probs, float)
    noise = jax.random.gumbel(key, log_probs.shape)
    return jnp.argmax(log_probs + noise, axis=-1).astype(jnp.int32)


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
