"""`local_search`, `annealing` and `genetic`: baselines for any objective.

They are configurations of `placement.solvers.iterated_local_search`, with `NUM_CHAINS` chains that
begin at the starts (`placement.solvers.starts`) in turn, and one proposal per chain and step. A
proposal is a neighbour: a *segment*, consecutive decisions of a topological order, moves to one
device. Half of the segments are a single decision; the length of the others is log-uniform up to
all decisions. The device is drawn uniformly, or is that of the decision before the segment, which
moves the border between two devices. Decisions that the device does not support do not move.

    local_search   restarts chains near the best placement after `_PATIENCE` steps without gain.
    annealing      accepts a proposal that costs x more with probability exp(-x / T) (Kirkpatrick et
                   al. 1983). T falls geometrically over the budget from `_HOT` to `_COLD` times the
                   latency of the best start. No chain restarts.
    genetic        The chains are a population. A child takes a random interval of the topological
                   order from the better of two random chains and the rest from its parent
                   (two-point crossover, Holland 1975), and then becomes a neighbour. It replaces
                   its parent if it costs no more (crowding, Mahfoud 1995). No chain restarts.
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.problem import Problem
from placement.solvers import iterated_local_search as ils
from placement.solvers import starts
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution, Status

NUM_CHAINS = 32
_PATIENCE, _FOREVER = 200, 2**30
_HOT, _COLD = 0.03, 1e-4
_STEPS_PER_CALL = 50  # between two checks of the time


class _SearchSpace(NamedTuple):
    """Placements of K decisions on D devices."""

    tables: simulators.Tables
    ranks: Array  # int32 [K]: position of a decision in the topological order
    allowed: Array  # bool [K, D]
    penalty_s: Array  # float32 []: least penalty of an infeasible placement


def local_search(
    problem: Problem, seed: int, limits: SearchLimits, start: np.ndarray | None = None
) -> Solution:
    """Searches with chains that accept what costs no more, and restart near the best placement.

    All chains begin at `start`, int [K], if it is given.
    """
    return _search(problem, seed, limits, patience=_PATIENCE, start=start)


def annealing(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Searches by simulated annealing (Kirkpatrick et al. 1983) with several chains."""
    return _search(problem, seed, limits, hot=_HOT)


def genetic(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Searches with a genetic algorithm."""
    return _search(problem, seed, limits, crosses=True)


def _search(
    problem: Problem,
    seed: int,
    limits: SearchLimits,
    *,
    patience: int = _FOREVER,
    hot: float = 0.0,
    crosses: bool = False,
    start: np.ndarray | None = None,
) -> Solution:
    if start is None:
        begun = [*starts.evaluate_starts(problem, seed, limits)]
        start_evaluations = begun[-1].evaluations
        fastest = sorted(begun, key=lambda start: start.value_s)[:NUM_CHAINS]
        rows = np.array([start.placement for start in fastest])
    else:
        rows, start_evaluations = np.asarray(start, np.int32)[None], 0
    space = _SearchSpace(
        tables=problem.tables,
        ranks=np.argsort(problem.decision_order).astype(np.int32),
        allowed=problem.decisions.allowed,
        penalty_s=np.zeros((), np.float32),
    )
    placements = rows[np.arange(NUM_CHAINS) % len(rows)].T
    costs_s = np.asarray(_evaluate(problem.objective, space, placements).costs_s)
    # An infeasible placement costs more than any start.
    space = space._replace(penalty_s=np.where(np.isfinite(costs_s), costs_s, np.float32(0)).max())
    evaluation = _evaluate(problem.objective, space, placements)
    chains = ils.start(placements, evaluation, np.arange(NUM_CHAINS))
    start_s = np.asarray(chains.best_latency_s)
    hot_s = np.float32(hot) * (start_s if np.isfinite(start_s) else space.penalty_s)
    key, steps_done = jax.random.PRNGKey(seed), 0
    total_steps = max(0, limits.budget - start_evaluations) // NUM_CHAINS
    while True:
        evaluations = start_evaluations + steps_done * NUM_CHAINS
        best, best_s = np.asarray(chains.best_placement), float(chains.best_latency_s)
        limits.report(evaluations, best_s, best)
        if steps_done >= total_steps or limits.is_over():
            status = Status.FINISHED if steps_done >= total_steps else Status.TIME_LIMIT
            placement = best if np.isfinite(best_s) else None
            return Solution(placement, status=status, evaluations=evaluations)
        num_steps = min(_STEPS_PER_CALL, total_steps - steps_done)
        progress = (steps_done + np.arange(_STEPS_PER_CALL)) / total_steps
        temperatures_s = hot_s * ((_COLD / _HOT) ** progress).astype(np.float32)
        key, chains = _advance(
            problem.objective, crosses, space, (key, chains), temperatures_s, patience, num_steps
        )
        steps_done += num_steps


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    objective: str,
    crosses: bool,
    space: _SearchSpace,
    carry: tuple[chex.PRNGKey, ils.ChainState],
    temperatures_s: Array,
    patience: Array | int,
    num_steps: Array | int,
) -> tuple[chex.PRNGKey, ils.ChainState]:
    """Advances all chains by `num_steps` steps; step i has temperature i."""

    def step(
        i: Array, carry: tuple[chex.PRNGKey, ils.ChainState]
    ) -> tuple[chex.PRNGKey, ils.ChainState]:
        key, cross_key, move_key, accept_key = jax.random.split(carry[0], 4)
        chains, ranks = carry[1], space.ranks[:, None]
        parents, num_decisions = chains.placements, len(space.ranks)
        if crosses:  # with the better of two random chains, within a random interval
            mates_key, ends_key = jax.random.split(cross_key)
            mates = jax.random.randint(mates_key, (2, NUM_CHAINS), 0, NUM_CHAINS)
            costs_s = chains.costs_s[mates]
            mate = jnp.where(costs_s[0] <= costs_s[1], mates[0], mates[1])
            ends = jax.random.randint(ends_key, (2, NUM_CHAINS), 0, num_decisions + 1)
            is_inside = (ranks >= ends.min(axis=0)) & (ranks < ends.max(axis=0))
            parents = jnp.where(is_inside, parents[:, mate], parents)
        # A neighbour of each parent int32 [K, C]: an interval of decisions on one device.
        num_chains, num_devices = parents.shape[1], space.allowed.shape[1]
        keys = jax.random.split(move_key, 5)
        begin = jax.random.randint(keys[0], (num_chains,), 0, num_decisions)
        length = num_decisions ** jax.random.uniform(keys[1], (num_chains,))
        length = jnp.where(jax.random.bernoulli(keys[2], 0.5, (num_chains,)), 1, length)
        device = jax.random.randint(keys[3], (num_chains,), 0, num_devices)
        previous = jnp.argmax(ranks == jnp.maximum(begin - 1, 0), axis=0)
        previous_device = parents[previous, jnp.arange(num_chains)]
        device = jnp.where(
            jax.random.bernoulli(keys[4], 0.5, (num_chains,)), previous_device, device
        )
        is_inside = (ranks >= begin) & (ranks < begin + length)
        proposals = jnp.where(is_inside & space.allowed[:, device], device, parents)
        # Below an exponential draw with mean T with probability exp(-x / T).
        threshold_s = temperatures_s[i] * jax.random.exponential(accept_key, (NUM_CHAINS,))
        chains = ils.move_chains(
            chains,
            ils.Proposals(proposals),
            _evaluate(objective, space, proposals),
            patience=patience,
            threshold_s=threshold_s,
        )
        return key, chains

    return jax.lax.fori_loop(0, num_steps, step, carry)


@partial(jax.jit, static_argnums=0)
def _evaluate(objective: str, space: _SearchSpace, placements: Array) -> ils.Evaluation:
    outcome = simulators.get_objective(objective).simulate_columns(space.tables, placements)
    return ils.penalise(outcome, space.penalty_s)
