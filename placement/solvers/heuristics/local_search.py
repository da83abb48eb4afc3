"""Local search with restarts, and simulated annealing, for any objective.

`NUM_CHAINS` placements advance side by side, so that one call of the compiled simulator evaluates a
step of all. They start on the single devices, in turn. A neighbour has a *segment*, consecutive
classes of a topological order, on one device. Half of the segments are a single class; the length
of the others is log-uniform up to all classes. The device is drawn uniformly, or is that of the
class before the segment, which moves the border between two devices. Classes that the device does
not support do not move.

Both methods are configurations of `placement.solvers.iterated_local_search` with one proposal a
chain, a neighbour:

    local_search   accepts a proposal that costs no more. A chain without improvement for `PATIENCE`
                   steps restarts from segments on random devices.
    annealing      accepts a proposal that costs x more with probability exp(-x / T) (Kirkpatrick et
                   al. 1983). T falls geometrically over the budget from `HOT` to `COLD` times the
                   latency of the best single device. No chain restarts.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.solvers import base
from placement.solvers import iterated_local_search as ils
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution, Status

NUM_CHAINS = 32
PATIENCE = 200
HOT, COLD = 0.03, 1e-4
_STEPS_PER_CALL = 50  # between two checks of the time


class SearchSpace(NamedTuple):
    """Placements of N operations on D devices that keep C classes together."""

    tables: Any  # the objective's `Instance.tables` without co-location, which moves respect
    ranks: Array  # int32 [N]: position of an operation's class in the topological order
    allowed: Array  # bool [N, D]: devices that support all of an operation's class
    num_classes: Array  # int32 []: C
    penalty_s: Array  # float32 []: least penalty of an infeasible placement


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
    base.report_single_device(problem, limits)
    space, placements, evaluation = make_space(problem)
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
            return make_result(best, best_s, evaluations, limits.budget)
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
        return ils.Proposals(draw_neighbours(key, space, chains.placements.T).T)

    def evaluate(placements: Array) -> ils.Evaluation:
        return evaluate_costs(objective, space, placements.T)

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
    costs_s = evaluate_costs(problem.objective, space, starts).costs_s
    space = space._replace(penalty_s=jnp.where(jnp.isfinite(costs_s), costs_s, 0).max())
    return space, starts, evaluate_costs(problem.objective, space, starts)


@partial(jax.jit, static_argnums=0)
def evaluate_costs(objective: str, space: SearchSpace, placements: Array) -> ils.Evaluation:
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
