"""The common part of policy-gradient learners: settings, state, sampling, advantages, optimiser.

A learner adds a loss on a batch of B episodes of T steps, and the gradient steps taken on a batch.
Advantages have unit deviation, so that the entropy's weight means the same on every graph.

If a policy places several graphs at once (`learning.several`), a batch has `num_samples` episodes
of each, graph after graph. Episodes are compared only with those of their own graph.
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

# Baselines that compare an episode with the other episodes of its graph.
_COMPARING_BASELINES = {
    "leave_one_out": advantages.leave_one_out,
    "risk_seeking": advantages.risk_seeking,
}
_RETURNS = {"to_go": advantages.discounted_returns, "episode": advantages.episode_returns}
_DECAY_START, _DECAY_INTERVAL = 400, 50  # gradient steps, as in the Hierarchical Planner's code


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters of all learners; static under jit."""

    num_samples: int = 64  # episodes of each graph in an update
    learning_rate: float = 1e-3
    # Factor of the learning rate at every 50th gradient step after the first 400.
    learning_rate_decay: float = 1.0
    reward: str = "log"  # see `advantages.rewards`
    # 'leave_one_out', 'risk_seeking', 'moving_average' or 'none', see `advantages`.
    baseline: str = "leave_one_out"
    # Reward of placements that could not run. 'worst': see `advantages.rewards`; 'constant', as in
    # the Hierarchical Planner: see `advantages.penalise_failures`.
    failed: str = "worst"
    discount: float = 0.95
    # 'to_go': see `advantages.discounted_returns`; 'episode': see `advantages.episode_returns`.
    returns: str = "to_go"
    entropy_weight: float = 0.8  # see `entropy_bonus`
    max_grad_norm: float = 1.0  # inf turns clipping off


class State(NamedTuple):
    """State of a learner between steps; a pytree, saved in checkpoints."""

    params: Params
    opt_state: Any
    key: chex.PRNGKey
    # float32 [T]: the moving average of returns, or of squared gains in a local search; nan before
    # the first update
    baseline: Array
    updates: Array  # int32 []: batches learned from
    local_search: Any = None  # the `ChainState` of `learning.local_search`, if that is the learner


class Learner(NamedTuple):
    """Pure functions that sample from a policy and improve it.

    - `init(key, graph) -> State`.
    - `sample(state, graph) -> (State, Sample)` draws episodes and advances the key.
    - `update(state, graph, sample, latency_s, reference_s, feasible) -> (State, metrics)` learns
      from latencies [B, T], which are penalised for infeasible placements. The reference is [], or
      [G] for G graphs. `feasible` [B, T] marks feasible placements; None: the finite latencies.
    - `place(state) -> State` puts a state, such as one from a checkpoint, on the JAX devices where
      `update` leaves it: on one, or on all that share the samples.
    """

    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], State]
    sample: Callable[[State, jraph.GraphsTuple], tuple[State, Sample]]
    update: Callable[..., tuple[State, dict[str, Array]]]
    place: Callable[[State], State]


class Batch(NamedTuple):
    """Input of a gradient step; every leaf has the leading axis B."""

    samples: Sample
    advantage: Array  # float32 [B, T]


Metrics = dict[str, Array]  # scalars by name
# `loss(params, graph, batch) -> (loss [], metrics)`
Loss = Callable[[Params, jraph.GraphsTuple, Batch], tuple[Array, Metrics]]
# `descend(state, batch) -> (state, metrics)`: one gradient step
Descend = Callable[[State, Batch], tuple[State, Metrics]]
# `give_credit(settings, state, latency_s, reference_s)`, see `compute_advantages`
GiveCredit = Callable[[Settings, State, Array, Array], tuple[Array, Array]]


def entropy_bonus(settings: Settings, log_prob: LogProb) -> Array:
    """Computes the entropy bonus of a loss, the mean of w * entropy / sqrt(choices), a scalar.

    A step's log-probability is a sum over its choices, and advantages have unit deviation. The
    noise of the gradient therefore grows with the root of their number, while the entropy's
    gradient does not shrink. Without the root, a weight that suits ten choices drowns a hundred.
    """
    chex.assert_rank([log_prob.entropy, log_prob.choices], 2)
    chex.assert_type([log_prob.entropy, log_prob.choices], float)
    scale = jnp.sqrt(jnp.maximum(log_prob.choices, 1.0))
    return settings.entropy_weight * (log_prob.entropy / scale).mean()


def make_learner(
    policy: Policy,
    settings: Settings,
    loss: Loss,
    take_steps: Callable[[Descend, State, Batch], tuple[State, Metrics]] | None = None,
    num_minibatches: int = 1,
    give_credit: GiveCredit | None = None,
) -> Learner:
    """Makes the learner that minimises a loss; `sample` and `update` are jitted.

    Args:
      policy: draws the episodes.
      settings: the hyper-parameters.
      loss: the loss of a batch.
      take_steps: takes the gradient steps of an update; None: one on the whole batch.
      num_minibatches: number of equal parts that `take_steps` cuts a batch into.
      give_credit: computes the advantages; None: `compute_advantages`.

    Raises:
      UserError: a setting is unknown, or there are too few samples for the baseline. `init` raises
        it if the JAX devices cannot share the samples equally.
    """
    for setting, value, valid in (
        ("reward", settings.reward, advantages.REWARDS),
        ("baseline", settings.baseline, (*_COMPARING_BASELINES, "moving_average", "none")),
        ("failed", settings.failed, ("worst", "constant")),
        ("returns", settings.returns, _RETURNS),
    ):
        arguments.check_choice(setting, value, valid)
    if settings.num_samples < 1:
        raise UserError(f"num_samples={settings.num_samples}: give at least 1")
    if settings.baseline in _COMPARING_BASELINES and settings.num_samples < 2:
        raise UserError(
            f"num_samples={settings.num_samples}: the {settings.baseline} baseline needs at least 2"
        )
    rate: Any = settings.learning_rate
    if settings.learning_rate_decay != 1:
        rate = optax.exponential_decay(
            rate, _DECAY_INTERVAL, settings.learning_rate_decay, _DECAY_START, staircase=True
        )
    # Adam works on one vector: on some fifty arrays it would be a third of the compiled program.
    adam = optax.flatten(optax.adam(rate))
    optimiser = optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), adam)

    @jax.jit  # so that `init` and `sample` share one trace
    def draw(params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Sample:
        return policy.sample(params, key, graph, settings.num_samples)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> State:
        mesh.check_num_samples(settings.num_samples, num_minibatches)
        key, init_key = jax.random.split(key)
        params = initial_params(policy.init, init_key, graph)
        num_steps = jax.eval_shape(draw, params, init_key, graph).log_prob.shape[1]
        # Strongly typed, as the baseline after an update is: another type would compile again.
        no_baseline = jnp.full(num_steps, jnp.nan, jnp.float32)
        return State(params, optimiser.init(params), key, no_baseline, jnp.zeros((), jnp.int32))

    @jax.jit
    def sample(state: State, graph: jraph.GraphsTuple) -> tuple[State, Sample]:
        key, sample_key = jax.random.split(state.key)
        return state._replace(key=key), draw(state.params, sample_key, graph)

    @jax.jit
    def update(
        state: State,
        graph: jraph.GraphsTuple,
        samples: Sample,
        latency_s: Array,
        reference_s: Array,
        feasible: Array | None = None,
    ) -> tuple[State, Metrics]:
        del feasible  # policies that draw whole placements learn from penalties alone
        chex.assert_rank(latency_s, 2)
        chex.assert_type(latency_s, float)
        chex.assert_equal_shape([latency_s, samples.log_prob])

        def descend(state: State, batch: Batch) -> tuple[State, Metrics]:
            gradient = jax.value_and_grad(loss, has_aux=True)
            (value, metrics), grads = gradient(state.params, graph, batch)
            updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            metrics = {"loss": value, **metrics, "grad_norm": optax.tree.norm(grads)}
            return state._replace(params=params, opt_state=opt_state), metrics

        give = give_credit or compute_advantages
        advantage, baseline = give(settings, state, latency_s, reference_s)
        state = state._replace(baseline=baseline, updates=state.updates + 1)
        batch = Batch(samples, mesh.replicate(advantage))
        return descend(state, batch) if take_steps is None else take_steps(descend, state, batch)

    return Learner(
        init, sample, update, partial(mesh.replicate_to_mesh, num_samples=settings.num_samples)
    )


def initial_params(
    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], Params],
    key: chex.PRNGKey,
    graph: jraph.GraphsTuple,
) -> Params:
    """Computes the initial parameters of a policy, without the outputs of its forward pass.

    Operations run one by one, so that arrays of one shape share a compilation. In one compiled
    program, every array would add the hundreds of instructions that draw its random numbers.

    Args:
      init: the policy's `init`.
      key: consumed.
      graph: the input of the policy.
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
    """Computes the advantages of episodes and the next moving average.

    Args:
      settings: the hyper-parameters.
      state: holds the moving average and the number of updates.
      latency_s: float32 [B, T].
      reference_s: float32 [], or [G] for the episodes of G graphs.

    Returns:
      Advantages [B, T] and the moving average [T].
    """
    shape = latency_s.shape
    graph_latencies_s = latency_s.reshape(-1, settings.num_samples, shape[-1])
    references_s = jnp.broadcast_to(reference_s, len(graph_latencies_s))

    def compute_returns(latency_s: Array, reference_s: Array) -> tuple[Array, Array]:
        """Returns one graph's returns [num_samples, T], and which of them count."""
        counts: Array = jnp.ones(latency_s.shape, bool)
        if settings.failed == "constant":
            latency_s, counts = advantages.penalise_failures(latency_s, reference_s, state.updates)
        reward = advantages.rewards(settings.reward, latency_s, reference_s)
        return _RETURNS[settings.returns](reward, settings.discount), counts

    returns, counts = jax.vmap(compute_returns)(graph_latencies_s, references_s)
    if settings.baseline == "moving_average":
        return advantages.moving_average(
            returns.reshape(shape), counts.reshape(shape), state.baseline
        )
    if settings.baseline in _COMPARING_BASELINES:
        compared = jax.vmap(_COMPARING_BASELINES[settings.baseline])(returns, counts)
        return compared.reshape(shape), state.baseline
    return jnp.where(counts, returns, 0.0).reshape(shape), state.baseline
