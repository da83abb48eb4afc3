"""`genetic`: a genetic algorithm for any objective, on the compiled simulator.

A generation has `NUM_CHAINS` placements; the first has the single devices. Parents
are the better of two random placements each (tournaments). A child takes a segment of a topological
order from one parent and the rest from the other (two-point crossover, Holland 1975). It then
becomes a neighbour (`placement.solvers.heuristics.local_search`) with probability
`MUTATION_PROBABILITY`, and every class moves on its own with probability 1 / C. The next generation
is the best of parents and children together, each placement once.

This is a thin baseline beside `placement.solvers.iterated_local_search`: its survivors are selected
from the whole population, and not by each chain from its own proposals.
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.instance import Instance
from placement.solvers import base
from placement.solvers.heuristics import local_search
from placement.solvers.heuristics.local_search import NUM_CHAINS, SearchSpace
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution

MUTATION_PROBABILITY = 0.8
_GENERATIONS_PER_CALL = 50  # between two checks of the time


class _Population(NamedTuple):
    """B placements and their costs."""

    placements: Array  # int32 [B, N]
    costs_s: Array  # float32 [B]: penalised latencies
    latencies_s: Array  # float32 [B]: inf where infeasible


def genetic_algorithm(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Searches with a genetic algorithm."""
    base.report_single_device(problem, limits)
    space, starts, evaluation = local_search.make_space(problem)
    key, population = jax.random.PRNGKey(seed), _Population(starts, *evaluation)
    total_generations = max(0, limits.budget // NUM_CHAINS - 1)
    num_done = 0
    while True:
        evaluations = (num_done + 1) * NUM_CHAINS
        fastest = int(jnp.argmin(population.latencies_s))
        best_s = float(population.latencies_s[fastest])
        best = np.asarray(population.placements[fastest])
        limits.report(evaluations, best_s, best)
        if num_done >= total_generations or limits.is_over():
            return local_search.make_result(best, best_s, evaluations, limits.budget)
        count = min(_GENERATIONS_PER_CALL, total_generations - num_done)
        key, population = _evolve(problem.objective, space, key, population, count)
        num_done += count


@partial(jax.jit, static_argnums=0)
def _evolve(
    objective: str,
    space: SearchSpace,
    key: chex.PRNGKey,
    population: _Population,
    num_generations: Array,
) -> tuple[chex.PRNGKey, _Population]:
    size = len(population.costs_s)

    def generation(
        _: Array, carry: tuple[chex.PRNGKey, _Population]
    ) -> tuple[chex.PRNGKey, _Population]:
        key, parents_key, crossover_key, mutation_key = jax.random.split(carry[0], 4)
        population = carry[1]
        # Two parents of each child, each the better of two.
        candidates = jax.random.randint(parents_key, (2, 2, size), 0, size)
        candidate_costs_s = population.costs_s[candidates]
        first, second = jnp.where(
            candidate_costs_s[:, 0] <= candidate_costs_s[:, 1], candidates[:, 0], candidates[:, 1]
        )
        ends = jax.random.randint(crossover_key, (2, size, 1), 0, space.num_classes + 1)
        is_inside = (space.ranks >= ends.min(axis=0)) & (space.ranks < ends.max(axis=0))
        children: Array = jnp.where(
            is_inside, population.placements[second], population.placements[first]
        )
        children = _mutate(mutation_key, space, children)
        evaluation = local_search.evaluate_costs(objective, space, children)
        pool = jax.tree.map(
            lambda old, new: jnp.concatenate([old, new]),
            population,
            _Population(children, *evaluation),
        )
        is_same = (pool.placements[:, None] == pool.placements).all(axis=2)
        is_duplicate = jnp.tril(is_same, -1).any(axis=1)
        # Duplicates sort last. An inf cost would not do, because infeasible placements may have it.
        survivors = jnp.lexsort((pool.costs_s, is_duplicate))[:size]
        return key, jax.tree.map(lambda values: values[survivors], pool)

    return jax.lax.fori_loop(0, num_generations, generation, (key, population))


def _mutate(key: chex.PRNGKey, space: SearchSpace, placements: Array) -> Array:
    """Mutates placements int32 [B, N]."""
    num_ops, num_devices = space.allowed.shape
    selection_key, neighbour_key, class_key, device_key = jax.random.split(key, 4)
    is_selected = jax.random.bernoulli(selection_key, MUTATION_PROBABILITY, (len(placements), 1))
    neighbours = local_search.draw_neighbours(neighbour_key, space, placements)
    placements = jnp.where(is_selected, neighbours, placements)
    # Drawn for each position; all operations of a class read the draw at the class's rank.
    is_changed = jax.random.bernoulli(class_key, 1 / space.num_classes, placements.shape)
    device = jax.random.randint(device_key, placements.shape, 0, num_devices)
    is_changed, device = is_changed[:, space.ranks], device[:, space.ranks]
    is_changed &= jnp.asarray(space.allowed)[jnp.arange(num_ops), device]
    return jnp.where(is_changed, device, placements)
