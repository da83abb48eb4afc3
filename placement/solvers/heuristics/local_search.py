"""Searches that walk from placement to placement, for any objective, on the compiled simulator.

`CHAINS` walks run side by side, so that one call of the simulator serves a step of all. They start
on the single devices, in turn. A step moves a *segment*, consecutive classes of a topological
order, to one device: half of the time one class, else a segment whose length is drawn uniformly
from the powers up to all of them. The device is drawn uniformly, or is that of the class before the
segment, which moves the border between two devices. Classes that the device does not support stay.

    local_search   takes a step that costs no more. A chain that found nothing better for `PATIENCE`
                   steps starts again, from segments on random devices.
    annealing      takes a step that costs x more with probability exp(-x / T) (Kirkpatrick et al.
                   1983), where T falls geometrically over the budget from `HOT` to `COLD` times the
                   value of the best single device.

A placement that breaks limits costs more than any start, and the more the further it breaks them;
it is never the one that is returned.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Array, Problem

CHAINS = 32
PATIENCE = 200
HOT, COLD = 0.03, 1e-4
_STEPS = 50  # between two looks at the clock


class Space(NamedTuple):
    """What searches walk in: placements of N operations that keep C classes together."""

    tables: Any  # of `simulators.tables`, without co-location, which steps keep
    rank: Array  # int32 [N]: the position of an operation's class in `base.in_order`
    allowed: Array  # bool [N, D]: what supports all of an operation's class
    num_classes: Array  # int32: C
    excess_s: Array  # float32: what breaking a limit costs at least


class Batch(NamedTuple):
    """B placements and what they cost."""

    placement: Array  # int32 [B, N]
    cost_s: Array  # float32 [B]: the latency, more where limits are broken
    latency_s: Array  # float32 [B]: inf where limits are broken


class _Walk(NamedTuple):
    key: chex.PRNGKey
    at: Batch
    stale: Array  # int32 [B]: steps since a chain last found something better
    best: Array  # int32 [N]
    best_s: Array  # float32
    step: Array  # int32


def local_search(problem: Problem, seed: int, limits: SearchLimits) -> base.SearchResult:
    """Local search: many walks side by side that take what costs no more, and start again."""
    return _walk(problem, seed, limits, annealed=False)


def annealing(problem: Problem, seed: int, limits: SearchLimits) -> base.SearchResult:
    """Simulated annealing (Kirkpatrick et al. 1983): many walks side by side."""
    return _walk(problem, seed, limits, annealed=True)


def space(problem: Problem) -> tuple[Space, Batch]:
    """The space of a problem, and the single devices in it as a batch of `CHAINS`."""
    classes = base.classes(problem)
    limits, of_objective = simulators.tables(problem)
    allowed, number = classes.allowed[classes.number], classes.number
    held = Space(
        tables=(limits._replace(representative=None), of_objective),
        rank=jnp.asarray(np.argsort(base.in_order(problem, classes))[number], jnp.int32),
        allowed=jnp.asarray(allowed),
        num_classes=jnp.int32(len(classes.compute_s)),
        excess_s=jnp.float32(0),
    )
    fastest = classes.compute_s.argmin(axis=1)[number]
    devices = np.arange(CHAINS) % allowed.shape[1]
    starts = np.where(allowed[:, devices], devices, fastest[:, None]).T
    batch = evaluate(problem.objective, held, jnp.asarray(starts, jnp.int32))
    finite_s = jnp.where(jnp.isfinite(batch.cost_s), batch.cost_s, 0)
    held = held._replace(excess_s=finite_s.max())
    return held, evaluate(problem.objective, held, batch.placement)


@partial(jax.jit, static_argnums=0)
def evaluate(objective: str, held: Space, placement: Array) -> Batch:
    """What placements int32 [B, N] cost."""
    outcome = simulators.objective(objective).simulate(held.tables, placement)
    broken_s = outcome.latency_s + held.excess_s * (1 + outcome.overflow)
    cost_s = jnp.where(outcome.feasible, outcome.latency_s, broken_s)
    latency_s = jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)
    return Batch(placement, cost_s, latency_s)


def moved(key: chex.PRNGKey, held: Space, placement: Array) -> Array:
    """A step of every placement int32 [B, N]."""
    batch, num_devices = len(placement), held.allowed.shape[1]
    keys = jax.random.split(key, 5)
    start = jax.random.randint(keys[0], (batch, 1), 0, held.num_classes)
    length = held.num_classes ** jax.random.uniform(keys[1], (batch, 1))
    length = jnp.where(jax.random.bernoulli(keys[2], 0.5, (batch, 1)), 1, length)
    device = jax.random.randint(keys[3], (batch,), 0, num_devices)
    before = jnp.argmax(held.rank == jnp.maximum(start - 1, 0), axis=1)
    beside = jnp.take_along_axis(placement, before[:, None], axis=1)[:, 0]
    device = jnp.where(jax.random.bernoulli(keys[4], 0.5, (batch,)), beside, device)
    inside = (held.rank >= start) & (held.rank < start + length)
    return jnp.where(inside & held.allowed[:, device].T, device[:, None], placement)


def finish(found: Array, latency_s: Array, evaluations: int, budget: int) -> base.SearchResult:
    """What a search found, once it is over.

    Args:
      found: int32 [N], its best placement.
      latency_s: float32 [], of that one; inf where none is feasible.
      evaluations: placements simulated.
      budget: how many it might have.
    """
    placement = np.asarray(found) if np.isfinite(latency_s) else None
    status = "finished" if evaluations > budget - CHAINS else "time limit"
    return base.SearchResult(placement, status=status, evaluations=evaluations)


def _walk(
    problem: Problem, seed: int, limits: SearchLimits, *, annealed: bool
) -> base.SearchResult:
    held, starts = space(problem)
    steps = max(0, limits.budget // CHAINS - 1)
    best = int(jnp.argmin(starts.latency_s))
    walk = _Walk(
        key=jax.random.PRNGKey(seed),
        at=starts,
        stale=jnp.zeros(CHAINS, jnp.int32),
        best=starts.placement[best],
        best_s=starts.latency_s[best],
        step=jnp.int32(0),
    )
    # Temperatures are relative to this; with nothing finite to start from, all steps are taken.
    scale_s = jnp.where(jnp.isfinite(walk.best_s), walk.best_s, held.excess_s)
    done = 0
    limits.tell(CHAINS, float(walk.best_s), np.asarray(walk.best))
    while done < steps and not limits.over():
        count = min(_STEPS, steps - done)
        walk = _steps(problem.objective, annealed, held, walk, scale_s, steps, count)
        done += count
        limits.tell((done + 1) * CHAINS, float(walk.best_s), np.asarray(walk.best))
    evaluations = (done + 1) * CHAINS
    return finish(walk.best, walk.best_s, evaluations, limits.budget)


@partial(jax.jit, static_argnums=(0, 1))
def _steps(
    objective: str,
    annealed: bool,
    held: Space,
    walk: _Walk,
    scale_s: Array,
    total: Array,
    count: Array,
) -> _Walk:
    def step(_: Array, walk: _Walk) -> _Walk:
        key, for_move, for_uniform, for_restart = jax.random.split(walk.key, 4)
        next_ = evaluate(objective, held, moved(for_move, held, walk.at.placement))
        taken = next_.cost_s <= walk.at.cost_s
        if annealed:
            temperature_s = scale_s * HOT * (COLD / HOT) ** (walk.step / total)
            worse_s = next_.cost_s - walk.at.cost_s
            uniform = jax.random.uniform(for_uniform, taken.shape)
            taken |= uniform < jnp.exp(-worse_s / temperature_s)
        better = next_.cost_s < walk.at.cost_s
        at = jax.tree.map(partial(_chosen, taken), next_, walk.at)
        stale = jnp.where(better, 0, walk.stale + 1)
        if not annealed:
            again = stale > PATIENCE
            at = at._replace(
                placement=_chosen(again, _segments(for_restart, held, at.placement), at.placement),
                cost_s=jnp.where(again, jnp.inf, at.cost_s),
            )
            stale = jnp.where(again, 0, stale)
        best = jnp.argmin(next_.latency_s)
        found = next_.latency_s[best] < walk.best_s
        return _Walk(
            key=key,
            at=at,
            stale=stale,
            best=jnp.where(found, next_.placement[best], walk.best),
            best_s=jnp.where(found, next_.latency_s[best], walk.best_s),
            step=walk.step + 1,
        )

    return jax.lax.fori_loop(0, count, step, walk)


def _segments(key: chex.PRNGKey, held: Space, placement: Array) -> Array:
    """New starts, [B, N]: 2 * D + 1 segments of a topological order, each on a random device."""
    batch, num_devices = len(placement), held.allowed.shape[1]
    for_ends, for_devices = jax.random.split(key)
    ends = jax.random.randint(for_ends, (batch, 2 * num_devices, 1), 0, held.num_classes)
    segment = (held.rank >= ends).sum(axis=1)
    devices = jax.random.randint(for_devices, (batch, 2 * num_devices + 1), 0, num_devices)
    device = jnp.take_along_axis(devices, segment, axis=1)
    allowed = held.allowed[jnp.arange(placement.shape[1]), device]
    return jnp.where(allowed, device, placement)


def _chosen(mask: Array, yes: Array, no: Array) -> Array:
    """By the leading axis: `yes` where the mask, bool [B], holds, else `no`."""
    return jnp.where(mask.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)
