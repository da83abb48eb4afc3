"""One compiled, anytime search for all objectives, by what `placement.search.blocks` proposes.

K chains stand at placements of the classes of co-located operations. In every step each chain's M
children are simulated at once, and the best of them is where the chain stands next, unless it is
worse. After many steps without gain a chain starts anew from the best placement known, a child of
which it takes whatever that costs (iterated local search; Lourenço, Martin and Stützle 2003).
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.search import blocks
from placement.solvers import base
from placement.solvers.heuristics import large_neighbourhood
from placement.solvers.limits import SearchLimits
from placement.types import Array, Problem

CHAINS, CHILDREN = 4, 64
_STEPS = 25  # in one compiled call
_PATIENCE, _PER_STEP = 10, 16  # steps without gain: so many, and one for so many classes


class Space(NamedTuple):
    """What is searched."""

    tables: Any  # of `simulators.tables`, without co-location, which classes keep
    number: Array  # int32 [N]: the class of every operation
    excess_s: Array  # float32 []: what breaking a limit costs at least
    orders: blocks.Orders


class State(NamedTuple):
    """K chains, and the best placement of all: a pytree to go on from."""

    key: chex.PRNGKey
    at: Array  # int32 [K, C]
    at_s: Array  # float32 [K]: what it costs
    stale: Array  # int32 [K]: steps without gain
    best: Array  # int32 [C]
    best_s: Array  # float32 []: what it costs


def find(problem: Problem, seed: int, limits: SearchLimits) -> base.SearchResult:
    """A compiled search of blocks, from single devices and list schedules."""
    classes = base.classes(problem)
    first = np.unique(classes.number, return_index=True)[1]
    starts = large_neighbourhood.starts(problem, seed, limits)[:, first]
    space = _make_space(problem, classes, starts, seed)
    simulate = simulators.objective(problem.objective).simulate
    state = _begin(simulate, space, jnp.asarray(starts), jax.random.PRNGKey(seed))
    evaluations, step = len(starts), _STEPS * CHAINS * CHILDREN
    status = "finished"
    while evaluations + step <= limits.budget:
        state = _advance(simulate, space, state)
        evaluations += step
        best = np.asarray(state.best)[classes.number]
        limits.tell(evaluations, float(state.best_s), best)
        if limits.over():
            status = "time limit"
            break
    return base.SearchResult(
        np.asarray(state.best)[classes.number], status=status, evaluations=evaluations
    )


def _make_space(problem: Problem, classes: base.Classes, starts: np.ndarray, seed: int) -> Space:
    tables_limits, of_objective = simulators.tables(problem)
    values = np.asarray(simulators.evaluator(problem)(starts[:, classes.number]))
    finite_s = values[np.isfinite(values)]
    space = Space(
        tables=(tables_limits._replace(representative=None), of_objective),
        number=jnp.asarray(classes.number),
        excess_s=jnp.float32(finite_s.max(initial=0.0)),
        orders=jax.tree.map(jnp.asarray, blocks.make_orders(problem, classes, seed)),
    )
    return space


def _cost_s(simulate: Any, space: Space, placements: Array) -> Array:
    """float32 [B], of placements int32 [B, C]: more where limits are broken."""
    outcome = simulate(space.tables, placements[:, space.number])
    broken_s = outcome.latency_s + space.excess_s * (1 + outcome.overflow)
    return jnp.where(outcome.feasible, outcome.latency_s, broken_s)


@partial(jax.jit, static_argnums=0)
def _begin(simulate: Any, space: Space, starts: Array, key: chex.PRNGKey) -> State:
    cost_s = _cost_s(simulate, space, starts)
    order = jnp.argsort(cost_s)[jnp.arange(CHAINS) % len(starts)]
    at, at_s = starts[order], cost_s[order]
    return State(key, at, at_s, jnp.zeros(CHAINS, jnp.int32), at[0], at_s[0])


@partial(jax.jit, static_argnums=0)
def _advance(simulate: Any, space: Space, state: State) -> State:
    patience = _PATIENCE + state.at.shape[1] // _PER_STEP

    def step(state: State, _: None) -> tuple[State, None]:
        key, draw_key = jax.random.split(state.key)
        children = blocks.draw(draw_key, space.orders, state.at, CHILDREN)
        cost_s = _cost_s(simulate, space, children.reshape(-1, children.shape[-1]))
        cost_s = cost_s.reshape(children.shape[:2])
        chosen = cost_s.argmin(axis=1)
        fastest = jnp.take_along_axis(children, chosen[:, None, None], axis=1)[:, 0]
        fastest_s = cost_s.min(axis=1)
        better, moves = fastest_s < state.at_s, fastest_s <= state.at_s
        at = jnp.where(moves[:, None], fastest, state.at)
        at_s = jnp.where(moves, fastest_s, state.at_s)
        stale = jnp.where(better, 0, state.stale + 1)
        nth = at_s.argmin()
        gains = at_s[nth] < state.best_s
        best = jnp.where(gains, at[nth], state.best)
        best_s = jnp.minimum(at_s[nth], state.best_s)
        # A chain that is stuck takes what its first child differs in from it to the best.
        stuck = stale > patience
        kicked = jnp.where(children[:, 0] != state.at, children[:, 0], best)
        at = jnp.where(stuck[:, None], kicked, at)
        at_s = jnp.where(stuck, jnp.inf, at_s)
        return State(key, at, at_s, jnp.where(stuck, 0, stale), best, best_s), None

    return jax.lax.scan(step, state, None, length=_STEPS)[0]
