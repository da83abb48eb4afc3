"""The fractal dimension of a node: how fast its neighbourhood grows with the radius.

On the undirected graph let B_v(r) be the number of nodes within r hops of v, including v itself
(B_v(0) = 1). If B_v(r) grows like r ** d, log B_v(r) is a line over log r with slope d. The fractal
dimension of v is the least-squares slope over the radii r = 1 .. R_v,

    d_v = sum_r (x_r - mean x) * log B_v(r) / sum_r (x_r - mean x) ** 2,    x_r = log r,

where R_v is the eccentricity of v in its connected component, beyond which B_v is constant. With
fewer than two radii no slope exists, and d_v is 0. Parallel edges count once.

Source: the local fractal features of Duan et al. 2024 (HSDAG), section 2.2; the degenerate case is
that of the authors' code. Departure: in graphs with more than `exact_limit` nodes R_v is at most
`radius`, because all eccentricities take O(N * E).
"""

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.types import OpGraph

_BLOCK_NODES = 2_000  # nodes whose balls grow together: limits memory and does not change results


def fractal_dimension(graph: OpGraph, *, exact_limit: int = 2_000, radius: int = 8) -> np.ndarray:
    """Computes the slope of log(nodes within r hops) against log r for every operation.

    Args:
      graph: the graph; directions of edges are ignored.
      exact_limit: up to so many operations every radius counts, with N * N distances in memory.
      radius: the largest radius in graphs above the limit. Eight hops see past the branches of
        usual networks (an Inception block is 5 deep) and stay near linear in N.

    Returns:
      float64 [N]: 0 where the operation has fewer than two radii.
    """
    # bool [N, N]: the nodes within one hop of each, itself included.
    nodes = np.arange(graph.num_ops)
    rows = np.concatenate([nodes, graph.senders, graph.receivers])
    columns = np.concatenate([nodes, graph.receivers, graph.senders])
    ones = np.ones(len(rows), bool)
    neighbours = sparse.csr_array((ones, (rows, columns)), shape=(graph.num_ops, graph.num_ops))
    if graph.num_ops <= exact_limit:
        # int [N, R + 1]: nodes within r hops for r = 0 .. R, R the largest eccentricity.
        hops = csgraph.shortest_path(neighbours, method="D", unweighted=True)
        max_hops = int(hops[np.isfinite(hops)].max())
        # One bin for each node and distance. Unreachable nodes have a bin that is then cut off.
        bins = np.where(np.isfinite(hops), hops, max_hops + 1).astype(np.int64)
        bins += nodes[:, None] * (max_hops + 2)
        counts = np.bincount(bins.ravel(), minlength=graph.num_ops * (max_hops + 2))
        return _fit_slopes(np.cumsum(counts.reshape(-1, max_hops + 2)[:, :-1], axis=1))
    blocks = []
    for start in range(0, graph.num_ops, _BLOCK_NODES):
        ball = neighbours[start : start + _BLOCK_NODES]
        sizes = [np.ones(ball.shape[0], np.int64)]
        for hop in range(1, radius + 1):
            sizes.append(np.diff(ball.indptr))
            if hop < radius:
                ball = ball @ neighbours
        blocks.append(_fit_slopes(np.stack(sizes, axis=1)))
    return np.concatenate(blocks)


def _fit_slopes(balls: np.ndarray) -> np.ndarray:
    """Computes the slopes float64 [N] of ball sizes int [N, R + 1]."""
    is_growing = np.diff(balls, axis=1) > 0  # the radii 1 .. R_v, as a ball grows until R_v
    num_radii = is_growing.sum(axis=1)
    x = np.log(np.arange(1, balls.shape[1]))
    mean = np.where(is_growing, x, 0.0).sum(axis=1) / np.maximum(num_radii, 1)
    centred = np.where(is_growing, x - mean[:, None], 0.0)
    covariance = (centred * np.log(balls[:, 1:])).sum(axis=1)
    variance = (centred**2).sum(axis=1)
    return np.where(num_radii >= 2, covariance / np.where(num_radii >= 2, variance, 1.0), 0.0)
