"""Dynamic programs over ideals for `max_load` (Tarnawski et al. 2020, arXiv 2006.16423, section 4).

With I an ideal and n the number of devices of every type that may be used, the least load of the
busiest device that computes I is

    best({}, n) = 0
    best(I, n)  = min over ideals A < I and types k with n_k > 0 of
                  max(best(A, n - e_k), load of I - A on a device of type k),

inf where the device does not support or cannot hold I - A; what is wanted is best(V, all devices).
Devices may stay empty. The paper knows two types, accelerators and CPU cores; here devices that
cost the same are one type. `ideals_dp` takes all ideals and so is exact for contiguous placements.
`linearised_dp` takes the prefixes of one topological order (the paper's DPL): a restriction, but
the prefixes number V + 1 where the ideals may be exponentially many.

Departures from the paper: a bound of the value is known before the search, that of the linearised
program, and a state is left out where it exceeds the bound, or where what remains to be computed,
even if spread evenly over the devices that remain, would. No such state lies on the way to a better
placement. Replicated parts (the paper's appendix) have no place in `max_load` and are left out.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import contiguous, ideals
from placement.solvers.splits.contiguous import DeviceTypes, Split
from placement.solvers.splits.ideals import Ideals
from placement.types import Solution, Status

STATES = 50_000_000  # pairs of an ideal and numbers of devices, 8 bytes each
_FIRST_GUESS, _GUESSES = 1.2, 10  # of a value, as multiple of an even load: 1.2, 1.2 ** 2, ...
_BLOCK = 2_000_000  # pairs of ideals looked at together
_LOOSE = 1 + 1e-9  # an optimum may equal the bound but for rounding
_NO_BOUND_S = 1e300  # finite, so that no devices times no bound is 0


class Best(NamedTuple):
    """The best way to split what is to be split over the devices."""

    value_s: float  # inf where none was found
    placement: np.ndarray | None  # int [N]
    complete: bool = True  # whether the search came to its end


class _Facts(NamedTuple):
    """What the search reads of L ideals, and of S states: numbers of devices of the K types."""

    words: np.ndarray  # uint64 [L, W]: the ideals as bits
    terms: ideals.Terms
    compute_s: np.ndarray  # float64 [K, L]: of an ideal, without what is unsupported
    unsupported: np.ndarray  # float64 [K, L]: how many of its vertices are
    memory_bytes: np.ndarray  # float64 [L]
    rest_s: np.ndarray  # float64 [L]: of what is not in it, each vertex where it computes fastest
    capacity_bytes: np.ndarray  # float64 [K]
    counts: np.ndarray  # int [S, K]
    strides: np.ndarray  # int [K]: how far apart states are that differ by one device


class _Segments(NamedTuple):
    """Pairs of an ideal and one within it, ordered by the first, and a device's load between."""

    outer: np.ndarray  # int [*]
    inner: np.ndarray  # int [*]
    load_s: np.ndarray  # float64 [*]


def ideals_dp(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A dynamic program over ideals: the best contiguous placement, with proof.

    `contiguous` says what that is. Time is looked at between levels; where it ends, the linearised
    program's placement is returned.

    Raises:
      UserError: there are too many ideals or states, or see `contiguous.splits`.
    """
    del seed
    types, splits = contiguous.splits(problem)
    lattices = [_all_ideals(problem, split) for split in splits]
    best = _linearised(types, splits, limits)
    for split, lattice in zip(splits, lattices, strict=True):
        best = _better(best, search(split, types, lattice, best.value_s, limits))
    if not best.complete:
        return Solution(best.placement, status=Status.TIME_LIMIT, scope=base.CONTIGUOUS)
    if best.placement is None:
        return Solution(None, bound_s=np.inf, status=Status.INFEASIBLE, scope=base.CONTIGUOUS)
    return Solution(
        best.placement, bound_s=best.value_s, status=Status.OPTIMAL, scope=base.CONTIGUOUS
    )


def dp_split(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """The split of `ideals_dp` for `max_load`, under `subgraph` (Tarnawski et al. 2020).

    Raises:
      UserError: as `ideals_dp`.
    """
    result = ideals_dp(problem._replace(objective="max_load"), seed, limits)
    status = Status.FINISHED if result.status == Status.OPTIMAL else Status.TIME_LIMIT
    return Solution(result.placement, status=status)


def linearised_dp(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A dynamic program over one topological order, cut into segments: contiguous.

    Raises:
      UserError: see `contiguous.splits`.
    """
    del seed
    best = _linearised(*contiguous.splits(problem), limits)
    return Solution(best.placement, status=Status.FINISHED if best.complete else Status.TIME_LIMIT)


def _all_ideals(problem: Instance, split: Split) -> Ideals:
    lattice = ideals.enumerate_ideals(split)
    if isinstance(lattice, int):
        raise UserError(
            f"graph {problem.graph.name!r} has too many ideals for 'ideals_dp': {lattice} were "
            f"counted, at most {ideals.LIMIT} are taken; use 'linearised_dp'"
        )
    return lattice


def _linearised(types: DeviceTypes, splits: list[Split], limits: SearchLimits) -> Best:
    best = _single(types, splits[0])
    for split in splits:
        order = dag.depth_first_order(split.num_vertices, split.before, split.after)
        lattice = ideals.prefixes(order)
        for bound_s in _guesses(split, types, best.value_s):
            candidate = search(split, types, lattice, bound_s, limits)
            best = _better(best, candidate)
            if candidate.placement is not None or not candidate.complete:
                break
    return best


def _guesses(split: Split, types: DeviceTypes, bound_s: float) -> list[float]:
    """Returns bounds to try in turn, the last of which holds: a low one leaves little."""
    seconds = split.compute_s.min(axis=1)
    even_s = max(seconds.max(), seconds.sum() / sum(types.sizes))
    guesses = even_s * _FIRST_GUESS ** np.arange(1, _GUESSES)
    return [*guesses[guesses < bound_s].tolist(), bound_s]


def _single(types: DeviceTypes, split: Split) -> Best:
    """Finds the best device for everything."""
    total_s = split.compute_s.sum(axis=0)
    total_s[split.memory_bytes.sum() > types.capacity_bytes] = np.inf
    k = int(total_s.argmin())
    if np.isinf(total_s[k]):
        return Best(np.inf, None)
    return Best(float(total_s[k]), np.full(len(split.number), types.devices[k][0]))


def _better(one: Best, other: Best) -> Best:
    winner = other if other.value_s < one.value_s else one
    return winner._replace(complete=one.complete and other.complete)


def search(
    split: Split, types: DeviceTypes, lattice: Ideals, bound_s: float, limits: SearchLimits
) -> Best:
    """Finds the best split whose ideals are in the lattice, no worse than the bound.

    Args:
      split: V vertices.
      types: the devices, those that cost the same together.
      lattice: ideals of the split, the empty one and the whole among them.
      bound_s: what the value must not exceed.
      limits: when to give up; the result is then not `complete`.

    Raises:
      UserError: the machine has too many types of devices for this many ideals.
    """
    shape = tuple(count + 1 for count in types.sizes)
    num_ideals, num_states = len(lattice.member), int(np.prod(shape, dtype=float))
    if num_ideals * num_states > STATES:
        raise UserError(
            f"{num_ideals} ideals and {num_states} ways to use {sum(types.sizes)} devices of "
            f"{len(shape)} kinds are more than {STATES} states; give fewer kinds of devices"
        )
    upper_s = min(bound_s, _NO_BOUND_S) * _LOOSE
    if (split.compute_s > upper_s).all(axis=1).any():
        return Best(np.inf, None)
    facts = _facts(split, types, lattice, shape, upper_s)
    best_s = np.full((num_ideals, num_states), np.inf)
    best_s[0] = 0.0
    for first, end in itertools.pairwise(lattice.starts[1:].tolist()):
        if limits.over():
            return Best(np.inf, None, complete=False)
        _fill(facts, best_s, np.arange(first, end), upper_s)
    value_s = float(best_s[-1, -1])
    if np.isinf(value_s):
        return Best(np.inf, None)
    return Best(value_s, _placement(facts, best_s, types, lattice)[split.number])


def _facts(
    split: Split, types: DeviceTypes, lattice: Ideals, shape: tuple[int, ...], upper_s: float
) -> _Facts:
    # What alone takes too long counts as unsupported: a huge cost would drown others in a sum.
    able = split.compute_s <= upper_s
    compute_s = np.where(able, split.compute_s, 0.0)
    return _Facts(
        words=ideals.packed(lattice),
        terms=ideals.terms(split, lattice),
        compute_s=_summed(lattice.member, compute_s).T,
        unsupported=_summed(lattice.member, ~able).T,
        memory_bytes=_summed(lattice.member, split.memory_bytes),
        rest_s=_summed(~lattice.member, split.compute_s.min(axis=1)),
        capacity_bytes=types.capacity_bytes,
        counts=np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1),
        strides=np.cumprod([1, *shape[:0:-1]])[::-1],
    )


def _summed(member: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums float64 [L, *]: values [V, *] over the members, some ideals at a time."""
    pieces = np.array_split(member, -(-member.size // _BLOCK))
    return np.concatenate([piece.astype(float) @ values for piece in pieces])


def _fill(facts: _Facts, best_s: np.ndarray, level: np.ndarray, upper_s: float) -> None:
    """Applies the recurrence to a level of ideals; rows of smaller ones are filled."""
    left = facts.counts[-1].sum() - facts.counts.sum(axis=1)
    level = level[facts.rest_s[level] <= left.max() * upper_s]
    if not len(level):
        return
    inner = np.flatnonzero(np.isfinite(best_s[: level[0]]).any(axis=1))
    inner = inner[facts.rest_s[inner] <= facts.rest_s[level].max() + upper_s]
    for rows in np.array_split(level, -(-len(level) * len(inner) // _BLOCK) or 1):
        if len(inner):
            _fill_rows(facts, best_s, _segments(facts, rows, inner, upper_s))
    reached_s = best_s[level]
    reached_s[facts.rest_s[level, None] > left * upper_s] = np.inf
    best_s[level] = reached_s


def _segments(
    facts: _Facts, outer: np.ndarray, inner: np.ndarray, upper_s: float
) -> list[_Segments]:
    """Returns the segments between ideals that a device of each type can take within the bound."""
    inside = facts.rest_s[inner] - facts.rest_s[outer, None] <= upper_s
    inside &= ideals.within(facts.words, outer, inner)
    traffic_s = ideals.traffic_s(facts.terms, outer, inner)[:, inside]
    row, column = np.nonzero(inside)
    large, small = outer[row], inner[column]
    held_bytes = facts.memory_bytes[large] - facts.memory_bytes[small]
    segments = []
    for k, capacity_bytes in enumerate(facts.capacity_bytes):
        load_s = traffic_s[k] + (facts.compute_s[k, large] - facts.compute_s[k, small])
        fits = (load_s <= upper_s) & (held_bytes <= capacity_bytes)
        fits &= facts.unsupported[k, large] == facts.unsupported[k, small]
        segments.append(_Segments(large[fits], small[fits], load_s[fits]))
    return segments


def _fill_rows(facts: _Facts, best_s: np.ndarray, segments: list[_Segments]) -> None:
    for k, of_type in enumerate(segments):
        if not len(of_type.outer):
            continue
        outer, starts = np.unique(of_type.outer, return_index=True)
        for state in np.flatnonzero(facts.counts[:, k]):
            before_s = best_s[of_type.inner, state - facts.strides[k]]
            least_s = np.minimum.reduceat(np.maximum(before_s, of_type.load_s), starts)
            best_s[outer, state] = np.minimum(best_s[outer, state], least_s)


def _placement(
    facts: _Facts, best_s: np.ndarray, types: DeviceTypes, lattice: Ideals
) -> np.ndarray:
    """Returns int [V]: the devices on the way to the value of all vertices and devices."""
    placement = np.empty(lattice.member.shape[1], int)
    outer, state = len(lattice.member) - 1, len(facts.counts) - 1
    while outer > 0:
        smaller = np.flatnonzero(np.isfinite(best_s[:outer]).any(axis=1))
        options = []
        for k, of_type in enumerate(_segments(facts, np.array([outer]), smaller, np.inf)):
            if facts.counts[state, k] and len(of_type.outer):
                before_s = best_s[of_type.inner, state - facts.strides[k]]
                value_s = np.maximum(before_s, of_type.load_s)
                at = int(value_s.argmin())
                options.append((float(value_s[at]), k, int(of_type.inner[at])))
        _, k, inner = min(options)
        device = types.devices[k][facts.counts[state, k] - 1]
        placement[lattice.member[outer] & ~lattice.member[inner]] = device
        outer, state = inner, state - int(facts.strides[k])
    return placement
