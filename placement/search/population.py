"""One compiled, anytime search for all objectives, by blocks.

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
import numpy as np

from placement import simulators
from placement.search import blocks
from placement.search import orders as orders_lib
from placement.solvers import base, starts
from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from placement.types import Array, Problem

CHAINS = 4
SETS, SET_SIZE = 2, 32  # of a chain's children, and children of each
_CHILDREN = CHAINS * SETS * SET_SIZE
_REPORT_S = 0.2  # what a compiled call takes about
_PATIENCE, _PER_STEP = 20, 64  # steps without gain: so many, and one for so many classes
_EVENLY = 0.2  # of all sets, whatever their kind has gained
_MEMORY = 0.99  # of gains, from step to step
_LEAST_GAINED = 1e-4  # so that all kinds are equal where none gains
_ENUMERATED = 4096  # placements that are all simulated instead
_STARTS_SHARE = 0.2  # of the time, after which no further start is made


class Space(NamedTuple):
    """What is searched: placements of N operations that keep C classes together, on D devices."""

    tables: Any  # of `simulators.tables`, without co-location, which classes keep
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


def find(
    problem: Problem,
    seed: int,
    limits: SearchLimits,
    known: base.SearchResult | None = None,
) -> base.SearchResult:
    """A compiled search of blocks, from single devices and what fast methods find.

    Args:
      problem: what is to be placed.
      seed: of all randomness.
      limits: until which it searches. The starts count as evaluations.
      known: what another search found, to start from beside these; its evaluations count.

    Returns:
      The best placement; none where none that is feasible is known. At most 4,096 placements are
      all simulated, and then, or where a start is proven to be the best, the status says so.
    """
    classes = base.classes(problem)
    if np.log(classes.allowed.sum(axis=1)).sum() <= np.log(_ENUMERATED):
        return trivial.brute_force(problem, seed, limits)
    begun, proven = _starts(problem, classes, seed, limits)
    if proven is not None:
        return proven
    evaluations = len(begun)
    if known is not None:
        evaluations += known.evaluations
    if known is not None and known.placement is not None:
        begun = np.concatenate([begun, known.placement[None]])
    first = np.unique(classes.number, return_index=True)[1]
    begun = begun[:, first]
    simulate = simulators.objective(problem.objective).simulate_columns
    space, state = _begin(problem, classes, simulate, begun, seed)
    count, status = 1, "finished"

    def tell() -> np.ndarray | None:
        best_s = float(state.best_s)
        best = np.asarray(state.best)[classes.number] if np.isfinite(best_s) else None
        limits.tell(evaluations, best_s, best, _numbers(space, state))
        return best

    best = tell()
    while (left := (limits.budget - evaluations) // _CHILDREN) > 0:
        if limits.over():
            status = "time limit"
            break
        count = min(count, left)
        began_s = limits.spent_s()
        state = jax.block_until_ready(_advance(simulate, space, state, count))
        evaluations += count * _CHILDREN
        step_s = (limits.spent_s() - began_s) / count
        best = tell()
        count = max(1, min(2 * count, int(_REPORT_S / step_s)))
    return base.SearchResult(best, status=status, evaluations=evaluations)


def _starts(
    problem: Problem, classes: base.Classes, seed: int, limits: SearchLimits
) -> tuple[np.ndarray, base.SearchResult | None]:
    """Placements int32 [M, N] to start from; or the optimum, where one of them is proven to be."""
    fastest = classes.compute_s.argmin(axis=1)
    rows = [np.where(able, d, fastest)[classes.number] for d, able in enumerate(classes.allowed.T)]
    gathering = limits.part(_STARTS_SHARE, limits.budget)
    for result in starts.find(problem, seed, gathering):
        if result.status == "optimal" and result.scope == base.ALL:
            return np.array(rows, np.int32), result
        rows.append(result.placement)
    return np.array(rows, np.int32), None


def _begin(
    problem: Problem, classes: base.Classes, simulate: Any, starts: np.ndarray, seed: int
) -> tuple[Space, State]:
    """The space, and chains at the best of the starts int32 [M, C]."""
    limits, of_objective = simulators.tables(problem)
    space = Space(
        tables=(limits._replace(representative=None), of_objective),
        number=None if limits.representative is None else classes.number,
        allowed=classes.allowed,
        memory_bytes=classes.memory_bytes.astype(np.float32),
        excess_s=np.zeros((), np.float32),
        orders=orders_lib.make(problem, classes, np.random.default_rng(seed)),
    )
    space = jax.tree.map(jnp.asarray, space)
    # As many as children: the simulator compiles once.
    rows = np.concatenate([starts, np.repeat(starts[-1:], _CHILDREN - len(starts), axis=0)])
    outcome = jax.jit(_outcome, static_argnums=0)(simulate, space, jnp.asarray(rows.T))
    finite_s = jnp.where(jnp.isfinite(outcome.latency_s), outcome.latency_s, 0.0)
    space = space._replace(excess_s=finite_s.max())
    cost_s, latency_s = (np.asarray(v)[: len(starts)] for v in _costs_s(space, outcome))
    chosen = np.argsort(cost_s, kind="stable")[np.arange(CHAINS) % len(starts)]
    best = int(np.argmin(latency_s))
    state = State(
        key=jax.random.key(seed, impl="rbg"),  # compiles and draws faster than Threefry
        at=starts[chosen].T,
        at_s=cost_s[chosen],
        stale=np.zeros(CHAINS, np.int32),
        best=starts[best if np.isfinite(latency_s[best]) else chosen[0]],
        best_s=latency_s[best],
        gained=np.zeros(len(orders_lib.KINDS), np.float32),
    )
    return space, jax.tree.map(jnp.asarray, state)


def _outcome(simulate: Any, space: Space, placements: Array) -> simulators.Outcome:
    """Of placements int32 [C, B]."""
    columns = placements if space.number is None else placements[space.number]
    return simulate(space.tables, columns)


def _costs_s(space: Space, outcome: simulators.Outcome) -> tuple[Array, Array]:
    """What placements cost, more where limits are broken, and latencies, inf there: [B] each."""
    broken_s = outcome.latency_s + space.excess_s * (1 + outcome.overflow)
    cost_s = jnp.where(outcome.feasible, outcome.latency_s, broken_s)
    return cost_s, jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)


@partial(jax.jit, static_argnums=0)
def _advance(simulate: Any, space: Space, state: State, count: Array) -> State:
    patience = _PATIENCE + len(state.best) // _PER_STEP
    chain = jnp.arange(CHAINS)

    def step(_: Array, state: State) -> State:
        key, draw_key = jax.random.split(state.key)
        children = blocks.draw(
            draw_key,
            space.orders,
            space.allowed,
            state.at,
            _room_bytes(space, state.at),
            _share(space, state),
            (SETS, SET_SIZE),
        )
        placements = children.placement.reshape(len(state.best), -1)
        cost_s, latency_s = _costs_s(space, _outcome(simulate, space, placements))
        cost_s = jnp.where(children.changed.ravel(), cost_s, jnp.inf).reshape(CHAINS, -1)
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


def _share(space: Space, state: State) -> Array:
    """How often an order of each kind is drawn, float32 [4]."""
    there = space.orders.number > 0
    gained = jnp.where(there, state.gained + _LEAST_GAINED, 0.0)
    return _EVENLY * there / there.sum() + (1 - _EVENLY) * gained / gained.sum()


def _numbers(space: Space, state: State) -> dict[str, float]:
    """How often which kind of order is drawn, to be logged."""
    share = np.asarray(_share(space, state))
    return {f"share_{k}": float(s) for k, s in zip(orders_lib.KINDS, share, strict=True)}


def _gained(state: State, kind: Array, better: Array) -> Array:
    """Adds the chains int [K] whose best child is better, by the kind that it is of."""
    # Of a chain that was kicked anything is better.
    counts = better & jnp.isfinite(state.at_s)
    kinds = jnp.arange(len(state.gained))[:, None]
    return _MEMORY * state.gained + (1 - _MEMORY) * ((kind == kinds) & counts).sum(axis=1)


def _room_bytes(space: Space, at: Array) -> Array | None:
    """What every device has left, float32 [D, K], of placements int32 [C, K]."""
    memory = space.tables[0].memory
    if memory is None:
        return None
    devices = jnp.arange(len(memory.capacity_bytes))[:, None, None]
    used = jnp.where(at == devices, space.memory_bytes[:, None], 0.0).sum(axis=1)
    together = jnp.where(memory.shared[:, :, None], used, 0.0).sum(axis=1)
    return memory.capacity_bytes[:, None] - together
