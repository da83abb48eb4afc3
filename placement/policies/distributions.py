"""Independent categorical choices of a device, one a group, as log-probabilities and draws."""

import jax
import jax.numpy as jnp

from placement.types import Array


def masked_log_softmax(logits: Array, allowed: Array) -> Array:
    """Log-probabilities [G, D] over the allowed devices; a group allowed nowhere is free."""
    allowed = allowed | ~allowed.any(axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(allowed, logits, -1e9))


def sample(key: Array, log_probs: Array) -> Array:
    """One device a group, int32 [G]. The draws of the first groups do not depend on G."""
    noise = jax.random.gumbel(key, log_probs.shape)
    return jnp.argmax(log_probs + noise, axis=-1).astype(jnp.int32)


def log_prob(log_probs: Array, choice: Array, mask: Array) -> Array:
    """Log-probability [] of the choices int32 [G] of the groups in `mask`, bool [G]."""
    chosen = jnp.take_along_axis(log_probs, choice[:, None], axis=1)[:, 0]
    return jnp.where(mask, chosen, 0.0).sum()


def entropy(log_probs: Array, mask: Array) -> Array:
    """Entropy [] in nats, summed over the groups in `mask`."""
    each = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
    return jnp.where(mask, each, 0.0).sum()
