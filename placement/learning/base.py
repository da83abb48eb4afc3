"""The common part of policy-gradient learners: settings, state, sampling, advantages, optimiser.

A learner adds a loss on a batch of B episodes of T steps, and the gradient steps taken on a batch.
Advantages have unit deviation, so that the entropy's weight means the same on every graph.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np
import optax
from jax.extend.core import jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.interpreters import partial_eval

from placement import arguments
from placement.learning import advantages
from placement.types import Array, LogProb, Params, Policy, Sample

# Baselines that compare an episode with the other episodes of its batch.
_COMPARING_BASELINES = {
    "leave_one_out": advantages.leave_one_out,
    "risk_seeking": advantages.risk_seeking,
}
_BASELINES = (*_COMPARING_BASELINES, "moving_average", "running_mean", "none")
_RETURNS = {"to_go": advantages.discounted_returns, "episode": advantages.episode_returns}
_DECAY_START, _DECAY_INTERVAL = 400, 50  # gradient steps, as in the Hierarchical Planner's code


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters of all learners; static under jit."""

    num_samples: int = 64  # episodes of an update
    learning_rate: float = 1e-3  # of the first state; see `State`
    # Factor of the learning rate at every 50th gradient step after the first 400.
    learning_rate_decay: float = 1.0
    reward: str = "log"  # see `advantages.rewards`
    # 'leave_one_out', 'risk_seeking', 'moving_average', 'running_mean' or 'none', see `advantages`.
    baseline: str = "leave_one_out"
    # Reward of placements that could not run. 'worst': see `advantages.rewards`; 'constant', as in
    # the Hierarchical Planner: see `advantages.penalise_failures`. A moving average starts there.
    failed: str = "worst"
    discount: float = 0.95
    # 'to_go': see `advantages.discounted_returns`; 'episode': see `advantages.episode_returns`.
    returns: str = "to_go"
    entropy_weight: float = 0.8  # see `entropy_bonus`
    # Number of updates in which the entropy's weight falls linearly to zero; 0: it is constant.
    entropy_decay_updates: int = 0
    max_grad_norm: float = 1.0  # inf turns clipping off


class State(NamedTuple):
    """State of a learner between steps; a pytree, saved in checkpoints."""

    params: Params
    opt_state: Any
    key: chex.PRNGKey
    # float32 [T]: the moving average of returns. Before the first update it is nan, or the returns
    # of an episode of failures if these have a constant reward.
    baseline: Array
    updates: Array  # int32 []: batches learned from
    # float32 []; not a constant of the programs, so that methods that differ in it share them.
    learning_rate: Array


class Learner(NamedTuple):
    """Pure functions that sample from a policy and improve it.

    - `init(key, graph, learning_rate=that of the settings) -> State`.
    - `sample(state, graph) -> (State, Sample)` draws episodes and advances the key.
    - `update(state, graph, sample, latency_s, reference_s, feasible) -> (State, metrics)` learns
      from latencies [B, T], which are penalised for infeasible placements; the reference is [].
      `feasible` [B, T] marks feasible placements; None: the finite latencies.
    - `sample_to_learn(state, graph) -> (State, Sample, learn)` is `sample` for one compiled program
      that also learns: `learn(latency_s, reference_s, feasible)` is `update` of the state and the
      samples, and uses the forward pass of the draw if the policy allows it (`Sample.choices`).
    """

    init: Callable[..., State]
    sample: Callable[[State, jraph.GraphsTuple], tuple[State, Sample]]
    update: Callable[..., tuple[State, dict[str, Array]]]
    sample_to_learn: Callable[
        [State, jraph.GraphsTuple],
        tuple[State, Sample, Callable[..., tuple[State, dict[str, Array]]]],
    ]


class Batch(NamedTuple):
    """Input of a gradient step; every leaf has the leading axis B."""

    samples: Sample
    advantage: Array  # float32 [B, T]


Metrics = dict[str, Array]  # scalars by name
# `loss(current, batch, num_updates) -> (loss [], metrics)`: the batch's samples under the current
# parameters, and the number of updates before this one
Loss = Callable[[LogProb, Batch, Array], tuple[Array, Metrics]]
# `descend(state, batch) -> (state, metrics)`: one gradient step
Descend = Callable[[State, Batch], tuple[State, Metrics]]


def entropy_bonus(settings: Settings, log_prob: LogProb, num_updates: Array) -> Array:
    """Computes the entropy bonus of a loss, the mean of w * entropy / sqrt(choices), a scalar.

    The weight w is constant, or falls linearly from `entropy_weight` at the first update to zero
    after `entropy_decay_updates`. `num_updates`, int32 [], counts the updates before this one.

    A step's log-probability is a sum over its choices, so the noise of the gradient grows with the
    root of their number, while the entropy's gradient does not shrink. Without the root, a weight
    that suits ten choices drowns a hundred.
    """
    chex.assert_rank([log_prob.entropy, log_prob.choices], 2)
    chex.assert_type([log_prob.entropy, log_prob.choices], float)
    scale = jnp.sqrt(jnp.maximum(log_prob.choices, 1.0))
    bonus = settings.entropy_weight * (log_prob.entropy / scale).mean()
    if settings.entropy_decay_updates:
        bonus *= jnp.maximum(1 - num_updates / settings.entropy_decay_updates, 0.0)
    return bonus


def make_learner(
    policy: Policy,
    settings: Settings,
    loss: Loss,
    take_steps: Callable[[Descend, State, Batch], tuple[State, Metrics]] | None = None,
) -> Learner:
    """Makes the learner that minimises a loss; `sample` and `update` are jitted.

    Args:
      policy: draws the episodes.
      settings: the hyper-parameters.
      loss: the loss of a batch.
      take_steps: takes the gradient steps of an update; None: one on the whole batch.

    Raises:
      UserError: a setting is unknown, or there are too few samples for the baseline.
    """
    for setting, value, valid in (
        ("reward", settings.reward, advantages.REWARDS),
        ("baseline", settings.baseline, _BASELINES),
        ("failed", settings.failed, ("worst", "constant")),
        ("returns", settings.returns, _RETURNS),
    ):
        arguments.check_choice(setting, value, valid)
    min_samples = 2 if settings.baseline in _COMPARING_BASELINES else 1
    arguments.check_range("num_samples", settings.num_samples, min_samples)
    rate_factor = optax.exponential_decay(
        1.0, _DECAY_INTERVAL, settings.learning_rate_decay, _DECAY_START, staircase=True
    )
    # Adam works on one vector: on some fifty arrays it would be a third of the compiled program.
    optimiser = optax.chain(
        optax.clip_by_global_norm(settings.max_grad_norm), optax.scale_by_adam()
    )

    @jax.jit  # so that `init` and `sample` share one trace
    def draw(params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Sample:
        return policy.sample(params, key, graph, settings.num_samples)

    def init(
        key: chex.PRNGKey, graph: jraph.GraphsTuple, learning_rate: float = settings.learning_rate
    ) -> State:
        key, init_key = jax.random.split(key)
        params = initial_params(policy.init, init_key, graph)
        num_steps = jax.eval_shape(draw, params, init_key, graph).log_prob.shape[1]
        vector = jax.eval_shape(lambda params: ravel_pytree(params)[0], params)
        zeros = jax.eval_shape(optimiser.init, vector)
        opt_state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), zeros)
        # Strongly typed, as the baseline after an update is: another type would compile again.
        baseline: Array = np.full(num_steps, np.nan, np.float32)
        if settings.failed == "constant":

            @jax.jit  # one program instead of a dozen
            def failing_returns() -> Array:
                """Computes the returns float32 [T] of an episode in which every placement fails."""
                failing_signal_s = jnp.full((1, num_steps), advantages.FAILED_RATIO, jnp.float32)
                reward = advantages.rewards(settings.reward, failing_signal_s, jnp.float32(1.0))
                return _RETURNS[settings.returns](reward, settings.discount)[0]

            baseline = failing_returns()
        updates, rate = np.zeros((), np.int32), np.asarray(learning_rate, np.float32)
        return jax.device_put(State(params, opt_state, key, baseline, updates, rate))

    def terms(scored: Any) -> tuple[tuple[Array, Array], Any]:
        """Returns the terms of a loss, to differentiate, and the `Sample` or `LogProb` itself."""
        # Without a bonus, no gradient passes through the entropy.
        entropy = (
            scored.entropy if settings.entropy_weight else jax.lax.stop_gradient(scored.entropy)
        )
        return (scored.log_prob, entropy), scored

    @jax.jit
    def sample(state: State, graph: jraph.GraphsTuple) -> tuple[State, Sample]:
        key, sample_key = jax.random.split(state.key)
        return state._replace(key=key), draw(state.params, sample_key, graph)

    def sample_to_learn(
        state: State, graph: jraph.GraphsTuple
    ) -> tuple[State, Sample, Callable[..., tuple[State, Metrics]]]:
        shapes = jax.eval_shape(draw, state.params, state.key, graph)
        if shapes.choices is None or take_steps is not None:  # later steps have other parameters
            state, samples = sample(state, graph)
            return state, samples, partial(update, state, graph, samples)
        key, sample_key = jax.random.split(state.key)
        _, pull_back, samples = jax.vjp(
            lambda params: terms(draw(params, sample_key, graph)), state.params, has_aux=True
        )
        state = state._replace(key=key)
        return state, samples, partial(learn, state, graph, samples, pull_back=pull_back)

    def learn(
        state: State,
        graph: jraph.GraphsTuple,
        samples: Sample,
        latency_s: Array,
        reference_s: Array,
        feasible: Array | None = None,
        pull_back: Callable[[Any], Any] | None = None,
    ) -> tuple[State, Metrics]:
        """Updates the state; `pull_back` maps the gradient by `terms` to that by parameters."""
        chex.assert_rank(latency_s, 2)
        chex.assert_type(latency_s, float)
        chex.assert_equal_shape([latency_s, samples.log_prob])
        # A placement that exceeds a memory could not run: it fails, instead of a penalty.
        if settings.failed == "constant" and feasible is not None:
            latency_s = jnp.where(feasible, latency_s, jnp.inf)
        num_updates = state.updates

        def descend(state: State, batch: Batch) -> tuple[State, Metrics]:
            current: Any = batch.samples
            to_gradient = pull_back
            if to_gradient is None:
                _, to_gradient, current = jax.vjp(
                    lambda params: terms(policy.log_prob(params, graph, batch.samples)),
                    state.params,
                    has_aux=True,
                )

            def loss_of_terms(values: tuple[Array, Array]) -> tuple[Array, Metrics]:
                return loss(LogProb(*values, current.choices), batch, num_updates)

            value_and_grad = jax.value_and_grad(loss_of_terms, has_aux=True)
            (value, metrics), cotangents = value_and_grad(terms(current)[0])
            (grads,) = to_gradient(cotangents)
            gradient_vector, _ = ravel_pytree(grads)
            direction, opt_state = optimiser.update(gradient_vector, state.opt_state)
            rate = state.learning_rate * rate_factor(optax.tree.get(state.opt_state, "count"))
            vector, unravel = ravel_pytree(state.params)
            params = unravel(vector - rate * direction)
            metrics = {"loss": value, **metrics, "grad_norm": optax.tree.norm(gradient_vector)}
            return state._replace(params=params, opt_state=opt_state), metrics

        advantage, baseline = compute_advantages(settings, state, latency_s, reference_s)
        state = state._replace(baseline=baseline, updates=state.updates + 1)
        batch = Batch(samples, advantage)
        return descend(state, batch) if take_steps is None else take_steps(descend, state, batch)

    update = jax.jit(learn)
    return Learner(init, sample, update, sample_to_learn)


def make_reinforce_learner(policy: Policy, settings: Settings) -> Learner:
    """Makes the learner of REINFORCE (Williams 1992): one gradient step a batch.

    The gradient of the loss on B episodes of T steps is

        - 1/(B T) sum_b sum_t advantage[b, t] * grad log pi(placement[b, t])  - grad entropy bonus

    Raises:
      UserError: `make_learner` refuses the settings.
    """

    def loss(current: LogProb, batch: Batch, num_updates: Array) -> tuple[Array, Metrics]:
        gain = (batch.advantage * current.log_prob).mean()
        value = -gain - entropy_bonus(settings, current, num_updates)
        return value, {"entropy": current.entropy.mean()}

    return make_learner(policy, settings, loss)


def initial_params(
    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], Params],
    key: chex.PRNGKey,
    graph: jraph.GraphsTuple,
) -> Params:
    """Computes the initial parameters of a policy, without the outputs of its forward pass.

    Operations run one by one, so that they share compilations. In one compiled program, every array
    would add the hundreds of instructions that derive its key.
    """
    traced = jax.jit(init).trace(key, graph)
    jaxpr = traced.jaxpr
    live_jaxpr, is_read = partial_eval.dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.out_avals))
    leaves = jax.tree.leaves((key, graph))
    read_leaves = [leaf for leaf, read in zip(leaves, is_read, strict=True) if read]
    params = jaxpr_as_fun(jaxpr.replace(jaxpr=live_jaxpr))(*read_leaves)
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), params)


def compute_advantages(
    settings: Settings, state: State, latency_s: Array, reference_s: Array
) -> tuple[Array, Array]:
    """Computes the advantages [B, T] of episodes and the next moving average [T].

    Args:
      settings: the hyper-parameters.
      state: holds the moving average and the number of updates.
      latency_s: float32 [B, T].
      reference_s: float32 [].
    """
    counts: Array = jnp.ones(latency_s.shape, bool)  # whether a step counts
    if settings.failed == "constant":
        latency_s, counts = advantages.penalise_failures(latency_s, reference_s, state.updates)
    reward = advantages.rewards(settings.reward, latency_s, reference_s)
    returns = _RETURNS[settings.returns](reward, settings.discount)
    if settings.baseline == "running_mean":
        returns -= advantages.running_mean(reward)
    if settings.baseline == "moving_average":
        return advantages.moving_average(returns, counts, state.baseline)
    if settings.baseline in _COMPARING_BASELINES:
        return _COMPARING_BASELINES[settings.baseline](returns, counts), state.baseline
    return jnp.where(counts, returns, 0.0), state.baseline
