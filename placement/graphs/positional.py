"""Sinusoidal encoding of where an operation stands in the computation.

A position p becomes K sines and K cosines of geometrically spaced wavelengths (Vaswani et al. 2017,
section 3.5),

    sin(p / 10000 ** (k / K)),  cos(p / 10000 ** (k / K)),    k = 0 .. K - 1.

Two positions are encoded, half of the dimensions each: the index in the topological order, which
tells operations of parallel branches apart (Duan et al. 2024, section 2.2), and the level, i.e. the
longest path from a source, which does not depend on how the operations happen to be numbered (a
departure). Neither is divided by the size of the graph, so that neighbours differ alike in all.
"""

import numpy as np

from placement.graphs import dag
from placement.types import OpGraph

_LONGEST = 10_000.0  # the angle of one step falls from 1 radian to almost one over this


def positional_encoding(graph: OpGraph, *, dim: int = 16) -> np.ndarray:
    """Encodes each operation's topological index and level.

    Args:
      graph: the graph.
      dim: columns, a multiple of 4.

    Returns:
      float32 [N, dim] in [-1, 1]: sines then cosines of the index, then those of the level.

    Raises:
      ValueError: `dim` is not a positive multiple of 4.
    """
    if dim <= 0 or dim % 4:
        raise ValueError(f"dim is {dim}; give a positive multiple of 4, such as 16")
    index = np.argsort(dag.topological_order(graph))
    halves = [_sinusoids(index, dim // 4), _sinusoids(dag.levels(graph), dim // 4)]
    return np.concatenate(halves, axis=1).astype(np.float32)


def _sinusoids(positions: np.ndarray, num_waves: int) -> np.ndarray:
    angles = positions[:, None] / _LONGEST ** (np.arange(num_waves) / num_waves)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
