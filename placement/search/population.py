"""One compiled, anytime search for all objectives: chains from what fast methods find.

What is large under `makespan` is searched by windows (`placement.search.windows`) until they gain
next to nothing, and then as a whole: by chains (`placement.search.chains`) over all classes, from
single devices and what the fast methods of `STARTS` find, or from what the windows found.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.search import chains, orders, windows
from placement.solvers import base, graph_cut
from placement.solvers.heuristics import baechi, greedy, list_scheduling, trivial
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import ideals_dp, pipedream
from placement.types import Problem

_REPORT_S = 0.2  # what a compiled call takes about
_ENUMERATED = 4096  # placements that are all simulated instead
_LARGE = 2_000  # classes, above which windows are searched before the whole
_STARTS_SHARE = 0.2  # of the time, after which no further start is made

# Those that take little time first.
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.find,),
    "makespan": (
        list_scheduling.heft,
        baechi.m_topo,
        list_scheduling.peft,
        baechi.m_etf,
    ),
    "max_load": (pipedream.pipedream, ideals_dp.linearised_dp),
    "subgraph": (greedy.find,),
}


def find(
    problem: Problem,
    seed: int,
    limits: SearchLimits,
    known: base.SearchResult | None = None,
) -> base.SearchResult:
    """A compiled search of blocks, from single devices and what fast methods find.

    Args:
      problem: what is to be placed.
      seed: of all randomness.
      limits: until which it searches. The starts count as evaluations, and a simulation of a
        window as the share of one that its operations are of all.
      known: what another search found, to start from beside these; its evaluations count.
    """
    classes = base.classes(problem)
    if np.log(classes.allowed.sum(axis=1)).sum() <= np.log(_ENUMERATED):
        return trivial.brute_force(problem, seed, limits)
    starts, proven = _starts(problem, classes, seed, limits)
    if proven is not None:
        return proven
    evaluations = len(starts)
    if known is not None:
        evaluations += known.evaluations
    if known is not None and known.placement is not None:
        starts = np.concatenate([starts, known.placement[None]])
    if problem.objective == "makespan" and len(classes.compute_s) > _LARGE:
        within = limits.part(1.0, limits.budget - evaluations, evaluations)
        result = windows.improve(problem, classes, starts, seed, within)
        evaluations += result.evaluations
        if limits.over() or limits.budget - evaluations < chains.CHILDREN:
            return result._replace(evaluations=evaluations)
        if result.placement is not None:
            starts = result.placement[None]
    first = np.unique(classes.number, return_index=True)[1]
    starts = starts[:, first]
    simulate = simulators.objective(problem.objective).simulate_columns
    space, state = _begin(problem, classes, simulate, starts, seed)
    count, status = 1, "finished"

    def tell() -> np.ndarray | None:
        best_s = float(state.best_s)
        best = np.asarray(state.best)[classes.number] if np.isfinite(best_s) else None
        limits.tell(evaluations, best_s, best)
        return best

    best = tell()
    while (left := (limits.budget - evaluations) // chains.CHILDREN) > 0:
        if limits.over():
            status = "time limit"
            break
        count = min(count, left)
        began_s = limits.spent_s()
        state = jax.block_until_ready(chains.advance(simulate, space, state, count))
        evaluations += count * chains.CHILDREN
        step_s = (limits.spent_s() - began_s) / count
        best = tell()
        count = max(1, min(2 * count, int(_REPORT_S / step_s)))
    return base.SearchResult(best, status=status, evaluations=evaluations)


def _starts(
    problem: Problem, classes: base.Classes, seed: int, limits: SearchLimits
) -> tuple[np.ndarray, base.SearchResult | None]:
    """Placements int32 [M, N] to start from; or the optimum, where one of them is proven to be."""
    fastest = classes.compute_s.argmin(axis=1)
    rows = [np.where(able, d, fastest)[classes.number] for d, able in enumerate(classes.allowed.T)]
    gathering = limits.part(_STARTS_SHARE, limits.budget)
    for start in STARTS[problem.objective]:
        if gathering.over():
            break
        result = start(problem, seed, gathering)
        if result.status == "optimal" and result.scope == base.ALL:
            return np.array(rows, np.int32), result
        if result.placement is not None:
            rows.append(result.placement)
    return np.array(rows, np.int32), None


def _begin(
    problem: Problem, classes: base.Classes, simulate: Any, starts: np.ndarray, seed: int
) -> tuple[chains.Space, chains.State]:
    """The space, and chains at the best of the starts int32 [M, C]."""
    limits, of_objective = simulators.tables(problem)
    space = chains.Space(
        tables=(limits._replace(representative=None), of_objective),
        number=None if limits.representative is None else classes.number,
        allowed=classes.allowed,
        memory_bytes=classes.memory_bytes.astype(np.float32),
        excess_s=np.zeros((), np.float32),
        orders=orders.make(problem, classes, np.random.default_rng(seed)),
    )
    # As many as children: the simulator compiles once.
    rows = np.resize(starts, (chains.CHILDREN, starts.shape[1]))
    key = jax.random.key(seed, impl="rbg")  # compiles and draws faster than Threefry
    return jax.jit(chains.begin, static_argnums=0)(
        simulate, jax.tree.map(jnp.asarray, space), rows.T, len(starts), key
    )
