"""What policy-gradient learners share: hyper-parameters, state, drawing, advantages, the optimiser.

A learner is a loss on a batch of B episodes of T steps, and how often a batch is stepped on.
Advantages have unit deviation, so that the entropy's weight means the same on every graph.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import optax

from placement.learning import advantages
from placement.types import Array, Params, Policy, Sample


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters of every learner; static under jit."""

    num_samples: int = 64  # B, episodes an update
    learning_rate: float = 1e-3
    reward: str = "log"  # see `advantages.rewards`
    baseline: str = "leave_one_out"  # or 'none'
    discount: float = 0.95
    entropy_weight: float = 0.8  # see `bonus`
    max_grad_norm: float = 1.0  # inf: no clipping


class State(NamedTuple):
    """Everything that a search carries from step to step: a pytree, saved as a checkpoint."""

    params: Params
    opt_state: Any
    key: chex.PRNGKey


class Learner(NamedTuple):
    """`init(key, graph) -> State`; `sample(state, graph) -> (State, Sample)` advances the key;
    `update(state, graph, sample, latency_s [B, T], reference_s []) -> (State, metrics)`.
    """

    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], State]
    sample: Callable[[State, jraph.GraphsTuple], tuple[State, Sample]]
    update: Callable[..., tuple[State, dict[str, Array]]]


class Batch(NamedTuple):
    """What a gradient step learns from; every leaf has the leading axis B."""

    drawn: Sample
    advantage: Array  # float32 [B, T]


Metrics = dict[str, Array]  # scalars by name
# `loss(params, graph, batch) -> (loss [], metrics)`
Loss = Callable[[Params, jraph.GraphsTuple, Batch], tuple[Array, Metrics]]
# `descend(state, batch) -> (state, metrics)`: one gradient step
Descend = Callable[[State, Batch], tuple[State, Metrics]]


def bonus(settings: Settings, graph: jraph.GraphsTuple, entropy: Array) -> Array:
    """What a loss takes off for entropy [] in nats: w * entropy / sqrt(operations that decide).

    A placement's log-probability is a sum over operations, and advantages have unit deviation, so
    that the noise of the gradient grows with the root of their number, while the entropy's gradient
    does not shrink: without the root, a weight that suits ten operations drowns a hundred.
    """
    return settings.entropy_weight * entropy / jnp.sqrt(graph.nodes["mask"].sum())


def once(descend: Descend, state: State, batch: Batch) -> tuple[State, Metrics]:
    """One gradient step on the whole batch."""
    return descend(state, batch)


def make(
    policy: Policy,
    settings: Settings,
    loss: Loss,
    passes: Callable[[Descend, State, Batch], tuple[State, Metrics]] = once,
) -> Learner:
    """The learner that descends a loss; `sample` and `update` are jitted.

    Args:
      policy: draws the episodes.
      settings: see there.
      loss: to descend.
      passes: the gradient steps of an update.

    Raises:
      ValueError: a reward or baseline that does not exist, or too few samples for the baseline.
    """
    _check(settings)
    optimiser = optax.chain(
        optax.clip_by_global_norm(settings.max_grad_norm), optax.adam(settings.learning_rate)
    )

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> State:
        key, init_key = jax.random.split(key)
        params = jax.jit(policy.init)(init_key, graph)  # eagerly it takes seconds
        return State(params, optimiser.init(params), key)

    @jax.jit
    def sample(state: State, graph: jraph.GraphsTuple) -> tuple[State, Sample]:
        key, sample_key = jax.random.split(state.key)
        drawn = policy.sample(state.params, sample_key, graph, settings.num_samples)
        return state._replace(key=key), drawn

    @jax.jit
    def update(
        state: State,
        graph: jraph.GraphsTuple,
        drawn: Sample,
        latency_s: Array,
        reference_s: Array,
    ) -> tuple[State, Metrics]:
        chex.assert_equal_shape([latency_s, drawn.log_prob])

        def descend(state: State, batch: Batch) -> tuple[State, Metrics]:
            gradient = jax.value_and_grad(loss, has_aux=True)
            (value, metrics), grads = gradient(state.params, graph, batch)
            updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            metrics = {"loss": value, **metrics, "grad_norm": optax.tree.norm(grads)}
            return state._replace(params=params, opt_state=opt_state), metrics

        batch = Batch(drawn, _advantage(settings, latency_s, reference_s))
        return passes(descend, state, batch)

    return Learner(init, sample, update)


def _advantage(settings: Settings, latency_s: Array, reference_s: Array) -> Array:
    reward = advantages.rewards(settings.reward, latency_s, reference_s)
    returns = advantages.discounted_returns(reward, settings.discount)
    return advantages.leave_one_out(returns) if settings.baseline == "leave_one_out" else returns


def _check(settings: Settings) -> None:
    if settings.reward not in ("inverse", "sqrt", "log"):
        raise ValueError(f"unknown reward {settings.reward!r}; valid: inverse, sqrt, log")
    if settings.baseline not in ("leave_one_out", "none"):
        raise ValueError(f"unknown baseline {settings.baseline!r}; valid: leave_one_out, none")
    if settings.baseline == "leave_one_out" and settings.num_samples < 2:
        raise ValueError(
            f"num_samples={settings.num_samples}: the leave_one_out baseline needs at least 2"
        )
