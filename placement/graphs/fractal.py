"""The fractal dimension of a node: how fast the graph opens up around it.

On the undirected graph let B_v(r) be the number of nodes within r hops of v, v itself included
(B_v(0) = 1). Where B_v(r) grows like r ** d, log B_v(r) is a line over log r with slope d. The
fractal dimension of v is the least-squares slope over the radii r = 1 .. R_v,

    d_v = sum_r (x_r - mean x) * log B_v(r) / sum_r (x_r - mean x) ** 2,    x_r = log r,

where R_v is the eccentricity of v in its connected component: beyond it B_v no longer grows. With
fewer than two radii no slope exists, and d_v is 0. Parallel edges count once.

Source: the local fractal features of Duan et al. 2024 (HSDAG), section 2.2; the degenerate case is
that of the authors' code. That code follows edges forwards only, and does not count v itself:
`directed`. Departure: in graphs with more than `exact_limit` nodes R_v is at most
`radius`, because all eccentricities take O(N * E); the cost is then that of the balls alone.
"""

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.types import OpGraph

_BLOCK = 2_000  # nodes whose balls are grown together: bounds memory, not the result


def fractal_dimension(
    graph: OpGraph, *, directed: bool = False, exact_limit: int = 2_000, radius: int = 8
) -> np.ndarray:
    """Computes the slope of log(nodes within r hops) against log r for every operation.

    Args:
      graph: the graph; directions of edges are ignored by default.
      directed: whether hops lead along edges, and the operation itself is not counted.
      exact_limit: up to so many operations every radius counts, with N * N distances in memory.
      radius: the largest radius in graphs above the limit. Eight hops see past the branches of
        usual networks (an Inception block is 5 deep) and stay near linear in N.

    Returns:
      float64 [N]: 0 where the operation has fewer than two radii.
    """
    reached = _reached(graph, directed)
    if graph.num_ops <= exact_limit:
        return _slopes(_all_balls(reached), counted=not directed)
    blocks = range(0, graph.num_ops, _BLOCK)
    balls = (_grown_balls(reached, at, radius) for at in blocks)
    return np.concatenate([_slopes(of_block, counted=not directed) for of_block in balls])


def _reached(graph: OpGraph, directed: bool) -> sparse.csr_array:
    """Returns bool [N, N]: what each node reaches within one hop, itself included."""
    own = np.arange(graph.num_ops)
    rows, columns = np.append(own, graph.senders), np.append(own, graph.receivers)
    if not directed:
        rows, columns = np.append(rows, graph.receivers), np.append(columns, graph.senders)
    ones = np.ones(len(rows), bool)
    return sparse.csr_array((ones, (rows, columns)), shape=(graph.num_ops, graph.num_ops))


def _all_balls(reached: sparse.csr_array) -> np.ndarray:
    """Returns int [N, R + 1]: nodes within r hops for r = 0 .. R, R the largest eccentricity."""
    hops = csgraph.shortest_path(reached, method="D", unweighted=True)
    num_ops = len(hops)
    furthest = int(hops[np.isfinite(hops)].max())
    # One bin a node and distance; the unreachable fall into a bin that is then cut off.
    bins = np.where(np.isfinite(hops), hops, furthest + 1).astype(np.int64)
    bins += np.arange(num_ops)[:, None] * (furthest + 2)
    counts = np.bincount(bins.ravel(), minlength=num_ops * (furthest + 2))
    return np.cumsum(counts.reshape(num_ops, furthest + 2)[:, :-1], axis=1)


def _grown_balls(reached: sparse.csr_array, start: int, radius: int) -> np.ndarray:
    """Counts int [block, radius + 1]: nodes within r = 0 .. radius hops of the block's nodes."""
    ball = reached[start : start + _BLOCK]
    sizes = [np.ones(ball.shape[0], np.int64)]
    for hop in range(1, radius + 1):
        sizes.append(np.diff(ball.indptr))
        if hop < radius:
            ball = ball @ reached
    return np.stack(sizes, axis=1)


def _slopes(balls: np.ndarray, *, counted: bool) -> np.ndarray:
    """Computes the slopes float64 [N] of ball sizes int [N, R + 1], with the node itself or not."""
    growing = np.diff(balls, axis=1) > 0  # exactly the radii 1 .. R_v, as a ball grows until R_v
    num_radii = growing.sum(axis=1)
    x = np.log(np.arange(1, balls.shape[1]))
    mean = np.where(growing, x, 0.0).sum(axis=1) / np.maximum(num_radii, 1)
    centred = np.where(growing, x - mean[:, None], 0.0)
    sizes = np.maximum(balls[:, 1:] - (not counted), 1)  # 0 only where no radius counts
    rise = (centred * np.log(sizes)).sum(axis=1)
    run = (centred**2).sum(axis=1)
    return np.where(num_radii >= 2, rise / np.where(num_radii >= 2, run, 1.0), 0.0)
