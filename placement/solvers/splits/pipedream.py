"""PipeDream's planner, a baseline for `max_load` (Narayanan et al., SOSP 2019, section 3.1).

A network is a chain of layers, and its workers are identical. Let T(i, j) be the time of layers
i + 1 to j, and C_i that of the transfers after layer i. The pace of the first j layers on m workers
is

    (1)  A(0, m) = 0
    (2)  A(j, m) = min over i of max(A(i, m - 1), C_i, T(i, j)).

The planner assumes that transfers overlap with computing, while `max_load` adds them up. So its
plan is contiguous but not the best contiguous placement. Departures:

- No stage is replicated: a placement names one device for each operation.
- The chain is a topological order of the vertices (`dag.depth_first_order`), and C_i sums the
  tensors that cross there, however far they reach. The alternative, to contract parallel operations
  into one layer until the graph is a chain, may leave little to plan: in a translation network the
  decoder's embedding runs next to the encoder, all of which would be one layer.
- C_i has both passes' own tensors instead of twice the activations for a gradient of equal size.
- The workers are the largest set of accelerators that cost the same, or of hosts if there is no
  accelerator. Other devices stay empty. Their memory and supported operations limit a stage.
"""

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import contiguous
from placement.types import Solution, Status


def pipedream(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """PipeDream's planner (Narayanan et al. 2019): a chain of stages.

    Raises:
      UserError: see `contiguous.build_vertex_graphs`.
    """
    types, vertex_graphs = contiguous.build_vertex_graphs(problem)
    is_accelerator = np.asarray(problem.costs.accelerator) >= 0
    k = max(
        range(len(types.sizes)), key=lambda k: (is_accelerator[types.devices[k][0]], types.sizes[k])
    )
    workers = types.devices[k]
    best_s, placement = np.inf, None
    for vertices in vertex_graphs:
        ends = vertices.predecessors, vertices.successors
        order = dag.depth_first_order(vertices.num_vertices, *ends)

        # T(i, j), float64 [V + 1, V + 1]: inf below the diagonal and where a worker cannot run it.
        compute_s = vertices.compute_s[order, k]
        is_supported = np.isfinite(compute_s)
        addends = np.where(is_supported, compute_s, 0.0), ~is_supported
        sums = np.cumsum(np.stack([*addends, vertices.memory_bytes[order]]), axis=1)
        sums = np.pad(sums, ((0, 0), (1, 0)))
        stage_s, num_unsupported, used_bytes = sums[:, None, :] - sums[:, :, None]
        is_impossible = (num_unsupported > 0) | (used_bytes > types.capacity_bytes[k])
        is_impossible |= np.tri(len(stage_s), k=-1, dtype=bool)
        stage_s = np.where(is_impossible, np.inf, stage_s)

        # C_i, float64 [V + 1], with the slower of sending and receiving for each tensor.
        rank = np.argsort(order)
        first, last = rank[vertices.source], rank[vertices.source]
        np.minimum.at(first, vertices.read_tensor, rank[vertices.reader])
        np.maximum.at(last, vertices.read_tensor, rank[vertices.reader])
        link_s = np.maximum(vertices.receive_s[:, k], vertices.send_s[:, k])
        cuts = range(len(order) + 1)
        crossing_s = np.array([link_s[(first < cut) & (last >= cut)].sum() for cut in cuts])

        pace_s = np.full(len(stage_s), np.inf)  # A(j, m) for the current m
        pace_s[0] = 0.0
        stage_starts = []
        for _ in workers:
            if limits.is_over():
                return Solution(placement, status=Status.TIME_LIMIT)
            values_s = np.maximum(np.maximum(pace_s, crossing_s)[:, None], stage_s)
            stage_starts.append(values_s.argmin(axis=0))
            pace_s = values_s.min(axis=0)
        if pace_s[-1] < best_s:
            best_s, end = float(pace_s[-1]), vertices.num_vertices
            devices = np.empty(end, int)
            for worker, starts in zip(reversed(workers), reversed(stage_starts), strict=True):
                devices[order[starts[end] : end]] = worker
                end = starts[end]
            placement = devices[vertices.vertex_ids]
    return Solution(placement)
