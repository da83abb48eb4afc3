"""`genetic`: a genetic algorithm for any objective, on the compiled simulator.

A generation has `neighbourhood.CHAINS` placements, the first of them the single devices. Each
child takes a segment of a topological order from one parent and the rest from the other (two-point
crossover, Holland 1975), the parents being the better of two drawn at random (tournaments); then it
becomes a neighbour (`placement.solvers.heuristics.neighbourhood`) with probability `MUTATED`, and
every class moves on its own with probability 1 / C. The next generation is the best of parents and
children together, each placement once.
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.instance import Instance
from placement.solvers.heuristics import neighbourhood
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution

MUTATED = 0.8
_GENERATIONS = 50  # between two looks at the clock


class _Evolution(NamedTuple):
    key: chex.PRNGKey
    alive: neighbourhood.Batch


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A genetic algorithm: segments crossed over, the better of parents and children survive."""
    space, starts = neighbourhood.make_space(problem)
    evolution = _Evolution(jax.random.PRNGKey(seed), starts)
    generations = max(0, limits.budget // neighbourhood.CHAINS - 1)
    done = 0
    while done < generations and not limits.over():
        count = min(_GENERATIONS, generations - done)
        evolution = _evolved(problem.objective, space, evolution, count)
        done += count
        best, best_s = _fastest(evolution.alive)
        limits.tell((done + 1) * neighbourhood.CHAINS, float(best_s), np.asarray(best))
    evaluations = (done + 1) * neighbourhood.CHAINS
    return neighbourhood.finish(*_fastest(evolution.alive), evaluations, limits.budget)


def _fastest(alive: neighbourhood.Batch) -> tuple[Array, Array]:
    """Returns the fastest placement int32 [N] and its latency, inf where none can run."""
    best = jnp.argmin(alive.latency_s)
    return alive.placement[best], alive.latency_s[best]


@partial(jax.jit, static_argnums=0)
def _evolved(
    objective: str, space: neighbourhood.Space, evolution: _Evolution, count: Array
) -> _Evolution:
    def generation(_: Array, before: _Evolution) -> _Evolution:
        key, for_parents, for_children, for_steps = jax.random.split(before.key, 4)
        alive = before.alive
        one, other = _tournaments(for_parents, alive.cost_s)
        children = _crossed(for_children, space, alive.placement[one], alive.placement[other])
        children = _mutated(for_steps, space, children)
        born = neighbourhood.evaluate(objective, space, children)
        return _Evolution(key, _survivors(alive, born))

    return jax.lax.fori_loop(0, count, generation, evolution)


def _tournaments(key: chex.PRNGKey, cost_s: Array) -> tuple[Array, Array]:
    """Draws two parents int32 [B] for every child, each the better of two."""
    drawn = jax.random.randint(key, (2, 2, len(cost_s)), 0, len(cost_s))
    better = jnp.where(cost_s[drawn[:, 0]] <= cost_s[drawn[:, 1]], drawn[:, 0], drawn[:, 1])
    return better[0], better[1]


def _crossed(key: chex.PRNGKey, space: neighbourhood.Space, one: Array, other: Array) -> Array:
    ends = jax.random.randint(key, (2, len(one), 1), 0, space.num_classes + 1)
    inside = (space.rank >= ends.min(axis=0)) & (space.rank < ends.max(axis=0))
    return jnp.where(inside, other, one)


def _mutated(key: chex.PRNGKey, space: neighbourhood.Space, placement: Array) -> Array:
    num_ops, num_devices = space.allowed.shape
    for_which, for_steps, for_classes, for_devices = jax.random.split(key, 4)
    stepped = jax.random.bernoulli(for_which, MUTATED, (len(placement), 1))
    placement = jnp.where(
        stepped, neighbourhood.draw_neighbours(for_steps, space, placement), placement
    )
    # One draw a class, which all its operations read.
    changed = jax.random.bernoulli(for_classes, 1 / space.num_classes, placement.shape)
    device = jax.random.randint(for_devices, placement.shape, 0, num_devices)
    changed, device = changed[:, space.rank], device[:, space.rank]
    changed &= space.allowed[jnp.arange(num_ops), device]
    return jnp.where(changed, device, placement)


def _survivors(alive: neighbourhood.Batch, born: neighbourhood.Batch) -> neighbourhood.Batch:
    """Selects the best of both batches; of equal placements, the first."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), alive, born)
    same = (both.placement[:, None] == both.placement).all(axis=2)
    again = jnp.tril(same, -1).any(axis=1)
    # Not inf, which a placement that cannot run costs: repeated ones come last of all.
    order = jnp.lexsort((both.cost_s, again))[: len(alive.cost_s)]
    return jax.tree.map(lambda values: values[order], both)
