"""The neighbourhood of `local_search`, `annealing` and `genetic`, for any objective.

`NUM_CHAINS` placements advance side by side, so that one call of the compiled simulator evaluates a
step of all. They start on the single devices, in turn. A neighbour has a *segment*, consecutive
classes of a topological order, on one device. Half of the segments are a single class; the length
of the others is log-uniform up to all classes. The device is drawn uniformly, or is that of the
class before the segment, which moves the border between two devices. Classes that the device does
not support do not move.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.solvers import iterated_local_search as ils
from placement.types import Array, Solution, Status

NUM_CHAINS = 32


class SearchSpace(NamedTuple):
    """Placements of N operations on D devices that keep C classes together."""

    tables: Any  # the objective's `Instance.tables` without co-location, which moves respect
    ranks: Array  # int32 [N]: position of an operation's class in the topological order
    allowed: Array  # bool [N, D]: devices that support all of an operation's class
    num_classes: Array  # int32 []: C
    penalty_s: Array  # float32 []: least penalty of an infeasible placement


def make_space(problem: Instance) -> tuple[SearchSpace, Array, ils.Evaluation]:
    """Returns a problem's search space, and starts int32 [B, N] with their evaluation.

    An infeasible placement costs more than any start.
    """
    classes, (limits, objective_tables) = problem.classes, problem.tables
    space = SearchSpace(
        tables=(limits._replace(representative=None), objective_tables),
        ranks=jnp.asarray(np.argsort(problem.class_order)[classes.ids], jnp.int32),
        allowed=jnp.asarray(problem.allowed),
        num_classes=jnp.int32(len(classes.compute_s)),
        penalty_s=jnp.float32(0),
    )
    devices = np.arange(NUM_CHAINS) % len(problem.devices)
    starts = jnp.asarray(problem.single_devices[devices])
    costs_s = evaluate(problem.objective, space, starts).costs_s
    space = space._replace(penalty_s=jnp.where(jnp.isfinite(costs_s), costs_s, 0).max())
    return space, starts, evaluate(problem.objective, space, starts)


@partial(jax.jit, static_argnums=0)
def evaluate(objective: str, space: SearchSpace, placements: Array) -> ils.Evaluation:
    """Computes the costs of placements int32 [B, N]."""
    chex.assert_rank(placements, 2)
    chex.assert_type(placements, int)
    outcome = simulators.get_objective(objective).simulate(space.tables, placements)
    return ils.penalise(outcome, space.penalty_s)


def draw_neighbours(key: chex.PRNGKey, space: SearchSpace, placements: Array) -> Array:
    """Draws a neighbour of each placement int32 [B, N]."""
    chex.assert_rank(placements, 2)
    chex.assert_type(placements, int)
    batch, num_devices = len(placements), space.allowed.shape[1]
    keys = jax.random.split(key, 5)
    begin = jax.random.randint(keys[0], (batch, 1), 0, space.num_classes)
    length = space.num_classes ** jax.random.uniform(keys[1], (batch, 1))
    length = jnp.where(jax.random.bernoulli(keys[2], 0.5, (batch, 1)), 1, length)
    device = jax.random.randint(keys[3], (batch,), 0, num_devices)
    previous_op = jnp.argmax(space.ranks == jnp.maximum(begin - 1, 0), axis=1)
    previous_device = jnp.take_along_axis(placements, previous_op[:, None], axis=1)[:, 0]
    device = jnp.where(jax.random.bernoulli(keys[4], 0.5, (batch,)), previous_device, device)
    is_inside = (space.ranks >= begin) & (space.ranks < begin + length)
    return jnp.where(is_inside & space.allowed[:, device].T, device[:, None], placements)


def make_result(best: np.ndarray, best_s: float, evaluations: int, budget: int) -> Solution:
    """Returns the result of a search that is over.

    Args:
      best: int32 [N], the best placement.
      best_s: its latency; inf if no feasible placement is known.
      evaluations: number of simulated placements.
      budget: largest number of simulated placements.
    """
    chex.assert_rank(best, 1)
    chex.assert_type(best, int)
    placement = best if np.isfinite(best_s) else None
    status = Status.FINISHED if evaluations > budget - NUM_CHAINS else Status.TIME_LIMIT
    return Solution(placement, status=status, evaluations=evaluations)
