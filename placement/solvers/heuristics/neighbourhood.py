"""The neighbourhood that local search, annealing and genetic algorithms step in, for any objective.

`CHAINS` placements are looked at side by side, so that one call of the compiled simulator serves a
step of all. They start on the single devices, in turn. A step moves a *segment*, consecutive
classes of a topological order, to one device: half of the time one class, else a segment whose
length is drawn uniformly from the powers up to all of them. The device is drawn uniformly, or is
that of the class before the segment, which moves the border between two devices. Classes that the
device does not support stay.

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
from placement.instance import Instance
from placement.types import Array, Solution, Status

CHAINS = 32


class Space(NamedTuple):
    """The search space: placements of N operations that keep C classes together."""

    tables: Any  # of `Instance.tables`, without co-location, which steps keep
    rank: Array  # int32 [N]: the position of an operation's class in `base.in_order`
    allowed: Array  # bool [N, D]: what supports all of an operation's class
    num_classes: Array  # int32: C
    excess_s: Array  # float32: what breaking a limit costs at least


class Batch(NamedTuple):
    """B placements and what they cost."""

    placement: Array  # int32 [B, N]
    cost_s: Array  # float32 [B]: the latency, more where limits are broken
    latency_s: Array  # float32 [B]: inf where limits are broken


def make_space(problem: Instance) -> tuple[Space, Batch]:
    """Makes the space of a problem, and the single devices in it as a batch of `CHAINS`."""
    classes = problem.classes
    limits, of_objective = problem.tables
    space = Space(
        tables=(limits._replace(representative=None), of_objective),
        rank=jnp.asarray(np.argsort(problem.class_order)[classes.ids], jnp.int32),
        allowed=jnp.asarray(problem.allowed),
        num_classes=jnp.int32(len(classes.compute_s)),
        excess_s=jnp.float32(0),
    )
    starts = problem.single_devices[np.arange(CHAINS) % len(problem.devices)]
    batch = evaluate(problem.objective, space, jnp.asarray(starts))
    finite_s = jnp.where(jnp.isfinite(batch.cost_s), batch.cost_s, 0)
    space = space._replace(excess_s=finite_s.max())
    return space, evaluate(problem.objective, space, batch.placement)


@partial(jax.jit, static_argnums=0)
def evaluate(objective: str, space: Space, placement: Array) -> Batch:
    """Computes what placements int32 [B, N] cost."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    outcome = simulators.objective(objective).simulate(space.tables, placement)
    broken_s = outcome.latency_s + space.excess_s * (1 + outcome.overflow)
    cost_s = jnp.where(outcome.feasible, outcome.latency_s, broken_s)
    latency_s = jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)
    return Batch(placement, cost_s, latency_s)


def draw_neighbours(key: chex.PRNGKey, space: Space, placement: Array) -> Array:
    """Draws a step of every placement int32 [B, N]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    batch, num_devices = len(placement), space.allowed.shape[1]
    keys = jax.random.split(key, 5)
    start = jax.random.randint(keys[0], (batch, 1), 0, space.num_classes)
    length = space.num_classes ** jax.random.uniform(keys[1], (batch, 1))
    length = jnp.where(jax.random.bernoulli(keys[2], 0.5, (batch, 1)), 1, length)
    device = jax.random.randint(keys[3], (batch,), 0, num_devices)
    before = jnp.argmax(space.rank == jnp.maximum(start - 1, 0), axis=1)
    beside = jnp.take_along_axis(placement, before[:, None], axis=1)[:, 0]
    device = jnp.where(jax.random.bernoulli(keys[4], 0.5, (batch,)), beside, device)
    inside = (space.rank >= start) & (space.rank < start + length)
    return jnp.where(inside & space.allowed[:, device].T, device[:, None], placement)


def finish(best: Array, best_s: Array, evaluations: int, budget: int) -> Solution:
    """Returns the result of a search that is over.

    Args:
      best: int32 [N], its best placement.
      best_s: float32 [], of that one; inf where none is feasible.
      evaluations: placements simulated.
      budget: how many it might have.
    """
    chex.assert_rank([best, best_s], [1, 0])
    chex.assert_type([best, best_s], [int, float])
    placement = np.asarray(best) if np.isfinite(best_s) else None
    status = Status.FINISHED if evaluations > budget - CHAINS else Status.TIME_LIMIT
    return Solution(placement, status=status, evaluations=evaluations)
