"""Balanced graph partitioning, the classical baselines that know nothing of direction or time.

Mirhoseini et al. 2017 compare with Scotch, which takes "the computational cost of each operation,
the flow of data through each edge, and the compute and communication capacities of devices", and
with MinCut, the same without the CPU. The graph loses its directions: a vertex is a class of
co-located operations, an edge joins two classes that exchange tensors,

    vertex weight = sum over the class of the mean of compute_s over the devices that support it,
    edge weight   = bytes of the distinct tensors between the two classes,

both scaled to whole numbers, at least 1, that sum to about `_TOTAL`. Wanted is the least weight of
cut edges such that device d has about the share of all vertex weight that it can do per second,

    share(d) ~ weight of the classes that d supports / seconds that they take on d.

What partitioners do not know, a placement may violate: that d does not support an operation is
repaired afterwards (`_repaired`), that its memory is full is left to the simulator to report.
The objective is never looked at: whatever it is, the placement is the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse

from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base
from placement.types import CostModel

_TOTAL = 10**7  # sums, twice for edges, stay far below 2**31, as 32-bit partitioners need
_SHARES = 1000  # shares are whole numbers that sum to about this, at least 1
_ECO = 1  # KaHIP's preconfiguration between fast and strong


class Weighted(NamedTuple):
    """An undirected graph with C vertices, whose numbers are the co-location classes."""

    weights: np.ndarray  # int64 [C], positive
    adjacency: sparse.csr_array  # int64 [C, C]: symmetric, positive edge weights, no self loops


# (graph, shares int64 [K], seed) -> int [C] below K: the part of every vertex; K is 2 to C.
Partitioner = Callable[[Weighted, np.ndarray, int], np.ndarray]


def metis(problem: Instance, *, seed: int = 0) -> np.ndarray:
    """METIS (Karypis and Kumar 1998): all devices' shares, few bytes cut.

    Where one class outweighs a whole part, METIS may leave parts empty, and says so on stdout.

    Raises:
      UserError: pymetis is not installed.
    """
    return _place(problem, np.arange(len(problem.devices)), _metis, seed)


def kahip(problem: Instance, *, seed: int = 0) -> np.ndarray:
    """KaFFPa of KaHIP (Sanders and Schulz 2013): equal parts, few bytes cut.

    It takes no shares: all parts are equal, within its customary 3 %, however slow a device is.

    Raises:
      UserError: kahip is not installed.
    """
    return _place(problem, np.arange(len(problem.devices)), _kahip, seed)


def scotch(problem: Instance, *, gmap: Callable[[str], str], seed: int = 0) -> np.ndarray:
    """Scotch (Pellegrini and Roman 1996): all devices' shares, few bytes cut.

    Mirhoseini et al. also give Scotch the links' capacities; the architecture here, a complete
    graph, has equal links. Scotch has no seed: the seed shuffles its vertices.

    Args:
      problem: what is to be placed.
      gmap: the program: standard input to standard output (`placement.runtime.scotch.gmap`).
      seed: of the shuffle.

    Raises:
      UserError: of `gmap` or `from_scotch`.
    """

    def partition(graph: Weighted, shares: np.ndarray, seed: int) -> np.ndarray:
        order = np.random.default_rng(seed).permutation(len(graph.weights))
        shuffled = Weighted(graph.weights[order], graph.adjacency[order][:, order])
        parts = np.empty(len(order), int)
        parts[order] = from_scotch(gmap(to_scotch(shuffled, shares)), len(order), len(shares))
        return parts

    return _place(problem, np.arange(len(problem.devices)), partition, seed)


def min_cut(problem: Instance, *, seed: int = 0) -> np.ndarray:
    """The papers' MinCut: METIS, which leaves out the CPU.

    The host gets only what no accelerator supports; where there is no accelerator, every device
    takes part. Departure from Mirhoseini et al. 2017: the partitioner is METIS even where Scotch is
    installed, so that the result is the same on every machine.

    Raises:
      UserError: pymetis is not installed.
    """
    accelerators = np.flatnonzero(np.asarray(problem.costs.accelerator) >= 0)
    devices = accelerators if len(accelerators) else np.arange(len(problem.devices))
    return _place(problem, devices, _metis, seed)


def to_scotch(graph: Weighted, shares: np.ndarray) -> str:
    """Writes what Scotch's `gmap - - -` reads: a source graph, then the target architecture.

    A graph is its version (0), the numbers of vertices and of arcs, the base of the numbering and
    three flags (no labels, which Scotch would allocate up to the largest of; arc weights; vertex
    weights); then a line for each vertex: its weight, its degree, and each arc's weight and end.
    The architecture is complete, with one weight a part: `shares`, whole numbers [D].
    """
    chex.assert_rank(shares, 1)
    chex.assert_type(shares, int)
    adjacency = graph.adjacency
    lines = ["0", f"{len(graph.weights)} {adjacency.nnz}", "0 011"]
    arcs = np.stack([adjacency.data, adjacency.indices], axis=1)
    rows = np.split(arcs, adjacency.indptr[1:-1])
    for weight, row in zip(graph.weights.tolist(), rows, strict=True):
        lines.append(" ".join(map(str, [weight, len(row), *row.ravel().tolist()])))
    lines.append(" ".join(map(str, ["cmpltw", len(shares), *shares.tolist()])))
    return "\n".join(lines) + "\n"


def from_scotch(text: str, num_vertices: int, num_parts: int) -> np.ndarray:
    """Reads the part of every vertex, int [C], of a mapping that Scotch wrote.

    A mapping is the number of vertices, then a line for each: its number and its part.

    Raises:
      UserError: it is no mapping of all vertices to parts.
    """
    words = text.split()
    if all(word.isdecimal() for word in words) and len(words) == 2 * num_vertices + 1:
        pairs = np.array(words[1:], int).reshape(-1, 2)
        vertices, parts = pairs[np.argsort(pairs[:, 0])].T
        if np.array_equal(vertices, np.arange(num_vertices)) and (parts < num_parts).all():
            return parts
    raise UserError(
        f"Scotch wrote {text[:40]!r}..., which maps not every vertex of {num_vertices} to a part "
        f"below {num_parts}; is the program that was run Scotch's gmap?"
    )


def _place(problem: Instance, devices: np.ndarray, partition: Partitioner, seed: int) -> np.ndarray:
    """Partitions over some devices, lifts to operations and repairs: int32 [N]."""
    number, seconds = problem.classes.ids, problem.classes.compute_s
    useful = devices[np.isfinite(seconds[:, devices]).any(axis=0)]
    devices = useful if len(useful) else devices
    load = _mean_seconds(problem.costs, number, devices)
    shares = _shares(load, seconds[:, devices])
    if len(devices) > len(load):  # parts would be empty: the fastest devices are enough
        fastest = np.sort(np.argsort(-shares, kind="stable")[: len(load)])
        devices, shares = devices[fastest], shares[fastest]
    parts = np.zeros(len(load), int)
    if len(devices) > 1:
        parts = np.asarray(partition(_weighted(problem, number, load), shares, seed))
    return _repaired(devices[parts], seconds, devices)[number].astype(np.int32)


def _mean_seconds(costs: CostModel, number: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """Sums float64 [C]: means of operations over devices that support them, by class."""
    compute_s = np.asarray(costs.compute_s, np.float64)[:, devices]
    supported = np.isfinite(compute_s)
    total = np.where(supported, compute_s, 0.0).sum(axis=1)
    return np.bincount(number, total / np.maximum(supported.sum(axis=1), 1))


def _shares(load: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Returns int64 [K]: what each device should get of the load [C], of its seconds [C, K]."""
    supported = np.isfinite(seconds)
    work = np.where(supported, load[:, None], 0.0).sum(axis=0)
    spent = np.where(supported, seconds, 0.0).sum(axis=0)
    # A device that computes for free counts as `_SHARES` times faster than the mean.
    speed = work / np.where(work > 0, np.maximum(spent, work / _SHARES), 1.0)
    return _whole(speed, _SHARES)


def _weighted(problem: Instance, number: np.ndarray, load: np.ndarray) -> Weighted:
    """Makes the graph of the classes; a tensor that a class reads several times counts once."""
    graph = problem.graph
    ends = np.sort(number[np.stack([graph.senders, graph.receivers])], axis=0)
    keys = np.stack([*ends, graph.tensors])
    _, edges = np.unique(keys, axis=1, return_index=True)
    edges = edges[ends[0, edges] != ends[1, edges]]
    shape = (len(load), len(load))
    upper = sparse.coo_array((graph.edge_bytes[edges], tuple(ends[:, edges])), shape).tocsr()
    upper.data = _whole(upper.data, _TOTAL)
    return Weighted(_whole(load, _TOTAL), (upper + upper.T).tocsr())


def _whole(values: np.ndarray, total: int) -> np.ndarray:
    """Scales to int64, at least 1, of about this sum; all 1 where there is nothing."""
    if not values.any():
        return np.ones(len(values), np.int64)
    return np.maximum(np.rint(values / values.sum() * total), 1).astype(np.int64)


def _repaired(placement: np.ndarray, seconds: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """Returns int [C]: a class on a device that cannot run it goes to the fastest that can.

    The devices that took part come first; if none of them can run it, any other will do. What no
    device supports stays, and the simulator reports it.
    """
    rows = np.arange(len(placement))
    for candidates in (devices, np.arange(seconds.shape[1])):
        best = candidates[seconds[:, candidates].argmin(axis=1)]
        stuck = ~np.isfinite(seconds[rows, placement]) & np.isfinite(seconds[rows, best])
        placement = np.where(stuck, best, placement)
    return placement


def _metis(graph: Weighted, shares: np.ndarray, seed: int) -> np.ndarray:
    try:
        import pymetis
    except ImportError as error:
        raise base.missing("pymetis") from error
    adjacency = graph.adjacency
    _, parts = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
        vweights=graph.weights,
        eweights=adjacency.data,
        tpwgts=(shares / shares.sum()).tolist(),
        options=pymetis.Options(seed=seed),
    )
    return np.array(parts)


def _kahip(graph: Weighted, shares: np.ndarray, seed: int) -> np.ndarray:
    try:
        import kahip
    except ImportError as error:
        raise base.missing("kahip") from error
    adjacency = graph.adjacency
    csr = (adjacency.indptr, adjacency.data, adjacency.indices)
    _, parts = kahip.kaffpa(graph.weights, *csr, len(shares), 0.03, True, seed, _ECO)
    return np.array(parts)
