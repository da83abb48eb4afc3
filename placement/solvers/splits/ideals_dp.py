"""Dynamic programs over ideals for `max_load` (Tarnawski et al. 2020, arXiv 2006.16423, section 4).

Let I be an ideal, and n the number of devices of every type that may be used. The least load of the
busiest device that computes I is

    (1)  dp({}, n) = 0
    (2)  dp(I, n)  = min over ideals A < I and types k with n_k > 0 of
                     max(dp(A, n - e_k), load of I - A on a device of type k),

inf if the device does not support or cannot hold I - A. The optimum is dp(V, all devices). Devices
may stay empty. The paper has two types, accelerators and CPU cores; here devices that cost the same
are one type.

`ideals_dp` uses all ideals and so is exact for contiguous placements. `linearised_dp` uses the
prefixes of one topological order (the paper's DPL). That is a restriction, but there are only V + 1
prefixes, while the ideals may be exponentially many.

Departures from the paper: the value of the linearised program bounds the optimum before the search.
A state is dropped if it exceeds the bound, or if the remaining computation would, even if spread
evenly over the remaining devices. No such state leads to a better placement. Replicated parts (the
paper's appendix) do not exist in `max_load` and are left out.
"""

import itertools
import math

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.problem import Problem
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import contiguous
from placement.solvers.splits import ideals as ideals_lib
from placement.solvers.splits.contiguous import DeviceTypes
from placement.solvers.splits.ideals import Ideals, VertexGraph
from placement.types import Solution, Status

MAX_STATES = 50_000_000  # pairs of an ideal and numbers of devices, 8 bytes each
_GUESS_RATIO, _NUM_GUESSES = 1.2, 10  # of the value over an even load: 1.2, 1.2 ** 2, ...
_BLOCK_PAIRS = 2_000_000  # pairs of ideals in memory at a time
_SLACK = 1 + 1e-9  # an optimum may equal the bound but for rounding
_NO_BOUND_S = 1e300  # finite, so that no devices times no bound is 0


def ideals_dp(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """A dynamic program over ideals: the best contiguous placement, with proof.

    The time limit is checked between levels. If it ends the search, the linearised program's
    placement is returned.

    Raises:
      UserError: there are too many ideals or states, or see `contiguous.build_vertex_graphs`.
    """
    base.report_single_device(problem, limits)
    return _solve(problem, limits)


def _solve(problem: Problem, limits: SearchLimits) -> Solution:
    types, vertex_graphs = contiguous.build_vertex_graphs(problem)
    name = problem.graph.name
    lattices = [ideals_lib.enumerate_ideals(vertices, name) for vertices in vertex_graphs]
    best = _linearise(types, vertex_graphs, limits)
    for vertices, lattice in zip(vertex_graphs, lattices, strict=True):
        best = _choose_better(best, search(vertices, types, lattice, best.value_s, limits))
    best = best._replace(scope=base.CONTIGUOUS)
    if best.status == Status.TIME_LIMIT:
        return best
    status = Status.INFEASIBLE if best.placement is None else Status.OPTIMAL
    return best._replace(bound_s=best.value_s, status=status)


def dp_split(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """The split of `ideals_dp` for `max_load`, under `subgraph` (Tarnawski et al. 2020).

    Raises:
      UserError: as `ideals_dp`.
    """
    result = _solve(problem._replace(objective="max_load"), limits)
    status = Status.FINISHED if result.status == Status.OPTIMAL else Status.TIME_LIMIT
    return Solution(result.placement, status=status)


def linearised_dp(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """A dynamic program over one topological order, cut into segments: contiguous.

    Raises:
      UserError: see `contiguous.build_vertex_graphs`.
    """
    return _linearise(*contiguous.build_vertex_graphs(problem), limits)


def _linearise(
    types: DeviceTypes, vertex_graphs: list[VertexGraph], limits: SearchLimits
) -> Solution:
    """Finds the best split of prefixes of a depth-first order, or the best single device."""
    vertices, best = vertex_graphs[0], Solution(None, np.inf)
    total_s = vertices.compute_s.sum(axis=0)
    total_s[vertices.memory_bytes.sum() > types.capacity_bytes] = np.inf
    k = int(total_s.argmin())
    if np.isfinite(total_s[k]):
        placement = np.full(len(vertices.vertex_ids), types.devices[k][0])
        best = Solution(placement, float(total_s[k]))
    for vertices in vertex_graphs:
        ends = vertices.predecessors, vertices.successors
        order = dag.depth_first_order(vertices.num_vertices, *ends)
        sizes = np.arange(len(order) + 1)  # of the prefixes of the order
        lattice = Ideals(np.argsort(order) < sizes[:, None], np.arange(len(order) + 2))
        # Low bounds are tried first, because they leave few states. The last one always holds.
        seconds = vertices.compute_s.min(axis=1)
        even_s = max(seconds.max(), seconds.sum() / sum(types.sizes))
        guesses_s = even_s * _GUESS_RATIO ** np.arange(1, _NUM_GUESSES)
        for bound_s in [*guesses_s[guesses_s < best.value_s].tolist(), best.value_s]:
            split = search(vertices, types, lattice, bound_s, limits)
            best = _choose_better(best, split)
            if split.placement is not None or split.status == Status.TIME_LIMIT:
                break
    return best


def _choose_better(first: Solution, second: Solution) -> Solution:
    better = second if second.value_s < first.value_s else first
    is_late = Status.TIME_LIMIT in (first.status, second.status)
    return better._replace(status=Status.TIME_LIMIT if is_late else Status.FINISHED)


def search(
    vertices: VertexGraph,
    types: DeviceTypes,
    lattice: Ideals,
    bound_s: float,
    limits: SearchLimits,
) -> Solution:
    """Finds the best split whose ideals are in the lattice, no worse than the bound.

    Args:
      vertices: the graph of V vertices.
      types: the device types.
      lattice: ideals of the graph, among them the empty one and the whole graph.
      bound_s: an upper bound of the value.
      limits: the time limit.

    Returns:
      The split with its load; None and inf if there is none, or if the time is over.

    Raises:
      UserError: the machine has too many types of devices for this many ideals.
    """
    shape = tuple(count + 1 for count in types.sizes)
    num_ideals, num_states = len(lattice.members), int(np.prod(shape, dtype=float))
    if num_ideals * num_states > MAX_STATES:
        raise UserError(
            f"{num_ideals} ideals and {num_states} ways to use {sum(types.sizes)} devices of "
            f"{len(shape)} kinds are more than {MAX_STATES} states; use fewer kinds of devices"
        )
    upper_s = min(bound_s, _NO_BOUND_S) * _SLACK
    if (vertices.compute_s > upper_s).all(axis=1).any():
        return Solution(None, np.inf)

    def sum_members(members: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Sums float64 [L, *]: values [V, *] over the members, some ideals at a time."""
        pieces = np.array_split(members, -(-members.size // _BLOCK_PAIRS))
        return np.concatenate([piece.astype(float) @ values for piece in pieces])

    # A vertex that alone exceeds the bound counts as unsupported: its cost, which may be huge or
    # inf, would drown the others in a sum.
    is_supported = vertices.compute_s <= upper_s
    finite_s = np.where(is_supported, vertices.compute_s, 0.0)
    # Sums over the members of the L ideals; the remaining vertices count each at its fastest.
    compute_s = sum_members(lattice.members, finite_s).T  # [K, L]
    num_unsupported = sum_members(lattice.members, ~is_supported).T
    memory_bytes = sum_members(lattice.members, vertices.memory_bytes)  # [L]
    remaining_s = sum_members(~lattice.members, vertices.compute_s.min(axis=1))
    packed = np.packbits(lattice.members, axis=1)  # the ideals as sets of bits, whole words of them
    packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
    terms = ideals_lib.build_terms(vertices, lattice)
    # A state is a number of devices of each type, int [S, K]. States that differ by one device of
    # type k are `strides[k]` apart.
    counts = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    strides = np.cumprod([1, *shape[:0:-1]])[::-1].tolist()

    def find_segments(
        outer: np.ndarray, inner: np.ndarray, upper_s: float
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Returns the segments between ideals that a device of each type can take, and their loads.

        The result is, for each type, the outer ideals in ascending order, the inner ideals, and the
        loads within the bound.
        """
        is_segment = remaining_s[inner] - remaining_s[outer, None] <= upper_s
        is_segment &= ideals_lib.is_subset(packed, outer, inner)
        traffic_s = ideals_lib.compute_traffic_s(terms, outer, inner)[:, is_segment]
        row, column = np.nonzero(is_segment)
        large, small = outer[row], inner[column]
        used_bytes = memory_bytes[large] - memory_bytes[small]
        segments = []
        for k, capacity_bytes in enumerate(types.capacity_bytes):
            load_s = traffic_s[k] + (compute_s[k, large] - compute_s[k, small])
            fits = (load_s <= upper_s) & (used_bytes <= capacity_bytes)
            fits &= num_unsupported[k, large] == num_unsupported[k, small]
            segments.append((large[fits], small[fits], load_s[fits]))
        return segments

    best_s = np.full((num_ideals, num_states), np.inf)  # dp(I, n)
    best_s[0] = 0.0
    num_left = counts[-1].sum() - counts.sum(axis=1)
    for first, end in itertools.pairwise(lattice.level_starts[1:].tolist()):
        if limits.is_over():
            return Solution(None, np.inf, status=Status.TIME_LIMIT)
        # Line (2) for the ideals of one size; the rows of smaller ones are filled.
        level = np.arange(first, end)
        level = level[remaining_s[level] <= num_left.max() * upper_s]
        if not len(level):
            continue
        smaller = np.flatnonzero(np.isfinite(best_s[: level[0]]).any(axis=1))
        smaller = smaller[remaining_s[smaller] <= remaining_s[level].max() + upper_s]
        num_blocks = -(-len(level) * len(smaller) // _BLOCK_PAIRS)
        for rows in np.array_split(level, num_blocks) if num_blocks else ():
            for k, (outer, inner, load_s) in enumerate(find_segments(rows, smaller, upper_s)):
                if not len(outer):
                    continue
                ideals, starts = np.unique(outer, return_index=True)
                for state in np.flatnonzero(counts[:, k]).tolist():
                    segment_s = np.maximum(best_s[inner, state - strides[k]], load_s)
                    min_s = np.minimum.reduceat(segment_s, starts)
                    best_s[ideals, state] = np.minimum(best_s[ideals, state], min_s)
        level_s = best_s[level]
        level_s[remaining_s[level, None] > num_left * upper_s] = np.inf
        best_s[level] = level_s
    value_s = float(best_s[-1, -1])
    if np.isinf(value_s):
        return Solution(None, np.inf)

    # The devices int [V] on the way back from all vertices and devices to none.
    placement = np.empty(lattice.members.shape[1], int)
    ideal, state = num_ideals - 1, num_states - 1
    while ideal > 0:
        smaller = np.flatnonzero(np.isfinite(best_s[:ideal]).any(axis=1))
        options = []
        for k, (_, inner, load_s) in enumerate(find_segments(np.array([ideal]), smaller, np.inf)):
            if counts[state, k] and len(inner):
                segment_s = np.maximum(best_s[inner, state - strides[k]], load_s)
                index = int(segment_s.argmin())
                options.append((float(segment_s[index]), k, int(inner[index])))
        _, k, smaller_ideal = min(options)
        device = types.devices[k][counts[state, k] - 1]
        placement[lattice.members[ideal] & ~lattice.members[smaller_ideal]] = device
        ideal, state = smaller_ideal, state - strides[k]
    return Solution(placement[vertices.vertex_ids], value_s)
