"""Local search with restarts, and simulated annealing, for any objective.

Both follow chains of steps in `placement.solvers.heuristics.neighbourhood`, side by side:

    local_search   takes a step that costs no more. A chain that found nothing better for `PATIENCE`
                   steps starts again, from segments on random devices.
    annealing      takes a step that costs x more with probability exp(-x / T) (Kirkpatrick et al.
                   1983), where T falls geometrically over the budget from `HOT` to `COLD` times the
                   value of the best single device.
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.instance import Instance
from placement.solvers.heuristics import neighbourhood
from placement.solvers.heuristics.neighbourhood import CHAINS, Batch, Space
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution

PATIENCE = 200
HOT, COLD = 0.03, 1e-4
_STEPS = 50  # between two looks at the clock


class _Chains(NamedTuple):
    key: chex.PRNGKey
    at: Batch
    stale: Array  # int32 [B]: steps since a chain last found something better
    best: Array  # int32 [N]
    best_s: Array  # float32
    step: Array  # int32


def local_search(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Local search: chains side by side take what costs no more, and start again."""
    return _search(problem, seed, limits, annealed=False)


def annealing(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Simulated annealing (Kirkpatrick et al. 1983): chains side by side."""
    return _search(problem, seed, limits, annealed=True)


def _search(problem: Instance, seed: int, limits: SearchLimits, *, annealed: bool) -> Solution:
    space, starts = neighbourhood.make_space(problem)
    steps = max(0, limits.budget // CHAINS - 1)
    best = int(jnp.argmin(starts.latency_s))
    chains = _Chains(
        key=jax.random.PRNGKey(seed),
        at=starts,
        stale=jnp.zeros(CHAINS, jnp.int32),
        best=starts.placement[best],
        best_s=starts.latency_s[best],
        step=jnp.int32(0),
    )
    # Temperatures are relative to this; with nothing finite to start from, all steps are taken.
    scale_s = jnp.where(jnp.isfinite(chains.best_s), chains.best_s, space.excess_s)
    done = 0
    limits.tell(CHAINS, float(chains.best_s), np.asarray(chains.best))
    while done < steps and not limits.over():
        count = min(_STEPS, steps - done)
        chains = _steps(problem.objective, annealed, space, chains, scale_s, steps, count)
        done += count
        limits.tell((done + 1) * CHAINS, float(chains.best_s), np.asarray(chains.best))
    evaluations = (done + 1) * CHAINS
    return neighbourhood.finish(chains.best, chains.best_s, evaluations, limits.budget)


@partial(jax.jit, static_argnums=(0, 1))
def _steps(
    objective: str,
    annealed: bool,
    space: Space,
    chains: _Chains,
    scale_s: Array,
    total: Array,
    count: Array,
) -> _Chains:
    def step(_: Array, chains: _Chains) -> _Chains:
        key, for_move, for_uniform, for_restart = jax.random.split(chains.key, 4)
        moved = neighbourhood.draw_neighbours(for_move, space, chains.at.placement)
        next_ = neighbourhood.evaluate(objective, space, moved)
        taken = next_.cost_s <= chains.at.cost_s
        if annealed:
            temperature_s = scale_s * HOT * (COLD / HOT) ** (chains.step / total)
            worse_s = next_.cost_s - chains.at.cost_s
            uniform = jax.random.uniform(for_uniform, taken.shape)
            taken |= uniform < jnp.exp(-worse_s / temperature_s)
        better = next_.cost_s < chains.at.cost_s
        at = jax.tree.map(partial(_chosen, taken), next_, chains.at)
        stale = jnp.where(better, 0, chains.stale + 1)
        if not annealed:
            again = stale > PATIENCE
            at = at._replace(
                placement=_chosen(again, _segments(for_restart, space, at.placement), at.placement),
                cost_s=jnp.where(again, jnp.inf, at.cost_s),
            )
            stale = jnp.where(again, 0, stale)
        best = jnp.argmin(next_.latency_s)
        improved = next_.latency_s[best] < chains.best_s
        return _Chains(
            key=key,
            at=at,
            stale=stale,
            best=jnp.where(improved, next_.placement[best], chains.best),
            best_s=jnp.where(improved, next_.latency_s[best], chains.best_s),
            step=chains.step + 1,
        )

    return jax.lax.fori_loop(0, count, step, chains)


def _segments(key: chex.PRNGKey, space: Space, placement: Array) -> Array:
    """Draws new starts [B, N]: 2 * D + 1 segments of an order, each on a random device."""
    batch, num_devices = len(placement), space.allowed.shape[1]
    for_ends, for_devices = jax.random.split(key)
    ends = jax.random.randint(for_ends, (batch, 2 * num_devices, 1), 0, space.num_classes)
    segment = (space.rank >= ends).sum(axis=1)
    devices = jax.random.randint(for_devices, (batch, 2 * num_devices + 1), 0, num_devices)
    device = jnp.take_along_axis(devices, segment, axis=1)
    allowed = space.allowed[jnp.arange(placement.shape[1]), device]
    return jnp.where(allowed, device, placement)


def _chosen(mask: Array, yes: Array, no: Array) -> Array:
    """Chooses by the leading axis: `yes` where the mask, bool [B], holds, else `no`."""
    return jnp.where(mask.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)
