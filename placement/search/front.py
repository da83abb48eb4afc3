"""Placements that none beats in latency, throughput and memory at once.

Three axes, each to be small: the latency of one request, the seconds that each request of a stream
adds (`max_load`), and the bytes that the fullest device holds. One placement *dominates* another
that is nowhere less and somewhere more. The archive holds what nothing found so far dominates; of
more than it has room for, those whose neighbours along the axes are nearest leave first (crowding
distance: Deb, Pratap, Agarwal and Meyarivan 2002, NSGA-II, section III-B). No sum of axes is ever
formed, so that no weights are chosen.

The population is the archive. It begins with single devices and with what a search along each of
the first two axes alone finds. In every generation the winners of tournaments by crowding distance,
where the ends of every axis are infinitely far from their neighbours, have children: by one to
three blocks (`placement.search.blocks`), and by taking an interval of the topological order from
another member (one-interval crossover). Departures from NSGA-II: the population is the archive,
without dominated members, so that ranks have nothing to say.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import solvers
from placement.instance import Instance
from placement.search import blocks, chains, orders, population
from placement.solvers.limits import SearchLimits
from placement.types import Array, Status

AXES = ("latency_s", "request_s", "memory_bytes")
MOST = 128  # members of the archive

_PARENTS, _SETS, _SET_SIZE = 8, 2, 4  # of a generation: parents, orders of each, children of each
_MOVES = 3  # blocks that a child differs in from its parent, at most
_CHILDREN = (_MOVES + 1) * _PARENTS * _SETS * _SET_SIZE  # and those by crossover
_ALONE = 0.2  # of the limits, for the search along each of the first two axes


class Archive(NamedTuple):
    """K placements of which none dominates another, by their first axis, then the others."""

    placement: np.ndarray  # int32 [K, C]
    values: np.ndarray  # float64 [K, 3]: along `AXES`


class Front(NamedTuple):
    """What was found."""

    archive: Archive  # placements int32 [K, N], of all operations
    bounds: np.ndarray  # float64 [3]: no placement is below; -inf where nothing is known
    evaluations: int
    status: Status
    reason: str = ""  # why the problem is infeasible


def find(problem: Instance, seed: int, limits: SearchLimits) -> Front:
    """Searches for placements that none beats.

    Args:
      problem: whose objective is the latency of one request, 'makespan' or 'serial'.
      seed: of all randomness.
      limits: until which it searches; one evaluation is of all axes.

    Returns:
      The front that is known; an empty one where no placement that can run is.
    """
    load = problem._replace(objective="max_load")
    if reason := solvers.infeasible(problem):
        nothing = Archive(np.empty((0, problem.graph.num_ops), np.int32), np.empty((0, 3)))
        return Front(nothing, np.full(3, -np.inf), 0, Status.INFEASIBLE, reason)
    classes, axes = problem.classes, _Axes(problem, load)
    first = classes.first_ops
    begun = list(problem.single_devices[:, first])
    evaluations = len(begun)
    for alone in (problem, load):
        # Of another axis: nothing that it tells is told.
        within = SearchLimits(
            _ALONE * limits.left_s(), int(_ALONE * limits.budget), stop=limits.stopped
        )
        found = population.find(alone, seed, within)
        evaluations += found.evaluations
        if found.placement is not None:
            begun.append(found.placement[first])
    rows = np.array(begun, np.int32)
    archive = merge(None, rows, axes.values(rows[:, classes.ids]))
    space = _space(problem, seed)
    key = jax.random.key(seed, impl="rbg")
    rng, status = np.random.default_rng(seed), Status.FINISHED
    while limits.budget - evaluations >= _CHILDREN and len(archive.placement):
        if limits.over():
            status = Status.TIME_LIMIT
            break
        parents, others = (archive.placement[_tournament(rng, archive)] for _ in range(2))
        children = np.asarray(_children(key, evaluations, space, parents.T, others.T)).T
        archive = merge(archive, children, axes.values(children[:, classes.ids]))
        evaluations += len(children)
        limits.tell(evaluations, *_best(archive, classes.ids))
    bounds = np.array([*map(solvers.lower_bound, (problem, load)), _least_bytes(problem)])
    whole = archive._replace(placement=archive.placement[:, classes.ids])
    return Front(whole, bounds, evaluations, status)


def merge(archive: Archive | None, placement: np.ndarray, values: np.ndarray) -> Archive:
    """Adds placements to an archive, and removes what is dominated then, or crowded.

    Args:
      archive: None: an empty one.
      placement: int32 [B, C].
      values: float64 [B, 3]; those that are not finite are left out. Of equal values the first
        stays.
    """
    chex.assert_rank([placement, values], 2)
    able = np.isfinite(values).all(axis=1)
    placement, values = placement[able], values[able]
    if archive is not None:
        placement = np.concatenate([archive.placement, placement])
        values = np.concatenate([archive.values, values])
    _, distinct = np.unique(values, axis=0, return_index=True)  # sorted by the axes in turn
    placement, values = placement[distinct], values[distinct]
    no_more = (values[:, None] <= values).all(axis=-1)
    dominated = (no_more & ~np.eye(len(values), dtype=bool)).any(axis=0)
    placement, values = placement[~dominated], values[~dominated]
    while len(values) > MOST:
        kept = np.arange(len(values)) != crowding(values).argmin()
        placement, values = placement[kept], values[kept]
    return Archive(placement, values)


def crowding(values: np.ndarray) -> np.ndarray:
    """Computes how far the neighbours along each axis are apart, summed, float64 [K].

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


def knees(values: np.ndarray) -> list[int]:
    """Chooses the few members of a front that are worth looking at, in order.

    The end of each axis, of several the best by the next; and the one nearest to the best of all
    axes, each divided by its range.

    Args:
      values: float64 [K, 3], at least one.
    """
    ends = [int(np.lexsort(np.roll(values, -axis, axis=1).T[::-1])[0]) for axis in range(3)]
    spread = np.ptp(values, axis=0)
    away = (values - values.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    return sorted({*ends, int(np.square(away).sum(axis=1).argmin())})


class _Axes:
    """Evaluates placements along all axes."""

    def __init__(self, problem: Instance, load: Instance):
        self._problem = problem
        self._seconds = [each.evaluate for each in (problem, load)]

    def values(self, placements: np.ndarray) -> np.ndarray:
        """Of placements int32 [B, N], float64 [B, 3]; inf where one cannot run."""
        seconds = [np.asarray(evaluate(placements), np.float64) for evaluate in self._seconds]
        return np.stack([*seconds, self._problem.fullest_bytes(placements)], axis=1)


def _space(problem: Instance, seed: int) -> chains.Space:
    classes, (limits, of_objective) = problem.classes, problem.tables
    space = chains.Space(
        tables=(limits, of_objective),
        number=None,
        allowed=classes.allowed,
        memory_bytes=classes.memory_bytes.astype(np.float32),
        excess_s=np.zeros((), np.float32),
        orders=orders.make(problem, np.random.default_rng(seed)),
    )
    return jax.tree.map(jnp.asarray, space)


@jax.jit
def _children(
    key: chex.PRNGKey, number: Array | int, space: chains.Space, parents: Array, others: Array
) -> Array:
    """Children int32 [C, B] of parents int32 [C, K], the last with parts of others [C, K]."""
    key = jax.random.fold_in(key, number)  # on the host it takes as long as a generation
    keys = jax.random.split(key, 2 + _MOVES)
    for_length, for_begin, for_blocks = keys[0], keys[1], keys[2:]
    size, num_parents = parents.shape
    evenly = (space.orders.number > 0).astype(jnp.float32)

    def move(parents: Array, key: chex.PRNGKey) -> tuple[Array, Array]:
        room = chains.room_bytes(space, parents)
        drawn = blocks.draw(
            key, space.orders, space.allowed, parents, room, evenly, (_SETS, _SET_SIZE)
        ).placement.reshape(size, num_parents, -1)
        return drawn[:, :, 0], drawn.reshape(size, -1)  # one of each parent goes on

    _, moved = jax.lax.scan(move, parents, for_blocks)  # unrolled, it compiles twice as long
    count = moved.shape[2]
    length = jax.random.uniform(for_length, (count,), minval=1.0, maxval=size + 1.0)
    begin = jax.random.uniform(for_begin, (count,)) * size
    place = jnp.arange(size)[:, None]
    inside = (place >= begin) & (place < begin + length)
    repeat = partial(jnp.repeat, repeats=count // num_parents, axis=1)
    crossed = jnp.where(inside, repeat(others), repeat(parents))
    return jnp.concatenate([*moved, crossed], axis=1)


def _tournament(rng: np.random.Generator, archive: Archive) -> np.ndarray:
    """Draws members int [K]: of two each, the one whose neighbours are further away."""
    distance = crowding(archive.values)
    one, other = rng.integers(0, len(distance), (2, _PARENTS))
    return np.where(distance[one] >= distance[other], one, other)


def _best(archive: Archive, number: np.ndarray) -> tuple[float, np.ndarray | None, dict[str, Any]]:
    """What is told: the least latency, its placement, and the least of each axis."""
    if not len(archive.placement):
        return np.inf, None, {}
    least = dict(zip(AXES, archive.values.min(axis=0).tolist(), strict=True))
    return (
        least["latency_s"],
        archive.placement[0][number],
        least | {"members": len(archive.values)},
    )


def _least_bytes(problem: Instance) -> float:
    """The fullest device holds the largest class, and its share of all."""
    accelerator = np.asarray(problem.costs.accelerator)
    separate = len(set(accelerator[accelerator >= 0])) + int((accelerator < 0).sum())
    class_bytes = problem.classes.memory_bytes
    return float(max(class_bytes.max(), class_bytes.sum() / separate))
