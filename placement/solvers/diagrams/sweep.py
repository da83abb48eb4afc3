"""Sweeps over the layers of a decision diagram, a limited number of states at a time.

From each state an operation goes to each device that is open to it within a latency T
(`placement.solvers.bounds.makespan`). A state is left out where no completion is as fast as T:

- a row of tensors that arrives at a[d], on a device that is free from f[d] on, is followed by what
  its readers v then take at least, min over d of max(a[d], f[d]) + compute_s[v, d] + tail(v, d);
- for any weights y >= 0 of devices, sum of y <= 1, the load bounds it: sum over d of y[d] f[d], and
  the sum over what is to come of min over d of y[d] compute_s[v, d];

and where another one is nowhere later. Of more states than `width`, those are kept that promise
most, which finds placements (a *restricted* diagram, a beam search); or states that are nearly
equal become one, which is as early as any of them everywhere, so that the least latency of all is a
lower bound (a *relaxed* diagram). Where there never are so many it is both, and the optimum.

Restricted and relaxed diagrams: Bergman, Cire, van Hoeve and Hooker 2016, Decision Diagrams for
Optimization, chapters 4 and 5. Departures: states are vectors of times, merged where they are on
one point of a grid that is as coarse as it takes, rather than by rank; and bounds of completions
prune both.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from placement.instance import MemoryLimits
from placement.solvers.bounds import makespan
from placement.solvers.diagrams.layers import Diagram, Layer
from placement.solvers.limits import SearchLimits

_TOLERANCE = 1e-6  # relative, of T
_DOMINATING = 48  # states that others are compared with
_FINEST = 1e-5  # of T, the finest grid on which states are merged


class Swept(NamedTuple):
    """What a sweep found."""

    bound_s: float  # of a relaxed sweep: no placement is below; at most T
    latency_s: float  # of `placement`; inf without
    placement: np.ndarray | None  # int [N]
    exact: bool  # whether no state was left out or merged: then no other placement is below
    evaluations: int  # operations that were placed, over those of a placement


class _Within(NamedTuple):
    """What is known of placements that take T at most."""

    latency_s: float  # T
    most_s: float  # and what rounding adds
    windows: makespan.Windows
    # Float64, with a row for the end: from the start of each operation on, and the earliest start.
    onward_s: np.ndarray  # [N + 1, D]
    head_s: np.ndarray  # [N + 1, D]
    weights: np.ndarray  # [Y, D]: of loads
    left_s: np.ndarray  # [N + 1, Y]: what layers from each on add to weighed loads, at least
    sources_s: (
        np.ndarray
    )  # [N + 1, D]: when an operation from each layer on that reads nothing starts
    bytes: np.ndarray | None  # [N]: what an operation's class occupies where it is the first of it
    memory: MemoryLimits


class _States(NamedTuple):
    """S states, float64 times."""

    time_s: np.ndarray  # [S, 1 + L, D]: when devices are free, when rows of tensors arrive
    used: np.ndarray  # [S, D]: bytes that are occupied; [S, 0] where nothing is limited
    actual: np.ndarray  # int8 [S, D]: which device each column is, as equal ones change places


def sweep(
    of: Diagram, latency_s: float, width: int, limits: SearchLimits, *, relaxed: bool
) -> Swept:
    """Sweeps once.

    Args:
      of: the problem.
      latency_s: T, finite. What takes longer is left out.
      width: states at most.
      limits: when to stop. What is to come is then bounded as it is.
      relaxed: whether states are merged, and not left out, where there are more.
    """
    none = Swept(latency_s, np.inf, None, exact=True, evaluations=1)
    within = _within(of, latency_s, limited=not relaxed)
    if within is None:
        return none
    num_devices = within.onward_s.shape[1]
    states = _States(
        np.zeros((1, 1, num_devices)),
        np.zeros((1, 0 if within.bytes is None else num_devices)),
        np.arange(num_devices, dtype=np.int8)[None],
    )
    trail: list[tuple[np.ndarray, np.ndarray]] = []
    exact, placed = True, 0
    for number, layer in enumerate(of.layers):
        expanded = _expand(states, layer, within)
        evaluations = 1 + placed // len(of.layers)
        refuted = Swept(
            latency_s if relaxed or exact else -np.inf, np.inf, None, exact, evaluations
        )
        if expanded is None:
            return refuted
        states, parent, device = expanded
        placed += len(parent)
        bound_s = _complete(states, layer, number + 1, within)
        fast = np.flatnonzero(bound_s <= within.most_s)
        if not len(fast):
            return refuted
        states, bound_s = _take(states, fast), bound_s[fast]
        states = _sorted_equal(states, of.problem.interchangeable_devices)
        chosen, states, all_there = _shrink(states, bound_s, width, within, relaxed=relaxed)
        exact &= all_there
        trail.append((parent[fast[chosen]], device[fast[chosen]]))
        if limits.over():
            least_s = min(float(bound_s.min()), latency_s) if relaxed else -np.inf
            return Swept(least_s, np.inf, None, exact=False, evaluations=evaluations)
    end_s = states.time_s[:, 1, 0]
    last = int(end_s.argmin())
    found_s = float(end_s[last])
    placement = _follow(of, trail, last)
    bound = min(found_s, latency_s) if relaxed or exact else -np.inf
    return Swept(bound, found_s, placement, exact, 1 + placed // len(of.layers))


def _within(of: Diagram, latency_s: float, *, limited: bool) -> _Within | None:
    """Returns what is known of T, with memories that do not hold everything if `limited`.

    None where it refutes T.
    """
    windows = makespan.closed(of.problem.classes, of.edges, of.windows, latency_s)
    compute_s, (num_ops, num_devices) = windows.compute_s, windows.compute_s.shape
    is_open = np.isfinite(compute_s)
    if not is_open.any(axis=1).all():
        return None
    order = np.array([layer.op for layer in of.layers])
    weights = _weights(compute_s)
    seconds = np.where(is_open, compute_s, 0.0)
    each = np.stack(
        [np.where(is_open, seconds * row, np.inf).min(axis=1)[order] for row in weights], axis=1
    )
    left_s = np.concatenate([each[::-1].cumsum(axis=0)[::-1], np.zeros((1, len(weights)))])
    source = np.array([not len(layer.reads) for layer in of.layers])
    starts_s = np.where(source[:, None], windows.head_s[order], np.inf)
    starts_s = np.concatenate([starts_s, np.full((1, num_devices), np.inf)])
    classes, memory = of.problem.classes, of.problem.memory_limits
    bytes_ = None
    if limited and classes.memory_bytes.sum() > memory.capacity_bytes.min(initial=np.inf):
        bytes_ = np.zeros(num_ops)
        _, first = np.unique(classes.ids[order], return_index=True)
        bytes_[order[first]] = classes.memory_bytes
    end = np.zeros((1, num_devices))
    return _Within(
        latency_s,
        latency_s * (1 + _TOLERANCE),
        windows,
        np.concatenate([compute_s + windows.tail_s, end]),
        np.concatenate([windows.head_s, end]),
        weights,
        left_s,
        np.minimum.accumulate(starts_s[::-1])[::-1],
        bytes_,
        memory,
    )


def _weights(compute_s: np.ndarray) -> np.ndarray:
    """Weights of devices [Y, D] by which loads bound: each alone, all alike, and the best of all.

    The best are the multipliers of the relaxation without communication: the most that the sum over
    operations of z(v) can be, where z(v) <= y(d) compute_s[v, d] and sum of y = 1.
    """
    num_ops, num_devices = compute_s.shape
    op, device = np.nonzero(np.isfinite(compute_s))
    row = np.arange(len(op))
    upper = sparse.csr_array(
        (
            np.concatenate([np.ones(len(op)), -compute_s[op, device]]),
            (np.concatenate([row, row]), np.concatenate([op, num_ops + device])),
        ),
        shape=(len(op), num_ops + num_devices),
    )
    whole = np.concatenate([np.zeros(num_ops), np.ones(num_devices)])
    solved = optimize.linprog(whole - 1.0, upper, np.zeros(len(op)), whole[None], [1.0])
    best = solved.x[num_ops:] if solved.status == 0 else np.zeros(num_devices)
    best = np.maximum(best, 0.0) / max(1.0, best.sum())
    return np.stack([*np.eye(num_devices), np.full(num_devices, 1 / num_devices), best])


def _expand(
    states: _States, layer: Layer, within: _Within
) -> tuple[_States, np.ndarray, np.ndarray] | None:
    """Places an operation everywhere it may be; also the states before and the devices, int [S]."""
    op, rows = layer.op, states.time_s[:, 1 + layer.reads]
    begin_s = np.maximum(states.time_s[:, 0], within.head_s[op])
    if len(layer.reads):
        begin_s = np.maximum(begin_s, rows.max(axis=1))
    fits = begin_s + within.onward_s[op] <= within.most_s
    if within.bytes is not None and within.bytes[op]:
        shared = within.memory.devices.astype(float)
        limit = within.memory.capacity_bytes * (1 + _TOLERANCE) - within.bytes[op]
        full = (states.used @ shared.T > limit) @ shared > 0
        fits &= ~full
    parent, device = np.nonzero(fits)
    if not len(parent):
        return None
    each = np.arange(len(parent))
    end_s = begin_s[parent, device] + within.windows.compute_s[op, device]
    time_s = np.zeros((len(parent), 1 + len(layer.begin), begin_s.shape[1]))
    time_s[:, 0] = states.time_s[parent, 0]
    time_s[each, 0, device] = end_s
    time_s[:, 1 + layer.kept[:, 0]] = states.time_s[parent][:, 1 + layer.kept[:, 1]]
    for after, before in layer.joined.tolist():
        np.maximum(
            time_s[:, 1 + after], states.time_s[parent, 1 + before], out=time_s[:, 1 + after]
        )
    for after, delay_s in zip(layer.made.tolist(), layer.delay_s, strict=True):
        arrival_s = end_s[:, None] + delay_s[device]
        np.maximum(time_s[:, 1 + after], arrival_s, out=time_s[:, 1 + after])
    used = states.used[parent]
    if within.bytes is not None:
        used[each, device] += within.bytes[op]
    actual = states.actual[parent]
    return _States(time_s, used, actual), parent, actual[each, device]


def _complete(states: _States, layer: Layer, number: int, within: _Within) -> np.ndarray:
    """Bounds what completions of states take, float64 [S].

    Times are put off, in place, to when something can happen, so that states that differ before
    are equal: what comes next on a device reads a row, or is a source.
    """
    free_s, rows_s = states.time_s[:, 0], states.time_s[:, 1:]
    np.maximum(rows_s, np.minimum.reduceat(within.head_s[layer.reader], layer.begin), out=rows_s)
    next_s = rows_s[:, layer.waiting].min(axis=(1, 2), initial=np.inf)
    next_s = np.minimum(next_s[:, None], within.sources_s[number])
    np.maximum(free_s, next_s, out=free_s, where=np.isfinite(next_s))
    rows_s[:, layer.waiting] = np.maximum(rows_s[:, layer.waiting], free_s[:, None])
    bound_s = (free_s @ within.weights.T + within.left_s[number]).max(axis=1)
    row, *readers = layer.soonest.T
    for reader in readers:
        through_s = rows_s[:, row] + within.onward_s[reader]
        bound_s = np.maximum(bound_s, through_s.min(axis=2).max(axis=1))
    return bound_s


def _sorted_equal(states: _States, equal: np.ndarray) -> _States:
    """Puts those devices first, of equal ones, that are free first."""
    time_s, used, actual = states
    for first in np.unique(equal).tolist():
        group = np.flatnonzero(equal == first)
        if len(group) == 1:
            continue
        ties_s = np.where(np.isfinite(time_s[:, :, group]), time_s[:, :, group], 0.0).sum(axis=1)
        order = np.lexsort((ties_s, time_s[:, 0, group]), axis=1)
        time_s[:, :, group] = np.take_along_axis(time_s[:, :, group], order[:, None], axis=2)
        actual[:, group] = np.take_along_axis(actual[:, group], order, axis=1)
        if used.shape[1]:
            used[:, group] = np.take_along_axis(used[:, group], order, axis=1)
    return states


def _shrink(
    states: _States, bound_s: np.ndarray, width: int, within: _Within, *, relaxed: bool
) -> tuple[np.ndarray, _States, bool]:
    """Leaves `width` states at most; which they were, int [S], and whether all are among them."""
    flat = np.concatenate([states.time_s.reshape(len(bound_s), -1), states.used], axis=1)
    total_s = np.minimum(flat[:, : flat.shape[1] - states.used.shape[1]], within.most_s).sum(axis=1)
    order = np.lexsort((total_s, bound_s)) if not relaxed else np.argsort(total_s, kind="stable")
    flat = flat[order]
    alive = np.ones(len(order), bool)
    for n in range(min(_DOMINATING, len(order))):
        if alive[n]:
            later = np.flatnonzero(alive[n + 1 :]) + n + 1
            alive[later[(flat[n] <= flat[later]).all(axis=1)]] = False
    order = order[alive]
    if len(order) <= width:
        return order, _take(states, order), True
    if not relaxed:
        order = order[:width]
        return order, _take(states, order), False
    return *_merged(states, bound_s, order, width, within), False


def _merged(
    states: _States, bound_s: np.ndarray, order: np.ndarray, width: int, within: _Within
) -> tuple[np.ndarray, _States]:
    """Makes one state of those on one point of the finest grid that has `width` points at most."""
    states = _take(states, order)
    capacity = np.maximum(states.used.max(axis=0, initial=1.0), 1.0)
    flat = np.concatenate(
        [
            np.minimum(states.time_s, 2 * within.latency_s).reshape(len(order), -1),
            states.used / capacity * within.latency_s,
        ],
        axis=1,
    )
    # What collides is merged too, which is as valid.
    mix = np.random.default_rng(0).integers(-(2**62), 2**62, flat.shape[1]) | 1
    grid_s = _FINEST * within.latency_s
    while True:
        points = (np.floor(flat / grid_s).astype(np.int64) * mix).sum(axis=1)
        _, point = np.unique(points, return_inverse=True)
        if point.max() < width:
            break
        grid_s *= 2
    by_point = np.lexsort((bound_s[order], point))
    begin = np.searchsorted(point[by_point], np.arange(point.max() + 1))
    return order[by_point[begin]], _States(
        np.minimum.reduceat(states.time_s[by_point], begin),
        np.minimum.reduceat(states.used[by_point], begin),
        states.actual[by_point[begin]],
    )


def _take(states: _States, chosen: np.ndarray) -> _States:
    return _States(*(field[chosen] for field in states))


def _follow(of: Diagram, trail: list[tuple[np.ndarray, np.ndarray]], last: int) -> np.ndarray:
    """Returns the placement int [N] that leads to a state of the last layer."""
    placement = np.zeros(len(of.layers), int)
    for layer, (parent, device) in zip(reversed(of.layers), reversed(trail), strict=True):
        placement[layer.op], last = device[last], parent[last]
    return placement
