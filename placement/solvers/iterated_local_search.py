"""Iterated local search over placements: one engine for every search that moves placements.

C independent chains each hold a current placement of K decisions. A step evaluates M neighbours of
every chain's placement in one batch, and `move_chains`

1. moves each chain to its best proposal unless that is worse. Equal cost is accepted, so that a
   chain can drift across a plateau; a proposal identical to its parent is not,
2. moves every chain without improvement for more than `patience` steps to a perturbation of the
   best placement (Lourenço, Martin and Stützle 2003). Such a chain then moves to its next best
   proposal whatever that costs.

These searches run in the engine:

    search, lns                        blocks of operations (`placement.search.block_search`)
    local_search, annealing, genetic   segments of a topological order (`heuristics.local_search`)

Proposals may be of several kinds. A kind is then drawn in proportion to its recent improvements,
and partly evenly (adaptive operator selection by probability matching).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from placement import simulators
from placement.types import Array

_EVEN_SHARE = 0.2  # of all proposals: their kind is drawn evenly
_CREDIT_DECAY = 0.99  # per step
_LEAST_CREDIT = 1e-4  # all kinds are equally likely while none has improved a chain


class ChainState(NamedTuple):
    """State of C chains; a pytree of arrays."""

    placements: Array  # int32 [K, C]: the chains' current placements
    costs_s: Array  # float32 [C]: their penalised latencies; inf right after a restart
    steps_since_improvement: Array  # int32 [C]
    best_placement: Array  # int32 [K]: the best feasible placement of any chain
    best_latency_s: Array  # float32 []: its latency; inf while no feasible placement is known
    # float32 [num_kinds]: decayed number of chains that each kind of proposal improved per step;
    # None where proposals are all of one kind
    move_credit: Array | None = None


class Proposals(NamedTuple):
    """M neighbours of each of C placements, chain after chain."""

    placements: Array  # int32 [K, C * M]
    differs_from_parent: Array | None = None  # bool [C * M]; None: every proposal may be accepted
    kinds: Array | None = None  # int32 [C, M]; None where proposals are all of one kind


class Evaluation(NamedTuple):
    """Costs of B placements."""

    costs_s: Array  # float32 [B]: penalised latencies, which chains compare
    latencies_s: Array  # float32 [B]: inf where a placement is infeasible


def penalise(outcome: simulators.Outcome, penalty_s: Array) -> Evaluation:
    """Computes the costs that chains compare from simulated placements.

    An infeasible placement costs its latency and a penalty of `penalty_s`, float32 [], or more:
    the penalty grows with the share by which the placement exceeds a memory. Chains may cross such
    placements, but they never become the best placement.
    """
    penalised_s = outcome.latency_s + penalty_s * (1 + outcome.overflow)
    return Evaluation(
        jnp.where(outcome.feasible, outcome.latency_s, penalised_s),
        jnp.where(outcome.feasible, outcome.latency_s, jnp.inf),
    )


@jax.jit  # one program instead of one for each operation
def start(placements: Array, evaluation: Evaluation, chain_starts: Array) -> ChainState:
    """Starts C chains at columns `chain_starts`, int [C], of placements int32 [K, M]."""
    fastest = evaluation.latencies_s.argmin()
    is_feasible = jnp.isfinite(evaluation.latencies_s[fastest])
    best = jnp.where(is_feasible, fastest, chain_starts[0])
    return ChainState(
        placements=placements[:, chain_starts],
        costs_s=evaluation.costs_s[chain_starts],
        steps_since_improvement=jnp.zeros(len(chain_starts), jnp.int32),
        best_placement=placements[:, best],
        best_latency_s=evaluation.latencies_s[best],
    )


def move_chains(
    state: ChainState,
    proposals: Proposals,
    evaluation: Evaluation,
    *,
    patience: Array | int,
    threshold_s: Array | float = 0.0,
) -> ChainState:
    """Moves chains to their best proposals and restarts those that are stuck; pure.

    Args:
      state: the chains.
      proposals: M neighbours of each chain's placement.
      evaluation: of all proposals.
      patience: steps without improvement before a chain restarts.
      threshold_s: float32 [C]: how much more an accepted proposal may cost.
    """
    num_chains = state.placements.shape[1]
    costs_s = evaluation.costs_s
    if proposals.differs_from_parent is not None:
        costs_s = jnp.where(proposals.differs_from_parent, costs_s, jnp.inf)
    costs_s = costs_s.reshape(num_chains, -1)
    winners = costs_s.argmin(axis=1)  # [C]
    winner_costs_s = costs_s.min(axis=1)
    # The column of each chain's first proposal.
    columns = jnp.arange(num_chains) * (proposals.placements.shape[1] // num_chains)
    winner_placements = jnp.take(proposals.placements, columns + winners, axis=1)  # [K, C]
    is_improvement = winner_costs_s < state.costs_s
    is_accepted = winner_costs_s <= state.costs_s + threshold_s

    fastest = evaluation.latencies_s.argmin()
    fastest_s = evaluation.latencies_s[fastest]
    fastest_placement = jnp.take(proposals.placements, fastest, axis=1)
    is_new_best = fastest_s < state.best_latency_s
    moved = ChainState(
        placements=jnp.where(is_accepted, winner_placements, state.placements),
        costs_s=jnp.where(is_accepted, winner_costs_s, state.costs_s),
        steps_since_improvement=jnp.where(is_improvement, 0, state.steps_since_improvement + 1),
        best_placement=jnp.where(is_new_best, fastest_placement, state.best_placement),
        best_latency_s=jnp.minimum(fastest_s, state.best_latency_s),
        move_credit=state.move_credit,
    )
    if state.move_credit is not None:
        assert proposals.kinds is not None
        # Any proposal improves a chain that has just restarted: its cost is inf.
        earns_credit = is_improvement & jnp.isfinite(state.costs_s)
        winner_kinds = proposals.kinds[jnp.arange(num_chains), winners]
        all_kinds = jnp.arange(len(state.move_credit))[:, None]
        improved = ((winner_kinds == all_kinds) & earns_credit).sum(axis=1)
        credit = _CREDIT_DECAY * state.move_credit + (1 - _CREDIT_DECAY) * improved
        moved = moved._replace(move_credit=credit)
    is_stuck = moved.steps_since_improvement > patience
    # One random move of the best placement: wherever the chain's first proposal differs from its
    # parent the restart has the proposal's device, everywhere else that of the best placement.
    first_proposals = jnp.take(proposals.placements, columns, axis=1)
    is_moved = first_proposals != state.placements
    restarts = jnp.where(is_moved, first_proposals, moved.best_placement[:, None])
    return moved._replace(
        placements=jnp.where(is_stuck, restarts, moved.placements),
        costs_s=jnp.where(is_stuck, jnp.inf, moved.costs_s),
        steps_since_improvement=jnp.where(is_stuck, 0, moved.steps_since_improvement),
    )


def kind_probabilities(move_credit: Array, is_available: Array) -> Array:
    """Computes how likely a proposal is of each kind, among those that are available."""
    credit = (move_credit + _LEAST_CREDIT) * is_available
    even = _EVEN_SHARE * is_available / is_available.sum()
    return even + (1 - _EVEN_SHARE) * credit / credit.sum()
