"""Chains of placements that blocks move, compiled: what every search here runs.

K chains stand at placements of the classes of co-located operations. In every step each chain's M
children (`placement.search.blocks`) are simulated, all of them at once, and the best that differs
from its parent is where the chain stands next, unless it is worse: a chain that gains nothing
drifts among equals. After many steps without gain it starts anew from the best placement known, a
child of which it takes whatever that costs (iterated local search; Lourenço, Martin and Stützle
2003).

How often each kind of order is drawn is learned within the run (adaptive operator selection by
probability matching): in proportion to how often the best of a chain's children was of that kind
and better than its parent, lately, and a part evenly.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement import simulators
from placement.search import blocks
from placement.search import orders as orders_lib
from placement.types import Array

SETS, SET_SIZE = 2, 32  # of a chain's children, and children of each
CHILDREN = SETS * SET_SIZE  # of each chain in a step
_PATIENCE, _PER_STEP = 20, 64  # steps without gain: so many, and one for so many classes
_EVENLY = 0.2  # of all sets, whatever their kind has gained
_MEMORY = 0.99  # of gains, from step to step
_LEAST_GAINED = 1e-4  # so that all kinds are equal where none gains


class Space(NamedTuple):
    """What is searched: placements of N operations that keep C classes together, on D devices."""

    tables: Any  # of `Instance.tables`, without co-location, which classes keep
    number: Array | None  # int32 [N]: the class of every operation; None where that is its own
    allowed: Array  # bool [C, D]
    memory_bytes: Array  # float32 [C]
    excess_s: Array  # float32 []: what breaking a limit costs at least
    orders: orders_lib.Orders


class State(NamedTuple):
    """K chains, the best placement of all, and what kinds of orders gained: a pytree."""

    key: chex.PRNGKey
    at: Array  # int32 [C, K]
    at_s: Array  # float32 [K]: what it costs, more than its latency where it breaks a limit
    stale: Array  # int32 [K]: steps without gain
    best: Array  # int32 [C]
    best_s: Array  # float32 []: its latency; inf while none that is feasible is known
    gained: Array  # float32 [4]: chains a step that an order of each kind made better, lately


def begin(
    simulate: Any,
    space: Space,
    starts: Array,
    count: Array | int,
    num_chains: int,
    key: chex.PRNGKey,
) -> tuple[Space, State]:
    """Chains at the best of the starts, and the space, whose excess is at least theirs; pure.

    Args:
      simulate: of the objective, `simulators.Objective.simulate_columns`.
      space: what is searched.
      starts: int32 [C, M].
      count: how many of the M are meant; those that follow are not.
      num_chains: K.
      key: of all that follows.
    """
    of_starts = outcome(simulate, space, starts)
    finite_s = jnp.where(jnp.isfinite(of_starts.latency_s), of_starts.latency_s, 0.0)
    space = space._replace(excess_s=jnp.maximum(space.excess_s, finite_s.max()))
    there = jnp.arange(starts.shape[1]) < count
    cost_s, latency_s = (jnp.where(there, v, jnp.inf) for v in costs_s(space, of_starts))
    chosen = jnp.argsort(cost_s)[jnp.arange(num_chains) % count]
    nth = latency_s.argmin()
    nth = jnp.where(jnp.isfinite(latency_s[nth]), nth, chosen[0])
    return space, State(
        key=key,
        at=starts[:, chosen],
        at_s=cost_s[chosen],
        stale=jnp.zeros(num_chains, jnp.int32),
        best=starts[:, nth],
        best_s=latency_s[nth],
        gained=jnp.zeros(len(orders_lib.KINDS)),
    )


@partial(jax.jit, static_argnums=0)
def advance(simulate: Any, space: Space, state: State, count: Array) -> State:
    """Goes `count` steps."""
    patience = _PATIENCE + len(state.best) // _PER_STEP
    num_chains = state.at.shape[1]
    chain = jnp.arange(num_chains)

    def step(_: Array, state: State) -> State:
        key, draw_key = jax.random.split(state.key)
        children = blocks.draw(
            draw_key,
            space.orders,
            space.allowed,
            state.at,
            room_bytes(space, state.at),
            share(space, state),
            (SETS, SET_SIZE),
        )
        placements = children.placement.reshape(len(state.best), -1)
        cost_s, latency_s = costs_s(space, outcome(simulate, space, placements))
        cost_s = jnp.where(children.changed.ravel(), cost_s, jnp.inf).reshape(num_chains, -1)
        chosen = cost_s.argmin(axis=1)
        fastest = jnp.take(placements, chain * cost_s.shape[1] + chosen, axis=1)
        fastest_s = cost_s.min(axis=1)
        better, moves = fastest_s < state.at_s, fastest_s <= state.at_s
        kind = children.kind[chain, chosen // SET_SIZE]
        nth = latency_s.argmin()
        gains = latency_s[nth] < state.best_s
        best = jnp.where(gains, jnp.take(placements, nth, axis=1), state.best)
        # A chain that is stuck takes what its first child differs in from it to the best.
        first = jnp.take(placements, chain * cost_s.shape[1], axis=1)
        kicked = jnp.where(first != state.at, first, best[:, None])
        stale = jnp.where(better, 0, state.stale + 1)
        stuck = stale > patience
        at = jnp.where(moves, fastest, state.at)
        return State(
            key=key,
            at=jnp.where(stuck, kicked, at),
            at_s=jnp.where(stuck, jnp.inf, jnp.where(moves, fastest_s, state.at_s)),
            stale=jnp.where(stuck, 0, stale),
            best=best,
            best_s=jnp.minimum(latency_s[nth], state.best_s),
            gained=_gained(state, kind, better),
        )

    return jax.lax.fori_loop(0, count, step, state)


def outcome(simulate: Any, space: Space, placements: Array) -> simulators.Outcome:
    """Of placements int32 [C, B]."""
    columns = placements if space.number is None else placements[space.number]
    return simulate(space.tables, columns)


def costs_s(space: Space, outcome: simulators.Outcome) -> tuple[Array, Array]:
    """What placements cost, more where limits are broken, and latencies, inf there: [B] each."""
    broken_s = outcome.latency_s + space.excess_s * (1 + outcome.overflow)
    cost_s = jnp.where(outcome.feasible, outcome.latency_s, broken_s)
    return cost_s, jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)


def share(space: Space, state: State) -> Array:
    """How often an order of each kind is drawn, float32 [4]."""
    there = space.orders.number > 0
    gained = jnp.where(there, state.gained + _LEAST_GAINED, 0.0)
    return _EVENLY * there / there.sum() + (1 - _EVENLY) * gained / gained.sum()


def _gained(state: State, kind: Array, better: Array) -> Array:
    """Adds the chains int [K] whose best child is better, by the kind that it is of."""
    # Of a chain that was kicked anything is better.
    counts = better & jnp.isfinite(state.at_s)
    kinds = jnp.arange(len(state.gained))[:, None]
    return _MEMORY * state.gained + (1 - _MEMORY) * ((kind == kinds) & counts).sum(axis=1)


def room_bytes(space: Space, at: Array) -> Array | None:
    """What every device has left, float32 [D, K], of placements int32 [C, K]; None: no limits."""
    memory = space.tables[0].memory
    if memory is None:
        return None
    devices = jnp.arange(len(memory.capacity_bytes))[:, None, None]
    used = jnp.where(at == devices, space.memory_bytes[:, None], 0.0).sum(axis=1)
    together = jnp.where(memory.shared[:, :, None], used, 0.0).sum(axis=1)
    return memory.capacity_bytes[:, None] - together
