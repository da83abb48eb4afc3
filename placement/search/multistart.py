"""One compiled, anytime search for all objectives, from the results of fast methods.

Chains of block moves (`placement.search.block_search`) start from single devices and from what
fast methods find (`placement.solvers.starts`). A large problem under `makespan` is first searched
window by window (`placement.search.windows`), until a pass gains next to nothing; the chains then
start from that result.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.search import block_search, windows
from placement.search.block_orders import KINDS
from placement.solvers import base, starts
from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_NUM_CHAINS = 1  # several chains gain less in the same time, and far less in few evaluations
_BATCH_SIZE = _NUM_CHAINS * block_search.NUM_PROPOSALS
_REPORT_INTERVAL_S = 0.2  # approximate duration of a compiled call
_ENUMERATION_LIMIT = 4096  # a problem with at most so many placements is enumerated
_LARGE = 2_000  # classes, above which windows are searched first
_STARTS_SHARE = 0.2  # of the time; later methods do not contribute starts


def search(
    problem: Instance,
    seed: int,
    limits: SearchLimits,
    warm_start: Solution | None = None,
) -> Solution:
    """Searches by block moves from single devices and the results of fast methods.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of the search. The starts count as evaluations. A simulation of a window counts as
        the window's share of all operations.
      warm_start: another method's result, to start from as well; its evaluations count.

    Returns:
      The best placement, or none if no feasible placement is known. The status is 'optimal' if all
      placements were enumerated or a start is proven optimal.
    """
    classes = problem.classes
    if np.log(classes.allowed.sum(axis=1)).sum() <= np.log(_ENUMERATION_LIMIT):
        return trivial.brute_force(problem, seed, limits)
    start_list = list(problem.single_devices)
    optimum: Solution | None = None
    for result in starts.find_starts(
        problem, seed, limits.take_share(_STARTS_SHARE, limits.budget)
    ):
        start_list.append(result.placement)
        is_optimal = result.status == Status.OPTIMAL and result.scope == base.ALL
        if is_optimal and np.isfinite(problem.value_s(np.asarray(result.placement))):
            optimum = result
            break
    placements = np.array(start_list, np.int32)
    evaluations = len(placements) + (warm_start.evaluations if warm_start is not None else 0)
    if optimum is not None:
        assert optimum.placement is not None
        limits.report(evaluations, problem.value_s(optimum.placement), optimum.placement)
        return optimum._replace(evaluations=evaluations)
    if warm_start is not None and warm_start.placement is not None:
        placements = np.concatenate([placements, warm_start.placement[None]])
    is_large = problem.objective == "makespan" and len(classes.compute_s) > _LARGE
    if is_large and windows.is_suitable(problem):
        window_limits = limits.take_share(1.0, limits.budget - evaluations, evaluations)
        result = windows.improve(problem, placements, seed, window_limits)
        evaluations += result.evaluations
        if limits.is_over() or limits.budget - evaluations < _BATCH_SIZE:
            return result._replace(evaluations=evaluations)
        if result.placement is not None:
            placements = result.placement[None]
    simulate = simulators.get_objective(problem.objective).simulate_columns
    space, state = start_chains(problem, simulate, placements[:, classes.first_ops], seed)
    num_steps, status = 1, Status.FINISHED

    def report() -> np.ndarray | None:
        chains = state.chains
        latency_s = float(chains.best_latency_s)
        best = np.asarray(chains.best_placement)[classes.ids] if np.isfinite(latency_s) else None
        probabilities = np.asarray(block_search.kind_probabilities(space, chains)).tolist()
        numbers = {f"share_{k}": p for k, p in zip(KINDS, probabilities, strict=True)}
        limits.report(evaluations, latency_s, best, numbers)
        return best

    best = report()
    while (remaining_steps := (limits.budget - evaluations) // _BATCH_SIZE) > 0:
        if limits.is_over():
            status = Status.TIME_LIMIT
            break
        num_steps = min(num_steps, remaining_steps)
        began_s = limits.elapsed_s()
        state = jax.block_until_ready(block_search.advance(simulate, space, state, num_steps))
        evaluations += num_steps * _BATCH_SIZE
        step_s = (limits.elapsed_s() - began_s) / num_steps
        best = report()
        num_steps = max(1, min(2 * num_steps, int(_REPORT_INTERVAL_S / step_s)))
    return Solution(best, status=status, evaluations=evaluations)


def start_chains(
    problem: Instance, simulate: Any, placements: np.ndarray, seed: int
) -> tuple[block_search.SearchSpace, block_search.SearchState]:
    """Makes a problem's search space and starts chains at the best of placements int32 [M, C]."""
    space = jax.tree.map(jnp.asarray, block_search.make_space(problem, seed))
    # Padded to the size of a step's batch, for which alone the simulator is then compiled.
    num_rows = max(_BATCH_SIZE, len(placements))
    rows = np.resize(placements, (num_rows, placements.shape[1]))
    key = jax.random.key(seed, impl="rbg")  # compiles and draws faster than Threefry
    return jax.jit(block_search.start, static_argnums=(0, 4))(
        simulate, space, rows.T, len(placements), _NUM_CHAINS, key
    )
