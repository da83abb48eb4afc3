"""Balanced graph partitioning: classical baselines that ignore directions and time.

Mirhoseini et al. 2017 compare with Scotch, which takes "the computational cost of each operation,
the flow of data through each edge, and the compute and communication capacities of devices", and
with MinCut, the same without the CPU. The graph becomes undirected: a vertex is a decision, an
edge joins two decisions that exchange tensors,

    vertex weight = sum over operations of the mean of compute_s over the devices that support one,
    edge weight   = bytes of the distinct tensors between the two decisions,

both scaled to whole numbers, at least 1, that sum to about `_TOTAL`. The partitioner minimises the
weight of cut edges while each device d gets about its share of the vertex weight, according to its
speed,

    share(d) ~ weight of the decisions that d supports / seconds that they take on d.

Partitioners ignore that a device may not support an operation, which is repaired afterwards, and
that its memory may be full, which the simulator reports. The placement does not depend on the
objective.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse

from placement.errors import import_extra
from placement.problem import Problem
from placement.simulators import ranks
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_TOTAL = 10**7  # of weights: twice that, for edges, is far below 2**31 of 32-bit partitioners
_SHARES = 1000  # shares are whole numbers that sum to about this, at least 1


class WeightedGraph(NamedTuple):
    """An undirected graph with C vertices, whose numbers are the decisions."""

    weights: np.ndarray  # int64 [C], positive
    adjacency: sparse.csr_array  # int64 [C, C]: symmetric, positive edge weights, no self loops


# (graph, shares int64 [K], seed) -> int [C] below K: the part of every vertex; K is 2 to C.
Partitioner = Callable[[WeightedGraph, np.ndarray, int], np.ndarray]


def metis(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """METIS (Karypis and Kumar 1998): shares by device speed, few bytes cut.

    If one decision outweighs a whole part, METIS may leave parts empty, and prints that to stdout.

    Raises:
      UserError: pymetis is not installed.
    """
    return _place(problem, np.arange(len(problem.devices)), _metis, seed)


def scotch(
    problem: Problem, seed: int, limits: SearchLimits, *, gmap: Callable[[str], str]
) -> Solution:
    """Scotch (Pellegrini and Roman 1996): shares by device speed, few bytes cut.

    Mirhoseini et al. also give Scotch the capacities of the links. Here the architecture is a
    complete graph with equal links. Scotch has no seed; the seed shuffles its vertices instead.

    Args:
      problem, seed, limits: as of every method; the seed is that of the shuffle.
      gmap: the program, from standard input to standard output
        (`placement.runtime.scotch.run_gmap`).

    Raises:
      UserError: as raised by `gmap`.
    """

    def partition(graph: WeightedGraph, shares: np.ndarray, seed: int) -> np.ndarray:
        order = np.random.default_rng(seed).permutation(len(graph.weights))
        shuffled = WeightedGraph(graph.weights[order], graph.adjacency[order][:, order])
        parts = np.empty(len(order), int)
        parts[order] = from_scotch(gmap(to_scotch(shuffled, shares)), len(order), len(shares))
        return parts

    return _place(problem, np.arange(len(problem.devices)), partition, seed)


def min_cut(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """The papers' MinCut: METIS without the CPU.

    The host gets only the operations that no accelerator supports. Without an accelerator, all
    devices take part. Departure from Mirhoseini et al. 2017: the partitioner is METIS, even if
    Scotch is installed, so that the result is the same on every machine.

    Raises:
      UserError: pymetis is not installed.
    """
    accelerators = np.flatnonzero(np.asarray(problem.costs.accelerator) >= 0)
    devices = accelerators if len(accelerators) else np.arange(len(problem.devices))
    return _place(problem, devices, _metis, seed)


def to_scotch(graph: WeightedGraph, shares: np.ndarray) -> str:
    """Returns the input of Scotch's `gmap - - -`: a source graph, then the target architecture.

    A graph starts with its version (0), the numbers of vertices and of arcs, the base of the
    numbering and three flags: no labels, arc weights, vertex weights. A line for each vertex
    follows: its weight, its degree, and each arc's weight and end.

    Args:
      graph: C vertices.
      shares: int [K]: the weights of the architecture's parts, each linked to each.
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
    """Reads the part of every vertex, int [C], from the output of Scotch.

    The output is the number of vertices, then a line for each: its number and its part.

    Raises:
      RuntimeError: the text does not map every vertex to a part.
    """
    words = text.split()
    if all(word.isdecimal() for word in words) and len(words) == 2 * num_vertices + 1:
        pairs = np.array(words[1:], int).reshape(-1, 2)
        vertices, parts = pairs[np.argsort(pairs[:, 0])].T
        if np.array_equal(vertices, np.arange(num_vertices)) and (parts < num_parts).all():
            return parts
    raise RuntimeError(
        f"Scotch's output {text[:40]!r}... does not map each of {num_vertices} vertices to a part "
        f"below {num_parts}; check that the program that was run is Scotch's gmap"
    )


def _place(problem: Problem, devices: np.ndarray, partition: Partitioner, seed: int) -> Solution:
    """Partitions the decisions over some devices and repairs the result."""
    decision, decision_s = problem.decision, problem.decisions.compute_s
    useful = devices[np.isfinite(decision_s[:, devices]).any(axis=0)]
    devices = useful if len(useful) else devices
    compute_s = np.asarray(problem.costs.compute_s, np.float64)[:, devices]
    work_s = np.bincount(decision, ranks.finite_mean(compute_s))  # float64 [C]
    supported = np.isfinite(decision_s[:, devices])
    supported_work_s = np.where(supported, work_s[:, None], 0.0).sum(axis=0)
    spent_s = np.where(supported, decision_s[:, devices], 0.0).sum(axis=0)
    # A device that computes in no time counts as `_SHARES` times faster than the mean.
    speed = supported_work_s / np.where(
        supported_work_s > 0, np.maximum(spent_s, supported_work_s / _SHARES), 1.0
    )
    shares = _scale(speed, _SHARES)
    num_decisions = len(work_s)
    if len(devices) > num_decisions:  # some parts would be empty: use the fastest devices
        fastest = np.sort(np.argsort(-shares, kind="stable")[:num_decisions])
        devices, shares = devices[fastest], shares[fastest]
    parts = np.zeros(num_decisions, int)
    if len(devices) > 1:
        # The graph of the decisions; a tensor that one reads several times counts once.
        graph = problem.graph
        ends = np.sort(decision[np.stack([graph.senders, graph.receivers])], axis=0)
        keys = np.stack([*ends, graph.tensors])
        _, edges = np.unique(keys, axis=1, return_index=True)
        edges = edges[ends[0, edges] != ends[1, edges]]
        shape = (len(work_s), len(work_s))
        upper = sparse.coo_array((graph.edge_bytes[edges], tuple(ends[:, edges])), shape).tocsr()
        upper.data = _scale(upper.data, _TOTAL)
        weighted_graph = WeightedGraph(_scale(work_s, _TOTAL), (upper + upper.T).tocsr())
        parts = np.asarray(partition(weighted_graph, shares, seed))
    placement = devices[parts]
    # A decision for a device that cannot run it goes to the fastest device that can, of those that
    # took part if possible. What no device supports stays, and the simulator reports it.
    index = np.arange(num_decisions)
    for candidates in (devices, np.arange(decision_s.shape[1])):
        best = candidates[decision_s[:, candidates].argmin(axis=1)]
        can_move = ~np.isfinite(decision_s[index, placement]) & np.isfinite(decision_s[index, best])
        placement = np.where(can_move, best, placement)
    return Solution(placement.astype(np.int32), evaluations=1)


def _scale(values: np.ndarray, total: int) -> np.ndarray:
    """Scales values to int64, at least 1, with about the given sum; all 1 if all are zero."""
    if not values.any():
        return np.ones(len(values), np.int64)
    return np.maximum(np.rint(values / values.sum() * total), 1).astype(np.int64)


def _metis(graph: WeightedGraph, shares: np.ndarray, seed: int) -> np.ndarray:
    pymetis = import_extra("pymetis", "solvers")
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
