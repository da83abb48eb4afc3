"""PipeDream's planner, a baseline for `max_load` (Narayanan et al., SOSP 2019, section 3.1).

A network is a chain of layers and its workers are identical. With T(i, j) the time of layers i + 1
to j and C_i that of what crosses after layer i, the pace of the first j layers on m workers is

    A(j, m) = min over i of max(A(i, m - 1), C_i, T(i, j)),        A(0, m) = 0.

It takes transfers to overlap with computing, where `max_load` adds them up, so what it plans is
contiguous but not the best such placement. Departures:

- No stage is replicated: a placement names one device an operation.
- The chain is a topological order of the vertices (`dag.depth_first_order`), and C_i sums
  the tensors that cross there, however far they reach. To contract what runs in parallel into one
  layer, which would make the graph a chain, may leave little to plan: in a translation network the
  decoder's embedding runs beside the encoder, all of which would be one layer.
- Instead of twice the activations, for a gradient of equal size, C_i has both passes' own tensors.
- Workers are the largest set of accelerators that cost the same, of hosts where there is no
  accelerator; other devices stay empty. Their memory and what they support limit a stage.
"""

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import contiguous
from placement.solvers.splits.contiguous import Split
from placement.types import Solution, Status


def pipedream(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """PipeDream's planner (Narayanan et al. 2019): a chain of stages.

    Raises:
      UserError: see `contiguous.splits`.
    """
    del seed
    types, splits = contiguous.splits(problem)
    accelerator = np.asarray(problem.costs.accelerator) >= 0
    k = max(
        range(len(types.sizes)), key=lambda k: (accelerator[types.devices[k][0]], types.sizes[k])
    )
    workers = types.devices[k]
    best_s, placement = np.inf, None
    for split in splits:
        order = dag.depth_first_order(split.num_vertices, split.before, split.after)
        stage_s = _stages_s(split, order, k, types.capacity_bytes[k])
        planned = _plan(stage_s, _boundaries_s(split, order, k), len(workers), limits)
        if planned is None:
            return Solution(placement, status=Status.TIME_LIMIT)
        pace_s, stage = planned
        if pace_s < best_s:
            best_s, device = pace_s, np.empty(split.num_vertices, int)
            device[order] = workers[stage]
            placement = device[split.number]
    return Solution(placement)


def _stages_s(split: Split, order: np.ndarray, k: int, capacity_bytes: float) -> np.ndarray:
    """Computes float64 [V + 1, V + 1]: T(i, j); inf below the diagonal or not runnable."""
    compute_s = split.compute_s[order, k]
    finite = np.isfinite(compute_s)
    grows = np.stack([np.where(finite, compute_s, 0.0), ~finite, split.memory_bytes[order]])
    until = np.pad(np.cumsum(grows, axis=1), ((0, 0), (1, 0)))
    time_s, unsupported, bytes_ = until[:, None, :] - until[:, :, None]
    barred = (unsupported > 0) | (bytes_ > capacity_bytes)
    barred |= np.tri(len(time_s), k=-1, dtype=bool)
    return np.where(barred, np.inf, time_s)


def _boundaries_s(split: Split, order: np.ndarray, k: int) -> np.ndarray:
    """Returns float64 [V + 1]: C_i, of each tensor the dearer of sending and receiving it."""
    rank = np.argsort(order)
    first, last = rank[split.source], rank[split.source]
    np.minimum.at(first, split.tensor, rank[split.reader])
    np.maximum.at(last, split.tensor, rank[split.reader])
    link_s = np.maximum(split.in_s[:, k], split.out_s[:, k])
    cuts = range(len(order) + 1)
    return np.array([link_s[(first < cut) & (last >= cut)].sum() for cut in cuts])


def _plan(
    stages_s: np.ndarray, boundaries_s: np.ndarray, num_workers: int, limits: SearchLimits
) -> tuple[float, np.ndarray] | None:
    """Plans the pace, and int [V]: the worker of each layer; None where the time ran out."""
    pace_s = np.full(len(stages_s), np.inf)
    pace_s[0] = 0.0
    cuts = []
    for _ in range(num_workers):
        if limits.over():
            return None
        reached_s = np.maximum(np.maximum(pace_s, boundaries_s)[:, None], stages_s)
        cuts.append(reached_s.argmin(axis=0))
        pace_s = reached_s.min(axis=0)
    workers = np.empty(len(stages_s) - 1, int)
    end = len(workers)
    for worker in reversed(range(num_workers)):
        start = cuts[worker][end]
        workers[start:end] = worker
        end = start
    return float(pace_s[-1]), workers
