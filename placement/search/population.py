"""One compiled, anytime search for all objectives: chains from what fast methods find.

What is large under `makespan` is searched by windows (`placement.search.windows`) until they gain
next to nothing, and then as a whole: by chains (`placement.search.chains`) over all classes, from
single devices and what fast methods find (`placement.solvers.starts`), or from what the windows
found.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.search import chains, orders, windows
from placement.solvers import base, starts
from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_CHAINS = 1  # several gain less in the same time, and far less in few evaluations
_CHILDREN = _CHAINS * chains.CHILDREN
_REPORT_S = 0.2  # what a compiled call takes about
_ENUMERATED = 4096  # placements that are all simulated instead
_LARGE = 2_000  # classes, above which windows are searched before the whole
_STARTS_SHARE = 0.2  # of the time, after which no further start is made


def find(
    problem: Instance,
    seed: int,
    limits: SearchLimits,
    known: Solution | None = None,
) -> Solution:
    """A compiled search of blocks, from single devices and what fast methods find.

    Args:
      problem: what is to be placed.
      seed: of all randomness.
      limits: until which it searches. The starts count as evaluations, and a simulation of a
        window as the share of one that its operations are of all.
      known: what another search found, to start from beside these; its evaluations count.

    Returns:
      The best placement; none where none that is feasible is known. At most 4,096 placements are
      all simulated, and then, or where a start is proven to be the best, the status says so.
    """
    classes = problem.classes
    if np.log(classes.allowed.sum(axis=1)).sum() <= np.log(_ENUMERATED):
        return trivial.brute_force(problem, seed, limits)
    begun, proven = _starts(problem, seed, limits)
    evaluations = len(begun) + (known.evaluations if known is not None else 0)
    if proven is not None:
        assert proven.placement is not None
        limits.tell(evaluations, problem.value_s(proven.placement), proven.placement)
        return proven._replace(evaluations=evaluations)
    if known is not None and known.placement is not None:
        begun = np.concatenate([begun, known.placement[None]])
    large = problem.objective == "makespan" and len(classes.compute_s) > _LARGE
    if large and windows.suit(problem):
        within = limits.part(1.0, limits.budget - evaluations, evaluations)
        result = windows.improve(problem, begun, seed, within)
        evaluations += result.evaluations
        if limits.over() or limits.budget - evaluations < _CHILDREN:
            return result._replace(evaluations=evaluations)
        if result.placement is not None:
            begun = result.placement[None]
    begun = begun[:, classes.first_ops]
    simulate = simulators.objective(problem.objective).simulate_columns
    space, state = begin(problem, simulate, begun, seed)
    count, status = 1, Status.FINISHED

    def tell() -> np.ndarray | None:
        best_s = float(state.best_s)
        best = np.asarray(state.best)[classes.ids] if np.isfinite(best_s) else None
        limits.tell(evaluations, best_s, best, _numbers(space, state))
        return best

    best = tell()
    while (left := (limits.budget - evaluations) // _CHILDREN) > 0:
        if limits.over():
            status = Status.TIME_LIMIT
            break
        count = min(count, left)
        began_s = limits.spent_s()
        state = jax.block_until_ready(chains.advance(simulate, space, state, count))
        evaluations += count * _CHILDREN
        step_s = (limits.spent_s() - began_s) / count
        best = tell()
        count = max(1, min(2 * count, int(_REPORT_S / step_s)))
    return Solution(best, status=status, evaluations=evaluations)


def _starts(
    problem: Instance, seed: int, limits: SearchLimits
) -> tuple[np.ndarray, Solution | None]:
    """Placements int32 [M, N] to start from; or the optimum, where one of them is proven to be."""
    rows = list(problem.single_devices)
    gathering = limits.part(_STARTS_SHARE, limits.budget)
    for result in starts.find(problem, seed, gathering):
        optimal = result.status == Status.OPTIMAL and result.scope == base.ALL
        rows.append(result.placement)
        if optimal and np.isfinite(problem.value_s(np.asarray(result.placement))):
            return np.array(rows, np.int32), result
    return np.array(rows, np.int32), None


def begin(
    problem: Instance, simulate: Any, starts: np.ndarray, seed: int
) -> tuple[chains.Space, chains.State]:
    """Returns the space, and chains at the best of the starts int32 [M, C]."""
    classes, (limits, of_objective) = problem.classes, problem.tables
    space = chains.Space(
        tables=(limits._replace(representative=None), of_objective),
        number=classes.ids if problem.is_colocated else None,
        allowed=classes.allowed,
        memory_bytes=classes.memory_bytes.astype(np.float32),
        excess_s=np.zeros((), np.float32),
        orders=orders.make(problem, np.random.default_rng(seed)),
    )
    # As many as children, or more: the simulator compiles once.
    rows = np.resize(starts, (max(_CHILDREN, len(starts)), starts.shape[1]))
    key = jax.random.key(seed, impl="rbg")  # compiles and draws faster than Threefry
    return jax.jit(chains.begin, static_argnums=(0, 4))(
        simulate, jax.tree.map(jnp.asarray, space), rows.T, len(starts), _CHAINS, key
    )


def _numbers(space: chains.Space, state: chains.State) -> dict[str, float]:
    """How often which kind of order is drawn, to be logged."""
    share = np.asarray(chains.share(space, state))
    return {f"share_{kind}": float(s) for kind, s in zip(orders.KINDS, share, strict=True)}
