"""Learning while a placement is improved: a policy's moves are the proposals of a local search.

The state holds one chain of `placement.solvers.iterated_local_search`. In each step the policy
draws B neighbours of the chain's placement, all of them are evaluated, and the chain moves to the
best. So the policy learns from the search's own evaluations, in the states that the search meets.
A placement that exceeds a memory costs a thousand times its penalised latency, so the chain leaves
it as soon as a feasible one is proposed.

The reward of a sample is its gain,

    r_b = min( 1, max( 0, log cost of the placement before - log cost of the sample )),

which is zero if nothing improves: such a step teaches nothing. Gains shrink a thousandfold in the
course of a search, and Adam's long memory of the first steps would stop learning. They are
therefore divided by the root of their mean square over the last ten improving steps or so. Division
by each step's own deviation would teach a gain of 1e-6 as strongly as one of 10%.

The learner is REINFORCE (Williams 1992), one gradient step a batch. A sample's advantage is its
reward less the mean of the other samples. If samples share a random draw, such as a grouping
(`policies.group_moves.SharedDraw`), its log-probability has a separate advantage: the reward less
the mean of the samples of *other* draws. Compared with samples of the same draw, credits would
cancel where all samples of a draw have the same log-probability of it.
"""

import chex
import jax
import jax.numpy as jnp
import jraph

from placement.errors import UserError
from placement.learning import base
from placement.solvers import iterated_local_search as ils
from placement.types import Array, Params, Policy, Sample

_INFEASIBLE_FACTOR = 1e3
_MAX_GAIN = 1.0  # an infeasible placement that becomes feasible gains this much
_SCALE_DECAY = 0.9  # of the mean square gain, in each step that improves the placement
_FIXED_SETTINGS = ("reward", "baseline", "failed", "returns", "discount")


@jax.jit
def begin(graph: jraph.GraphsTuple) -> ils.ChainState:
    """Starts a chain with each node on the fastest device overall, or the first that supports it.

    The cost of this placement is unknown, so the chain moves to its best proposal.
    """
    allowed = jnp.asarray(graph.nodes["allowed"])
    fastest = jnp.asarray(graph.globals.compute_s).sum(axis=0).argmin()
    placement = jnp.where(allowed[:, fastest], fastest, allowed.argmax(axis=1)).astype(jnp.int32)
    return begin_at(placement, jnp.inf)


@jax.jit
def begin_at(placement: Array, latency_s: Array | float) -> ils.ChainState:
    """Starts a chain at a placement int32 [N] of nodes; its latency is inf if it is unknown."""
    costs_s = jnp.full(1, latency_s, jnp.float32)
    evaluation, chain_starts = ils.Evaluation(costs_s, costs_s), jnp.zeros(1, jnp.int32)
    return ils.start(jnp.asarray(placement)[:, None], evaluation, chain_starts)


def make_learner(policy: Policy, settings: base.Settings) -> base.Learner:
    """Makes the learner of a policy that proposes neighbours of a placement.

    Raises:
      UserError: `base.make_learner` refuses the settings, or they choose another reward.
    """

    def loss(
        params: Params, graph: jraph.GraphsTuple, batch: base.Batch, num_updates: Array
    ) -> tuple[Array, base.Metrics]:
        current, reward = policy.log_prob(params, graph, batch.samples), batch.advantage[:, 0]
        advantage = subtract_other_draws(reward, jnp.arange(len(reward)))
        gain = (advantage * current.log_prob[:, 0]).mean()
        if current.shared is not None:
            advantage = subtract_other_draws(reward, current.shared.number[:, 0])
            gain += (advantage * current.shared.log_prob[:, 0]).mean()
        value = -gain - base.entropy_bonus(settings, current, num_updates)
        return value, {"entropy": current.entropy.mean()}

    learner = base.make_learner(policy, settings, loss, give_credit=_compute_rewards)
    for name in _FIXED_SETTINGS:
        value, default = getattr(settings, name), getattr(base.Settings(), name)
        if value != default:
            raise UserError(
                f"{name}={value}: a policy that improves a placement is rewarded for its gains "
                f"alone; leave {name}={default}"
            )

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> base.State:
        return learner.init(key, graph)._replace(local_search=begin(graph))

    @jax.jit
    def sample(state: base.State, graph: jraph.GraphsTuple) -> tuple[base.State, Sample]:
        key, sample_key = jax.random.split(state.key)
        placement = state.local_search.placements[:, 0]
        placements = jnp.broadcast_to(placement, (settings.num_samples, len(placement)))
        samples = policy.sample(state.params, sample_key, graph, settings.num_samples, placements)
        return state._replace(key=key), samples

    @jax.jit
    def update(
        state: base.State,
        graph: jraph.GraphsTuple,
        samples: Sample,
        latency_s: Array,
        reference_s: Array,
        feasible: Array | None = None,
    ) -> tuple[base.State, base.Metrics]:
        chain: ils.ChainState = state.local_search
        placements, latency_s = samples.placement[:, 0], latency_s[:, 0]
        mask = jnp.asarray(graph.nodes["mask"])
        is_changed = ((placements != chain.placements[:, 0]) & mask).any(axis=1)
        is_feasible = jnp.isfinite(latency_s) if feasible is None else feasible[:, 0]
        costs_s = jnp.where(is_feasible, latency_s, _INFEASIBLE_FACTOR * latency_s)
        costs_s = jnp.where(is_changed, costs_s, jnp.inf)
        state, metrics = learner.update(state, graph, samples, costs_s[:, None], reference_s)
        is_improvement = jnp.isfinite(chain.costs_s) & (costs_s < chain.costs_s)
        metrics |= {"gained": is_improvement.mean(), "changed": is_changed.mean()}
        chain = ils.move_chains(
            chain,
            ils.Proposals(placements.T),
            ils.Evaluation(costs_s, jnp.where(is_feasible, costs_s, jnp.inf)),
            patience=ils.default_patience(len(chain.placements)),
        )
        return state._replace(local_search=chain), metrics

    return base.Learner(init, sample, update)


def subtract_other_draws(reward: Array, draw: Array) -> Array:
    """Subtracts from rewards float32 [B] the mean of all samples with other draws, int [B].

    The result is zero where all samples have the same draw.
    """
    chex.assert_rank([reward, draw], 1)
    chex.assert_type([reward, draw], [float, int])
    is_other = draw[:, None] != draw
    count = is_other.sum(axis=1)
    # Equal rewards cancel exactly here, whereas a rounded mean would leave an advantage.
    total = jnp.where(is_other, reward[:, None] - reward, 0.0).sum(axis=1)
    return total / jnp.maximum(count, 1)


def _compute_rewards(
    settings: base.Settings, state: base.State, costs_s: Array, reference_s: Array
) -> tuple[Array, Array]:
    """Computes the scaled gains [B, 1] of samples and the mean square gain [1].

    Args:
      settings: of no effect here.
      state: holds the chain, and in `baseline` the mean square gain, nan before the first gain.
      costs_s: float32 [B, 1]; inf of samples equal to the current placement.
      reference_s: of no effect here.
    """
    del settings, reference_s
    current_s = state.local_search.costs_s
    # Before the first step and after a restart the current placement's cost is unknown.
    is_known = jnp.isfinite(current_s)
    tiny_s = jnp.finfo(jnp.float32).tiny
    ratio = jnp.where(is_known, current_s, 0.0) / jnp.maximum(costs_s, tiny_s)
    gain = jnp.log(jnp.clip(ratio, 1.0, jnp.exp(_MAX_GAIN)))
    mean_square = (gain**2).mean(axis=0)
    average = jnp.where(jnp.isnan(state.baseline), mean_square, state.baseline)
    average = _SCALE_DECAY * average + (1 - _SCALE_DECAY) * mean_square
    average = jnp.where(mean_square > 0, average, state.baseline)
    reward = jnp.where(mean_square > 0, gain / jnp.sqrt(average), 0.0)
    return reward, average
