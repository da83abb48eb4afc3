"""Local search with restarts, and simulated annealing, for any objective.

Both are configurations of `placement.solvers.iterated_local_search` with one proposal a chain,
drawn from the neighbourhood of `placement.solvers.heuristics.neighbourhood`:

    local_search   accepts a proposal that costs no more. A chain without improvement for `PATIENCE`
                   steps restarts from segments on random devices.
    annealing      accepts a proposal that costs x more with probability exp(-x / T) (Kirkpatrick et
                   al. 1983). T falls geometrically over the budget from `HOT` to `COLD` times the
                   latency of the best single device. No chain restarts.
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.instance import Instance
from placement.solvers import iterated_local_search as ils
from placement.solvers.heuristics import neighbourhood
from placement.solvers.heuristics.neighbourhood import NUM_CHAINS, SearchSpace
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution

PATIENCE = 200
HOT, COLD = 0.03, 1e-4
_STEPS_PER_CALL = 50  # between two checks of the time


class _Cooling(NamedTuple):
    """The schedule of annealing's temperature."""

    scale_s: Array  # float32 []: latency of the best single device; the penalty if none is feasible
    steps_done: Array | int
    total_steps: Array | int


def local_search(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Searches with chains that accept what costs no more, and restart at random."""
    return _search(problem, seed, limits, annealed=False)


def annealing(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Searches by simulated annealing (Kirkpatrick et al. 1983) with several chains."""
    return _search(problem, seed, limits, annealed=True)


def _search(problem: Instance, seed: int, limits: SearchLimits, *, annealed: bool) -> Solution:
    space, placements, evaluation = neighbourhood.make_space(problem)
    chains = ils.start(placements.T, evaluation, jnp.arange(NUM_CHAINS))
    key = jax.random.PRNGKey(seed)
    scale_s = chains.best_latency_s
    scale_s = jnp.where(jnp.isfinite(scale_s), scale_s, space.penalty_s)
    total_steps = max(0, limits.budget // NUM_CHAINS - 1)
    steps_done = 0
    while True:
        evaluations = (steps_done + 1) * NUM_CHAINS
        best, best_s = np.asarray(chains.best_placement), float(chains.best_latency_s)
        limits.report(evaluations, best_s, best)
        if steps_done >= total_steps or limits.is_over():
            return neighbourhood.make_result(best, best_s, evaluations, limits.budget)
        num_steps = min(_STEPS_PER_CALL, total_steps - steps_done)
        cooling = _Cooling(scale_s, steps_done, total_steps)
        key, chains = _advance(problem.objective, annealed, space, key, chains, cooling, num_steps)
        steps_done += num_steps


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    objective: str,
    annealed: bool,
    space: SearchSpace,
    key: chex.PRNGKey,
    chains: ils.ChainState,
    cooling: _Cooling,
    num_steps: Array | int,
) -> tuple[chex.PRNGKey, ils.ChainState]:
    """Advances all chains by `num_steps` steps."""

    def propose(key: chex.PRNGKey, chains: ils.ChainState) -> ils.Proposals:
        return ils.Proposals(neighbourhood.draw_neighbours(key, space, chains.placements.T).T)

    def evaluate(placements: Array) -> ils.Evaluation:
        return neighbourhood.evaluate(objective, space, placements.T)

    def restart(
        key: chex.PRNGKey, state: ils.ChainState, moved: ils.ChainState, proposals: ils.Proposals
    ) -> Array:
        del state, proposals
        return _draw_segments(key, space, moved.placements.T).T

    def step(
        i: Array, carry: tuple[chex.PRNGKey, ils.ChainState]
    ) -> tuple[chex.PRNGKey, ils.ChainState]:
        if not annealed:
            return ils.step(*carry, propose, evaluate, patience=PATIENCE, restart=restart)
        progress = (cooling.steps_done + i) / cooling.total_steps
        temperature_s = cooling.scale_s * HOT * (COLD / HOT) ** progress

        def accept(key: chex.PRNGKey, proposal_costs_s: Array, costs_s: Array) -> Array:
            probability = jnp.exp(-(proposal_costs_s - costs_s) / temperature_s)
            is_hot = jax.random.uniform(key, costs_s.shape) < probability
            return (proposal_costs_s <= costs_s) | is_hot

        return ils.step(*carry, propose, evaluate, patience=None, accept=accept)

    return jax.lax.fori_loop(0, num_steps, step, (key, chains))


def _draw_segments(key: chex.PRNGKey, space: SearchSpace, placements: Array) -> Array:
    """Draws placements int32 [B, N] of 2 D + 1 segments of an order, each on a random device.

    Operations that the device does not support keep the device that they have in `placements`.
    """
    batch, num_devices = len(placements), space.allowed.shape[1]
    ends_key, devices_key = jax.random.split(key)
    ends = jax.random.randint(ends_key, (batch, 2 * num_devices, 1), 0, space.num_classes)
    segment = (space.ranks >= ends).sum(axis=1)
    devices = jax.random.randint(devices_key, (batch, 2 * num_devices + 1), 0, num_devices)
    device = jnp.take_along_axis(devices, segment, axis=1)
    is_allowed = space.allowed[jnp.arange(placements.shape[1]), device]
    return jnp.where(is_allowed, device, placements)
