"""Learning while a placement is improved: a policy's moves are the proposals of a local search.

The state holds one chain of `placement.solvers.iterated_local_search`. In each step the policy
proposes B improvements of the chain's placement (`Improve`), all of them are evaluated, and the
chain moves to the best. So the policy learns from the search's own evaluations, in the states that
the search meets.

A feasible placement always comes before one that exceeds a memory, however fast that one is; the
penalised latency only ranks infeasible placements among each other. If no proposal after a restart
is feasible, the chain returns to the best placement.

The reward of a sample is its improvement,

    max(0, log latency of the placement before - log latency of the sample),

and its advantage is over the mean of the others, in units of their deviation. A step without
improvement teaches nothing. The learner is REINFORCE (Williams 1992), one gradient step a batch.
The search keeps the best of its samples, so it does not matter how bad the others are.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph

from placement.learning import base, reinforce
from placement.solvers import iterated_local_search as ils
from placement.types import Array, Policy, Sample


class LocalSearchState(NamedTuple):
    """One chain over the N nodes of a padded graph, and what is known of its placements."""

    chain: ils.ChainState  # the best placement is infeasible while no feasible one is known
    is_feasible: Array  # bool []: whether the current placement is known to be feasible
    best_is_feasible: Array  # bool []


@jax.jit
def begin(graph: jraph.GraphsTuple) -> LocalSearchState:
    """Starts with each node on the fastest device overall, or on the first that supports it."""
    allowed = jnp.asarray(graph.nodes["allowed"])
    fastest = jnp.asarray(graph.globals.compute_s).sum(axis=0).argmin()
    placement = jnp.where(allowed[:, fastest], fastest, allowed.argmax(axis=1)).astype(jnp.int32)
    no_cost_s = jnp.full(1, jnp.inf, jnp.float32)
    chain_starts = jnp.zeros(1, jnp.int32)
    chain = ils.start(placement[:, None], ils.Evaluation(no_cost_s, no_cost_s), chain_starts)
    return LocalSearchState(chain, jnp.zeros((), bool), jnp.zeros((), bool))


def make_learner(policy: Policy, settings: base.Settings) -> base.Learner:
    """Makes the learner of a policy that improves placements.

    Raises:
      UserError: `base.make_learner` refuses the settings.
    """
    improve = policy.improve
    assert improve is not None
    learner = reinforce.make_learner(policy, settings)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> base.State:
        return learner.init(key, graph)._replace(local_search=begin(graph))

    @jax.jit
    def sample(state: base.State, graph: jraph.GraphsTuple) -> tuple[base.State, Sample]:
        key, sample_key = jax.random.split(state.key)
        current = jnp.tile(state.local_search.chain.placements[:, 0], (settings.num_samples, 1))
        samples = improve(state.params, sample_key, graph, current, settings.num_samples)
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
        search, placements = state.local_search, samples.placement[:, 0]
        current, current_s = search.chain.placements[:, 0], search.chain.costs_s[0]
        mask = jnp.asarray(graph.nodes["mask"])
        is_changed = ((placements != current) & mask).any(axis=1)
        cost_s = jnp.where(is_changed, latency_s[:, 0], jnp.inf)
        is_feasible = jnp.isfinite(cost_s)
        if feasible is not None:
            is_feasible &= feasible[:, 0]
        # Samples that improve nothing count as the current placement. While that has no latency,
        # before the first step and after a restart, all samples count alike.
        is_known = jnp.isfinite(current_s)
        comparable_s = jnp.where(is_feasible | ~search.is_feasible, cost_s, jnp.inf)
        rewarded_s = jnp.where(is_known, jnp.minimum(comparable_s, current_s), reference_s)
        state, metrics = learner.update(state, graph, samples, rewarded_s[:, None], reference_s)
        is_improvement = is_known & (comparable_s < current_s)
        metrics |= {"gained": is_improvement.mean(), "changed": is_changed.mean()}
        return state._replace(
            local_search=_advance(search, placements, cost_s, is_feasible)
        ), metrics

    return base.Learner(init, sample, update, learner.place)


def _advance(
    search: LocalSearchState, placements: Array, cost_s: Array, is_feasible: Array
) -> LocalSearchState:
    """Advances the chain by one step.

    Args:
      search: the state before.
      placements: int32 [B, N], the samples.
      cost_s: float32 [B], penalised latencies; inf of samples equal to the current placement.
      is_feasible: bool [B].
    """
    chain, any_feasible = search.chain, is_feasible.any()
    # Infeasible placements cost inf in every comparison with a feasible one.
    proposals_s = jnp.where(is_feasible | ~(any_feasible | search.is_feasible), cost_s, jnp.inf)
    current_s = jnp.where(any_feasible & ~search.is_feasible, jnp.inf, chain.costs_s)
    best_candidates_s = jnp.where(
        is_feasible | ~(any_feasible | search.best_is_feasible), cost_s, jnp.inf
    )
    best_s = jnp.where(any_feasible & ~search.best_is_feasible, jnp.inf, chain.best_latency_s)
    chain = ils.move_chains(
        chain._replace(costs_s=current_s, best_latency_s=best_s),
        ils.Proposals(placements.T),
        ils.Evaluation(proposals_s, best_candidates_s),
        patience=ils.default_patience(len(chain.placements)),
    )
    is_known = jnp.isfinite(chain.costs_s[0])  # not just restarted
    is_feasible_now = is_known & (search.is_feasible | any_feasible)
    best_is_feasible = search.best_is_feasible | any_feasible
    returns = best_is_feasible & ~is_feasible_now & is_known
    chain = chain._replace(
        placements=jnp.where(returns, chain.best_placement[:, None], chain.placements),
        costs_s=jnp.where(returns, chain.best_latency_s, chain.costs_s),
    )
    return LocalSearchState(chain, is_feasible_now | returns, best_is_feasible)
