"""Iterated local search whose proposals are block moves, compiled.

This is the configuration of `placement.solvers.iterated_local_search` that `search` runs, on whole
graphs and on windows of them. In each step every chain has `NUM_PROPOSALS` proposals, block moves
(`placement.search.block_moves`) in sets that share an order. The kind of a set's order is drawn by
the recent improvements of each kind.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.search import block_moves
from placement.search.block_orders import KINDS, Orders, compute_orders
from placement.solvers import iterated_local_search as ils
from placement.types import Array

_NUM_SETS, _SET_SIZE = 2, 32  # of each chain in a step: sets of proposals, and proposals in each
NUM_PROPOSALS = _NUM_SETS * _SET_SIZE


class SearchSpace(NamedTuple):
    """Placements of N operations on D devices that keep C classes together."""

    tables: Any  # the objective's `Instance.tables` without co-location, which classes ensure
    class_ids: Array | None  # int32 [N]: class of each operation; None: each is a class of its own
    allowed: Array  # bool [C, D]
    memory_bytes: Array  # float32 [C]
    penalty_s: Array  # float32 []: least penalty of an infeasible placement
    orders: Orders


class SearchState(NamedTuple):
    """State of a search; a pytree of arrays."""

    key: chex.PRNGKey
    chains: ils.ChainState


def make_space(problem: Instance, seed: int) -> SearchSpace:
    """Makes the search space of a problem; `start` raises its penalty."""
    classes, (limits, objective_tables) = problem.classes, problem.tables
    return SearchSpace(
        tables=(limits._replace(representative=None), objective_tables),
        class_ids=classes.ids if problem.is_colocated else None,
        allowed=classes.allowed,
        memory_bytes=classes.memory_bytes.astype(np.float32),
        penalty_s=np.zeros((), np.float32),
        orders=compute_orders(problem, np.random.default_rng(seed)),
    )


def start(
    simulate: Any,
    space: SearchSpace,
    starts: Array,
    num_starts: Array | int,
    num_chains: int,
    key: chex.PRNGKey,
) -> tuple[SearchSpace, SearchState]:
    """Starts chains and raises the penalty to the slowest start's latency; pure.

    Args:
      simulate: the objective's `simulators.Objective.simulate_columns`.
      space: the search space.
      starts: int32 [C, M].
      num_starts: how many of the M columns are starts; the others are padding.
      num_chains: K.
      key: of all later draws.
    """
    outcome = _simulate(simulate, space, starts)
    finite_s = jnp.where(jnp.isfinite(outcome.latency_s), outcome.latency_s, 0.0)
    space = space._replace(penalty_s=jnp.maximum(space.penalty_s, finite_s.max()))
    is_start = jnp.arange(starts.shape[1]) < num_starts
    evaluation = ils.Evaluation(
        *(jnp.where(is_start, s, jnp.inf) for s in ils.penalise(outcome, space.penalty_s))
    )
    ranking = jnp.argsort(evaluation.costs_s)
    chains = ils.start(starts, evaluation, ranking[jnp.arange(num_chains) % num_starts])
    credit = jnp.zeros(len(KINDS))
    return space, SearchState(key, chains._replace(move_credit=credit))


@partial(jax.jit, static_argnums=0)
def advance(simulate: Any, space: SearchSpace, state: SearchState, num_steps: Array) -> SearchState:
    """Advances all chains by `num_steps` steps."""

    def propose(key: chex.PRNGKey, chains: ils.ChainState) -> ils.Proposals:
        moves = block_moves.draw_moves(
            key,
            space.orders,
            space.allowed,
            chains.placements,
            free_bytes(space, chains.placements),
            kind_probabilities(space, chains),
            (_NUM_SETS, _SET_SIZE),
        )
        return ils.Proposals(
            moves.placements.reshape(len(chains.placements), -1),
            moves.differs_from_parent.ravel(),
            jnp.repeat(moves.kinds, _SET_SIZE, axis=1),
        )

    def evaluate(placements: Array) -> ils.Evaluation:
        return ils.penalise(_simulate(simulate, space, placements), space.penalty_s)

    patience = ils.default_patience(len(space.allowed))
    return jax.lax.fori_loop(
        0,
        num_steps,
        lambda _, state: SearchState(
            *ils.step(state.key, state.chains, propose, evaluate, patience=patience)
        ),
        state,
    )


def kind_probabilities(space: SearchSpace, chains: ils.ChainState) -> Array:
    """Computes how likely a block is drawn from an order of each kind, float32 [4]."""
    assert chains.move_credit is not None
    return ils.kind_probabilities(chains.move_credit, space.orders.num_orders > 0)


def free_bytes(space: SearchSpace, placements: Array) -> Array | None:
    """Computes the memory that each placement leaves free on every device.

    Args:
      space: the search space.
      placements: int32 [C, K].

    Returns:
      float32 [D, K]; None where no memory is limited.
    """
    memory = space.tables[0].memory
    if memory is None:
        return None
    devices = jnp.arange(len(memory.capacity_bytes))[:, None, None]
    used = jnp.where(placements == devices, space.memory_bytes[:, None], 0.0).sum(axis=1)
    # The parts of an accelerator share its memory.
    shared_used = jnp.where(memory.shared[:, :, None], used, 0.0).sum(axis=1)
    return memory.capacity_bytes[:, None] - shared_used


def _simulate(simulate: Any, space: SearchSpace, placements: Array) -> simulators.Outcome:
    """Simulates placements of classes, int32 [C, B]."""
    columns = placements if space.class_ids is None else placements[space.class_ids]
    return simulate(space.tables, columns)
