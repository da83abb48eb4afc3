"""One compiled, anytime search for all objectives, from the results of fast methods.

Chains of block moves (`placement.search.block_search`) start from single devices and from what
fast methods find (`placement.solvers.starts`). A large problem under `makespan` is first searched
window by window (`placement.search.windows`), until a pass gains next to nothing; the chains then
start from that result.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.search import block_search, windows
from placement.search.block_orders import KINDS
from placement.solvers import base, starts
from placement.solvers import iterated_local_search as ils
from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_NUM_CHAINS = 1  # several chains gain less in the same time, and far less in few evaluations
_REPORT_INTERVAL_S = 0.2  # approximate duration of a compiled call
_ENUMERATION_LIMIT = 4096  # a problem with at most so many placements is enumerated
_LARGE = 2_000  # classes, above which windows are searched first
_LARGE_SET_SIZE = 8  # proposals of a set there
_LEAST_STEPS = 256  # for which a small budget is divided
_STARTS_SHARE = 0.1  # of the time; later methods do not contribute starts


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
        if limits.is_over() or limits.budget - evaluations < block_search.NUM_SETS:
            return result._replace(evaluations=evaluations)
        if result.placement is not None:
            placements = result.placement[None]
    simulate = simulators.get_objective(problem.objective).simulate_columns
    space, state = start_chains(problem, placements, seed)
    set_size = _choose_set_size(len(classes.compute_s), limits.budget - evaluations)
    batch_size = _NUM_CHAINS * block_search.NUM_SETS * set_size
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
    while (remaining_steps := (limits.budget - evaluations) // batch_size) > 0:
        if limits.is_over():
            status = Status.TIME_LIMIT
            break
        num_steps = min(num_steps, remaining_steps)
        began_s = limits.elapsed_s()
        state = jax.block_until_ready(
            block_search.advance(simulate, space, state, num_steps, set_size)
        )
        evaluations += num_steps * batch_size
        step_s = (limits.elapsed_s() - began_s) / num_steps
        best = report()
        num_steps = max(1, min(2 * num_steps, int(_REPORT_INTERVAL_S / step_s)))
    return Solution(best, status=status, evaluations=evaluations)


def _choose_set_size(num_classes: int, budget: int) -> int:
    """Chooses how many proposals share an order: fewer where more steps gain more.

    Args:
      num_classes: of the problem. The simulation of a large graph takes as long per proposal
        whatever their number.
      budget: the evaluations left, of which at least `_LEAST_STEPS` steps are made.
    """
    most = _LARGE_SET_SIZE if num_classes > _LARGE else block_search.SET_SIZE
    affordable = budget // (_NUM_CHAINS * block_search.NUM_SETS * _LEAST_STEPS)
    # A power of two, so that few sizes are compiled.
    return min(most, 2 ** max(1, affordable.bit_length() - 1))


def start_chains(
    problem: Instance, placements: np.ndarray, seed: int
) -> tuple[block_search.SearchSpace, block_search.SearchState]:
    """Makes a problem's search space and starts chains at the best of placements int32 [M, N].

    If no placement is feasible, a chain first moves to its best proposal, whatever that costs.
    """
    chex.assert_shape(placements, (None, problem.graph.num_ops))
    # One at a time, because the simulator is compiled for one placement in any case.
    latencies_s = np.array([problem.value_s(placement) for placement in placements], np.float32)
    known_s = latencies_s
    if not np.isfinite(latencies_s).any():
        rows = placements[:, None]
        known_s = np.array([float(problem.evaluate_penalised(row)[0]) for row in rows], np.float32)
    penalty_s = known_s[np.isfinite(known_s)].max(initial=0.0)
    space = block_search.make_space(problem, seed)._replace(penalty_s=penalty_s)
    best = np.argsort(known_s, kind="stable")[np.arange(_NUM_CHAINS) % len(known_s)]
    chains = jax.jit(ils.start)(
        placements[np.ix_(best, problem.classes.first_ops)].T,
        ils.Evaluation(latencies_s[best], latencies_s[best]),
        np.arange(_NUM_CHAINS),
    )
    chains = chains._replace(move_credit=jnp.zeros(len(KINDS)))
    key = jax.random.key(seed, impl="rbg")  # compiles and draws faster than Threefry
    return jax.tree.map(jnp.asarray, space), block_search.SearchState(key, chains)
