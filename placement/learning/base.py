"""What policy-gradient learners share: hyper-parameters, state, drawing, advantages, the optimiser.

A learner is a loss on a batch of B episodes of T steps, and how often a batch is stepped on.
Advantages have unit deviation, so that the entropy's weight means the same on every graph.

Of a policy that places several graphs at once (`learning.several`) a batch has `num_samples`
episodes of each, graph after graph. Episodes are compared with those of their own graph alone.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import optax
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval

from placement import arguments
from placement.errors import UserError
from placement.learning import advantages, mesh
from placement.types import Array, LogProb, Params, Policy, Sample

# Baselines that compare an episode with the others of its batch.
_OVER_OTHERS = {
    "leave_one_out": advantages.leave_one_out,
    "risk_seeking": advantages.risk_seeking,
}
_RETURNS = {"to_go": advantages.discounted_returns, "episode": advantages.episode_returns}
_DECAY_FROM, _DECAY_EVERY = 400, 50  # gradient steps, as in the Hierarchical Planner's code


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters of every learner; static under jit."""

    num_samples: int = 64  # B, episodes an update; of several graphs, of each
    learning_rate: float = 1e-3
    # Factor on the learning rate every 50 gradient steps after the first 400.
    learning_rate_decay: float = 1.0
    reward: str = "log"  # see `advantages.rewards`
    # Or 'risk_seeking', 'moving_average' or 'none', see `advantages`.
    baseline: str = "leave_one_out"
    # What could not run: 'worst': see `advantages.rewards`; or 'constant', of the Hierarchical
    # Planner: see `advantages.failures_as_constant`.
    failed: str = "worst"
    discount: float = 0.95
    # 'to_go': see `advantages.discounted_returns`; 'episode': see `advantages.episode_returns`.
    returns: str = "to_go"
    entropy_weight: float = 0.8  # see `bonus`
    max_grad_norm: float = 1.0  # inf: no clipping


class State(NamedTuple):
    """Everything that a search carries from step to step: a pytree, saved as a checkpoint."""

    params: Params
    opt_state: Any
    key: chex.PRNGKey
    baseline: Array  # float32 [T]: the moving average of returns; nan before the first update
    updates: Array  # int32 []: batches learned from
    walk: Any = None  # of `learning.walk`: where it stands


class Learner(NamedTuple):
    """`init(key, graph) -> State`; `sample(state, graph) -> (State, Sample)` advances the key;
    `update(state, graph, sample, latency_s [B, T], reference_s, feasible) -> (State, metrics)`,
    where the reference is [], or [G] of G graphs, and `feasible` [B, T] says which of the latencies
    are of placements that can run, and not penalised; None: the finite ones.
    `place(state) -> State` puts a state, such as one from a checkpoint, where `update` leaves it:
    on one device, or on all that share the samples.
    """

    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], State]
    sample: Callable[[State, jraph.GraphsTuple], tuple[State, Sample]]
    update: Callable[..., tuple[State, dict[str, Array]]]
    place: Callable[[State], State]


class Batch(NamedTuple):
    """What a gradient step learns from; every leaf has the leading axis B."""

    drawn: Sample
    advantage: Array  # float32 [B, T]


Metrics = dict[str, Array]  # scalars by name
# `loss(params, graph, batch) -> (loss [], metrics)`
Loss = Callable[[Params, jraph.GraphsTuple, Batch], tuple[Array, Metrics]]
# `descend(state, batch) -> (state, metrics)`: one gradient step
Descend = Callable[[State, Batch], tuple[State, Metrics]]


def bonus(settings: Settings, now: LogProb) -> Array:
    """Computes what a loss takes off for entropy: the mean of w * entropy / sqrt(choices).

    A step's log-probability is a sum over its choices, and advantages have unit deviation, so that
    the noise of the gradient grows with the root of their number, while the entropy's gradient does
    not shrink: without the root, a weight that suits ten choices drowns a hundred. A scalar, [].
    """
    chex.assert_rank([now.entropy, now.choices], 2)
    chex.assert_type([now.entropy, now.choices], float)
    return settings.entropy_weight * (now.entropy / jnp.sqrt(jnp.maximum(now.choices, 1.0))).mean()


def once(descend: Descend, state: State, batch: Batch) -> tuple[State, Metrics]:
    """Takes one gradient step on the whole batch."""
    return descend(state, batch)


def make(
    policy: Policy,
    settings: Settings,
    loss: Loss,
    passes: Callable[[Descend, State, Batch], tuple[State, Metrics]] = once,
    num_minibatches: int = 1,
) -> Learner:
    """Makes the learner that descends a loss; `sample` and `update` are jitted.

    Args:
      policy: draws the episodes.
      settings: see there.
      loss: to descend.
      passes: the gradient steps of an update.
      num_minibatches: the equal shares of a batch that these take.

    Raises:
      UserError: a reward, baseline, treatment of failures or kind of returns that does not exist,
        or too few samples for the baseline; `init` raises it for samples that the JAX devices
        cannot share.
    """
    _check(settings)
    optimiser = _optimiser(settings)

    @jax.jit  # `init` and `sample` share one trace.
    def draw(params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Sample:
        return policy.sample(params, key, graph, settings.num_samples)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> State:
        mesh.check(settings.num_samples, num_minibatches)
        key, init_key = jax.random.split(key)
        params = initial_params(policy.init, init_key, graph)
        num_steps = jax.eval_shape(draw, params, init_key, graph).log_prob.shape[1]
        # Not weakly typed: the baseline after an update is not, and another type compiles again.
        unknown = jnp.full(num_steps, jnp.nan, jnp.float32)
        return State(params, optimiser.init(params), key, unknown, jnp.zeros((), jnp.int32))

    @jax.jit
    def sample(state: State, graph: jraph.GraphsTuple) -> tuple[State, Sample]:
        key, sample_key = jax.random.split(state.key)
        return state._replace(key=key), draw(state.params, sample_key, graph)

    @jax.jit
    def update(
        state: State,
        graph: jraph.GraphsTuple,
        drawn: Sample,
        latency_s: Array,
        reference_s: Array,
        feasible: Array | None = None,
    ) -> tuple[State, Metrics]:
        del feasible  # penalties alone guide policies that draw whole placements
        chex.assert_rank(latency_s, 2)
        chex.assert_type(latency_s, float)
        chex.assert_equal_shape([latency_s, drawn.log_prob])

        def descend(state: State, batch: Batch) -> tuple[State, Metrics]:
            gradient = jax.value_and_grad(loss, has_aux=True)
            (value, metrics), grads = gradient(state.params, graph, batch)
            updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            metrics = {"loss": value, **metrics, "grad_norm": optax.tree.norm(grads)}
            return state._replace(params=params, opt_state=opt_state), metrics

        advantage, baseline = _advantage(settings, state, latency_s, reference_s)
        state = state._replace(baseline=baseline, updates=state.updates + 1)
        return passes(descend, state, Batch(drawn, mesh.replicate(advantage)))

    return Learner(
        init, sample, update, partial(mesh.replicate_to_mesh, num_samples=settings.num_samples)
    )


def initial_params(
    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], Params],
    key: chex.PRNGKey,
    graph: jraph.GraphsTuple,
) -> Params:
    """Computes the initial parameters of a policy, and nothing else that its `init` calls.

    Operations run one by one, so that arrays of one shape share a compilation. Compiled as a whole,
    every array would add the hundreds of instructions that draw its random numbers.

    Args:
      init: of the policy.
      key: consumed.
      graph: as the policy reads it.
    """
    traced = jax.jit(init).trace(key, graph)
    jaxpr = traced.jaxpr
    needed, is_read = partial_eval.dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.out_avals))
    leaves = jax.tree.leaves((key, graph))
    arguments_ = [leaf for leaf, read in zip(leaves, is_read, strict=True) if read]
    params = jaxpr_as_fun(jaxpr.replace(jaxpr=needed))(*arguments_)
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), params)


def _optimiser(settings: Settings) -> optax.GradientTransformation:
    rate: Any = settings.learning_rate
    if settings.learning_rate_decay != 1:
        rate = optax.exponential_decay(
            rate, _DECAY_EVERY, settings.learning_rate_decay, _DECAY_FROM, staircase=True
        )
    # Adam works on one vector: on some fifty arrays it would be a third of the compiled program.
    adam = optax.flatten(optax.adam(rate))
    return optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), adam)


def _advantage(
    settings: Settings, state: State, latency_s: Array, reference_s: Array
) -> tuple[Array, Array]:
    """Advantages [B, T], and the moving average [T] from now on."""
    shape = latency_s.shape
    of_graphs = latency_s.reshape(-1, settings.num_samples, shape[-1])
    references = jnp.broadcast_to(reference_s, len(of_graphs))
    returns, counts = jax.vmap(partial(_returns, settings, state))(of_graphs, references)
    if settings.baseline == "moving_average":
        flat = returns.reshape(shape), counts.reshape(shape)
        return advantages.moving_average(*flat, state.baseline)
    if settings.baseline in _OVER_OTHERS:
        compared = jax.vmap(_OVER_OTHERS[settings.baseline])(returns, counts)
        return compared.reshape(shape), state.baseline
    return jnp.where(counts, returns, 0.0).reshape(shape), state.baseline


def _returns(
    settings: Settings, state: State, latency_s: Array, reference_s: Array
) -> tuple[Array, Array]:
    """Of one graph's episodes, [B, T]: returns, and which of them count."""
    counts: Array = jnp.ones(latency_s.shape, bool)
    if settings.failed == "constant":
        latency_s, counts = advantages.failures_as_constant(latency_s, reference_s, state.updates)
    reward = advantages.rewards(settings.reward, latency_s, reference_s)
    return _RETURNS[settings.returns](reward, settings.discount), counts


def _check(settings: Settings) -> None:
    for kind, value, valid in (
        ("reward", settings.reward, advantages.REWARDS),
        ("baseline", settings.baseline, (*_OVER_OTHERS, "moving_average", "none")),
        ("failed", settings.failed, ("worst", "constant")),
        ("returns", settings.returns, _RETURNS),
    ):
        arguments.check(kind, value, valid)
    if settings.num_samples < 1:
        raise UserError(f"num_samples={settings.num_samples}: give at least 1")
    if settings.baseline in _OVER_OTHERS and settings.num_samples < 2:
        raise UserError(
            f"num_samples={settings.num_samples}: the {settings.baseline} baseline needs at least 2"
        )
