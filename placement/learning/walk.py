"""Learning while a placement is improved: a policy proposes, the best proposal is where it goes on.

The state has a placement, where the walk stands. Each step the policy improves on it B times
(`Improve`), all B are evaluated, and the best that differs is where the walk stands next, unless it
is worse: a walk that gains nothing drifts among equals. After many steps without gain it goes on
from a sample of the best placement known (iterated local search; Lourenço, Martin and Stützle
2003). So what is evaluated is what is learned from, and states are those that a search meets.

A placement that can run always goes before one that exceeds a memory, however fast that one is: the
penalised cost of the latter only decides among its like. A start anew none of whose samples can run
is given up for the best placement.

The reward of a sample is what it gains,

    max(0, log latency of the placement before - log latency of the sample)

and its advantage is over the mean of the others, in units of their deviation; a step in which no
sample gains teaches nothing. REINFORCE (Williams 1992), one gradient step a batch. A search keeps
the best of its samples and passes over the rest, so that how bad these are does not matter.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph

from placement.learning import base, reinforce
from placement.types import Array, Policy, Sample

_PATIENCE, _PER_STEP = 20, 64  # steps without gain: so many, and one for so many nodes


class Walk(NamedTuple):
    """Where a walk stands."""

    at: Array  # int32 [N]
    at_s: Array  # float32 []; inf before the first step and after a start anew
    at_feasible: Array  # bool []: whether `at` is known to run
    best: Array  # int32 [N]
    best_s: Array  # float32 []
    best_feasible: Array  # bool []
    stale: Array  # int32 []: steps without gain


def begin(graph: jraph.GraphsTuple) -> Walk:
    """Begins where all is on the device that computes least, or the first that can run it."""
    allowed = jnp.asarray(graph.nodes["allowed"])
    least = jnp.asarray(graph.globals.compute_s).sum(axis=0).argmin()
    at = jnp.where(allowed[:, least], least, allowed.argmax(axis=1)).astype(jnp.int32)
    unknown = jnp.float32(jnp.inf)
    infeasible = jnp.zeros((), bool)
    return Walk(at, unknown, infeasible, at, unknown, infeasible, jnp.zeros((), jnp.int32))


def make(policy: Policy, settings: base.Settings) -> base.Learner:
    """Makes the learner of a policy that improves on placements.

    Raises:
      UserError: settings that `base.make` refuses.
    """
    improve = policy.improve
    assert improve is not None
    learner = reinforce.make(policy, settings)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> base.State:
        return learner.init(key, graph)._replace(walk=begin(graph))

    @jax.jit
    def sample(state: base.State, graph: jraph.GraphsTuple) -> tuple[base.State, Sample]:
        key, sample_key = jax.random.split(state.key)
        before = jnp.tile(state.walk.at, (settings.num_samples, 1))
        drawn = improve(state.params, sample_key, graph, before, settings.num_samples)
        return state._replace(key=key), drawn

    @jax.jit
    def update(
        state: base.State,
        graph: jraph.GraphsTuple,
        drawn: Sample,
        latency_s: Array,
        reference_s: Array,
        feasible: Array | None = None,
    ) -> tuple[base.State, base.Metrics]:
        walk, placement = state.walk, drawn.placement[:, 0]
        decides = jnp.asarray(graph.nodes["mask"])
        changed = ((placement != walk.at) & decides).any(axis=1)
        cost_s = jnp.where(changed, latency_s[:, 0], jnp.inf)
        can_run = jnp.isfinite(cost_s)
        if feasible is not None:
            can_run &= feasible[:, 0]
        # What gains nothing is as good as where the walk stands, and before the first step all is.
        known = jnp.isfinite(walk.at_s)
        counted_s = jnp.where(can_run | ~walk.at_feasible, cost_s, jnp.inf)
        rewarded_s = jnp.where(known, jnp.minimum(counted_s, walk.at_s), reference_s)
        state, metrics = learner.update(state, graph, drawn, rewarded_s[:, None], reference_s)
        gained = known & (counted_s < walk.at_s)
        metrics |= {"gained": gained.mean(), "changed": changed.mean()}
        return state._replace(walk=_next(walk, placement, cost_s, can_run)), metrics

    return base.Learner(init, sample, update, learner.place)


def _next(walk: Walk, placement: Array, cost_s: Array, feasible: Array) -> Walk:
    """Returns the walk after a step.

    Args:
      walk: before it.
      placement: int32 [B, N], the samples.
      cost_s: float32 [B], inf of those that equal `walk.at`.
      feasible: bool [B], which of the others can run.
    """
    nth = jnp.where(feasible.any() & ~feasible, jnp.inf, cost_s).argmin()
    fastest_s, runs = cost_s[nth], feasible[nth]
    gains = _is_better(runs, fastest_s, walk.best_feasible, walk.best_s)
    best = jnp.where(gains, placement[nth], walk.best)
    best_s = jnp.where(gains, fastest_s, walk.best_s)
    best_feasible = walk.best_feasible | runs
    improves = _is_better(runs, fastest_s, walk.at_feasible, walk.at_s)
    stale = jnp.where(improves, 0, walk.stale + 1)
    stuck = stale > _PATIENCE + len(walk.at) // _PER_STEP
    moves = improves | ((runs == walk.at_feasible) & (fastest_s == walk.at_s))
    at = jnp.where(moves, placement[nth], walk.at)
    at_s = jnp.where(moves, fastest_s, walk.at_s)
    at_feasible = jnp.where(moves, runs, walk.at_feasible)
    returns = best_feasible & ~at_feasible & jnp.isfinite(at_s)
    at = jnp.where(returns, best, at)
    at_s = jnp.where(returns, best_s, at_s)
    kicked = jnp.where(placement[0] != walk.at, placement[0], best)
    return Walk(
        at=jnp.where(stuck, kicked, at),
        at_s=jnp.where(stuck, jnp.inf, at_s),
        at_feasible=~stuck & (at_feasible | returns),
        best=best,
        best_s=best_s,
        best_feasible=best_feasible,
        stale=jnp.where(stuck, 0, stale),
    )


def _is_better(feasible: Array, cost_s: Array, than_feasible: Array, than_s: Array) -> Array:
    """Whether a placement goes before another: it alone can run, or it is faster of two alike."""
    return (feasible & ~than_feasible) | ((feasible == than_feasible) & (cost_s < than_s))
