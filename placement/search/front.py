"""Pareto front of placements in latency, throughput and memory.

There are three axes, each to be small: the latency of one request, the seconds that each request of
a stream adds (`max_load`), and the bytes that the fullest device holds. One placement *dominates*
another if it is nowhere larger and somewhere smaller. The archive holds the placements that no
known placement dominates. When it is full, the members whose neighbours along the axes are nearest
leave first (crowding distance: Deb, Pratap, Agarwal and Meyarivan 2002, NSGA-II, section III-B).
The axes are never summed, so that no weights have to be chosen.

The archive starts with the single devices and the results of a search along each of the first two
axes alone. In every generation parents are drawn by tournaments on crowding distance, in which the
ends of every axis have infinite distance. Children differ from a parent by one to three block moves
(`placement.search.block_search`), or take an interval of the topological order from another member
(one-interval crossover).

Departure from NSGA-II: the population is the archive. It has no dominated members, so that ranks
do not matter.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import solvers
from placement.instance import Instance
from placement.search import block_search, multistart
from placement.solvers.limits import SearchLimits
from placement.types import Array, Status

AXES = ("latency_s", "request_s", "memory_bytes")
ARCHIVE_SIZE = 128

# Of a generation: parents, sets of block moves of each parent, and moves in each set.
_NUM_PARENTS, _NUM_SETS, _SET_SIZE = 8, 2, 4
_MAX_MOVES = 3  # largest number of block moves between a parent and a child
# One child for each number of moves, and one by crossover.
_NUM_CHILDREN = (_MAX_MOVES + 1) * _NUM_PARENTS * _NUM_SETS * _SET_SIZE
_AXIS_SHARE = 0.2  # of the limits, for the search along each of the first two axes


class Archive(NamedTuple):
    """K placements none of which dominates another, sorted by their values."""

    placement: np.ndarray  # int32 [K, C]
    values: np.ndarray  # float64 [K, 3]: along `AXES`


class Front(NamedTuple):
    """Result of a search for the Pareto front."""

    archive: Archive  # placements int32 [K, N], of all operations
    bounds: np.ndarray  # float64 [3]: lower bounds along each axis; -inf where none is known
    evaluations: int
    status: Status
    reason: str = ""  # why the problem is infeasible


def search_front(problem: Instance, seed: int, limits: SearchLimits) -> Front:
    """Searches for the placements that no other placement dominates.

    Args:
      problem: its objective is the latency of one request, 'makespan' or 'serial'.
      seed: of all randomness.
      limits: of the search; one evaluation computes all axes.

    Returns:
      The known front; it is empty if no feasible placement is known.
    """
    load_problem = problem._replace(objective="max_load")
    if reason := solvers.infeasible(problem):
        empty = Archive(np.empty((0, problem.graph.num_ops), np.int32), np.empty((0, 3)))
        return Front(empty, np.full(3, -np.inf), 0, Status.INFEASIBLE, reason)
    classes = problem.classes

    def values(rows: np.ndarray) -> np.ndarray:
        """Evaluates placements int32 [B, C] along all axes, float64 [B, 3]."""
        placements = rows[:, classes.ids]
        latency_s = np.asarray(problem.evaluate(placements), np.float64)
        request_s = np.asarray(load_problem.evaluate(placements), np.float64)
        return np.stack([latency_s, request_s, problem.fullest_bytes(placements)], axis=1)

    starts = list(problem.single_devices[:, classes.first_ops])
    evaluations = len(starts)
    for axis_problem in (problem, load_problem):
        # These limits report to nobody: the search along one axis has another incumbent.
        axis_limits = SearchLimits(
            _AXIS_SHARE * limits.remaining_s(),
            int(_AXIS_SHARE * limits.budget),
            stop=limits.is_stopped,
        )
        result = multistart.search(axis_problem, seed, axis_limits)
        evaluations += result.evaluations
        if result.placement is not None:
            starts.append(result.placement[classes.first_ops])
    rows = np.array(starts, np.int32)
    archive = merge(None, rows, values(rows))
    space = jax.tree.map(jnp.asarray, block_search.make_space(problem, seed))
    key = jax.random.key(seed, impl="rbg")
    rng, status = np.random.default_rng(seed), Status.FINISHED
    while limits.budget - evaluations >= _NUM_CHILDREN and len(archive.placement):
        if limits.is_over():
            status = Status.TIME_LIMIT
            break
        parents, donors = (archive.placement[_draw_members(rng, archive)] for _ in range(2))
        children = np.asarray(_breed(key, evaluations, space, parents.T, donors.T)).T
        archive = merge(archive, children, values(children))
        evaluations += len(children)
        best_s, best = np.inf, None
        numbers: dict[str, Any] = {}
        if len(archive.placement):
            numbers = dict(zip(AXES, archive.values.min(axis=0).tolist(), strict=True))
            numbers["members"] = len(archive.values)
            best_s, best = numbers["latency_s"], archive.placement[0][classes.ids]
        limits.report(evaluations, best_s, best, numbers)
    # The fullest device holds at least the largest class, and at least an equal share of all.
    accelerator = np.asarray(problem.costs.accelerator)
    num_memories = len(set(accelerator[accelerator >= 0])) + int((accelerator < 0).sum())
    bound_bytes = max(classes.memory_bytes.max(), classes.memory_bytes.sum() / num_memories)
    bounds = np.array([*map(solvers.lower_bound, (problem, load_problem)), float(bound_bytes)])
    full_archive = archive._replace(placement=archive.placement[:, classes.ids])
    return Front(full_archive, bounds, evaluations, status)


def merge(archive: Archive | None, placement: np.ndarray, values: np.ndarray) -> Archive:
    """Adds placements to an archive and removes dominated and crowded members.

    Args:
      archive: None: an empty one.
      placement: int32 [B, C].
      values: float64 [B, 3]; placements with a value that is not finite are left out. Of equal
        values the first placement stays.
    """
    chex.assert_rank([placement, values], 2)
    is_finite = np.isfinite(values).all(axis=1)
    placement, values = placement[is_finite], values[is_finite]
    if archive is not None:
        placement = np.concatenate([archive.placement, placement])
        values = np.concatenate([archive.values, values])
    _, distinct = np.unique(values, axis=0, return_index=True)  # sorted by the axes in turn
    placement, values = placement[distinct], values[distinct]
    # Values are distinct, so a row that is nowhere larger than another one is somewhere smaller.
    is_no_larger = (values[:, None] <= values).all(axis=-1)
    is_dominated = (is_no_larger & ~np.eye(len(values), dtype=bool)).any(axis=0)
    placement, values = placement[~is_dominated], values[~is_dominated]
    while len(values) > ARCHIVE_SIZE:
        is_kept = np.arange(len(values)) != crowding_distance(values).argmin()
        placement, values = placement[is_kept], values[is_kept]
    return Archive(placement, values)


def crowding_distance(values: np.ndarray) -> np.ndarray:
    """Computes the distance between each member's neighbours, summed over the axes, float64 [K].

    Each axis is divided by its range; at its ends the distance is infinite.

    Args:
      values: float64 [K, A].
    """
    distance = np.zeros(len(values))
    for axis in values.T:
        order = np.argsort(axis, kind="stable")
        spread = axis[order[-1]] - axis[order[0]]
        if spread > 0:
            distance[order[1:-1]] += (axis[order[2:]] - axis[order[:-2]]) / spread
            distance[order[[0, -1]]] = np.inf
    return distance


def find_knees(values: np.ndarray) -> list[int]:
    """Chooses the few members of a front that are worth a look, in order.

    These are the best member of each axis, with ties broken by the next axis, and the member
    nearest to the best value of all axes, each divided by its range.

    Args:
      values: float64 [K, 3], at least one row.
    """
    ends = [int(np.lexsort(np.roll(values, -axis, axis=1).T[::-1])[0]) for axis in range(3)]
    spread = np.ptp(values, axis=0)
    offset = (values - values.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    return sorted({*ends, int(np.square(offset).sum(axis=1).argmin())})


@jax.jit
def _breed(
    key: chex.PRNGKey,
    generation: Array | int,
    space: block_search.SearchSpace,
    parents: Array,
    donors: Array,
) -> Array:
    """Makes children int32 [C, B] of parents [C, K]; the last have intervals of donors [C, K]."""
    # Folded in here, because on the host this would take as long as a generation.
    key = jax.random.fold_in(key, generation)
    keys = jax.random.split(key, 2 + _MAX_MOVES)
    length_key, begin_key, move_keys = keys[0], keys[1], keys[2:]
    num_classes, num_parents = parents.shape
    weights = (space.orders.num_orders > 0).astype(jnp.float32)

    def move(parents: Array, key: chex.PRNGKey) -> tuple[Array, Array]:
        free_bytes = block_search.free_bytes(space, parents)
        moves = block_search.draw_moves(
            *(key, space.orders, space.allowed, parents, free_bytes, weights),
            (_NUM_SETS, _SET_SIZE),
        )
        children = moves.placements.reshape(num_classes, num_parents, -1)
        # The first child of each parent is the parent of the next move.
        return children[:, :, 0], children.reshape(num_classes, -1)

    # A scan, because the unrolled loop takes twice as long to compile.
    _, moved = jax.lax.scan(move, parents, move_keys)
    num_children = moved.shape[2]
    length = jax.random.uniform(length_key, (num_children,), minval=1.0, maxval=num_classes + 1.0)
    begin = jax.random.uniform(begin_key, (num_children,)) * num_classes
    position = jnp.arange(num_classes)[:, None]
    is_inside = (position >= begin) & (position < begin + length)
    repeat = partial(jnp.repeat, repeats=num_children // num_parents, axis=1)
    crossed = jnp.where(is_inside, repeat(donors), repeat(parents))
    return jnp.concatenate([*moved, crossed], axis=1)


def _draw_members(rng: np.random.Generator, archive: Archive) -> np.ndarray:
    """Draws members int [K] by tournaments: of two each, the one with the larger distance."""
    distance = crowding_distance(archive.values)
    first, second = rng.integers(0, len(distance), (2, _NUM_PARENTS))
    return np.where(distance[first] >= distance[second], first, second)
