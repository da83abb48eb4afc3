"""A layered drawing of an acyclic graph: layers from left to right, edges forward.

After Sugiyama, Tagawa and Toda 1981 ("Methods for visual understanding of hierarchical system
structures"), with coordinates in place of ranks.

1. A node's layer is its depth. An edge over several layers passes through a *dummy* item in each of
   them. The edges of one sender share their dummies, so that a tensor with many readers is one line
   until it forks.
2. Sweeps go through the layers, forwards and backwards in turn. Every item moves to the mean of its
   neighbours in the previous layer of the sweep, and a least-squares projection (isotonic
   regression) separates items that are too close.
3. The first sweeps also sort each layer by these means, which removes crossings. The last sweeps
   keep the order and straighten lines, those between dummies most.
4. Whole layers are shifted until the median line is level.

The cost is linear in nodes, edges and dummies, apart from sorting.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from placement.graphs import dag

_SORTING, _STRAIGHTENING = 8, 7  # number of sweeps; the last one goes forwards
_NODE, _DUMMY = 0.5, 0.1  # half the height of an item
# At most this many dummies for each node and edge, or in total in a small graph.
_DUMMIES, _DUMMIES_ANYWAY = 3, 20_000
_LOOSE = 0.5  # weight of an item without lines
_STRAIGHTNESS = (1.0, 2.0, 8.0)  # weight of a line with 0, 1 or 2 dummies as ends


class Layout(NamedTuple):
    """A drawing of K nodes: lengths are in layers along x, and in nodes side by side along y."""

    x: np.ndarray  # float64 [K]: the layer
    y: np.ndarray  # float64 [K]: two nodes of a layer are at least 1 apart
    # For each edge float64 [P, 2]: waypoints from its sender to its receiver, both included.
    paths: tuple[np.ndarray, ...]


class _Items(NamedTuple):
    """I items, nodes and then dummies, joined by L lines; only long edges span several layers."""

    layer: np.ndarray  # int64 [I]
    half: np.ndarray  # float64 [I]: half the height of the item
    senders: np.ndarray  # int64 [L]
    receivers: np.ndarray  # int64 [L]
    first_dummy: np.ndarray  # int64 [K]: first dummy of the node's outgoing edges
    passed: np.ndarray  # int64 [E]: number of dummies that each edge passes through


class _Lines(NamedTuple):
    """Weighted lines from the previous layer of a sweep to one layer."""

    origins: np.ndarray  # int64 [L']: items of the previous layer
    ends: np.ndarray  # int64 [L']: items of this layer, in ascending order
    weights: np.ndarray  # float64 [L']


def layered(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> Layout:
    """Draws an acyclic graph in layers; equal graphs are drawn equally.

    There are at most three dummies for each node and edge (or 20,000 in total). The longest edges
    beyond that have none and go straight. A graph of 100,000 operations takes some seconds.

    Args:
      num_nodes: K.
      senders: int [E]; parallel edges are drawn equally.
      receivers: int [E].
    """
    senders, receivers = np.asarray(senders, np.int64), np.asarray(receivers, np.int64)
    layer = layers(num_nodes, senders, receivers).astype(np.int64)
    items = _with_dummies(layer, senders, receivers)
    y = _heights(items)
    paths = _paths(items, y, senders, receivers)
    return Layout(layer.astype(np.float64), y[:num_nodes], paths)


def layers(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Computes the layer of every node, int32 [K]: its depth, or the layer before its reader.

    A chain that serves a single node, such as a constant and its conversion, stands directly before
    that node instead of in the first layers.
    """
    layer = dag.compute_levels(num_nodes, senders, receivers)
    pairs = np.unique(np.asarray(senders, np.int64) * num_nodes + receivers)
    senders, receivers = pairs // num_nodes, pairs % num_nodes
    single = np.bincount(senders, minlength=num_nodes) == 1
    edges = np.stack([senders, receivers], axis=1)
    serves = np.ones(num_nodes, bool)  # whether the node and its ancestors serve one node only
    for sender, receiver in edges[np.argsort(layer[receivers], kind="stable")]:
        serves[receiver] &= serves[sender] and single[sender]
    moves = serves & single
    for sender, receiver in edges[np.argsort(-layer[senders], kind="stable")]:
        if moves[sender]:
            layer[sender] = layer[receiver] - 1
    return layer


def spread(targets: np.ndarray, gaps: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Positions items in the given order, as near to their targets as the gaps permit.

    Args:
      targets: float64 [K].
      gaps: float64 [K - 1]: the least distance of each item from the previous one.
      weights: float64 [K], positive; by default all equal.

    Returns:
      float64 [K], ascending: the least sum of weighted squared distances to the targets.
    """
    if len(targets) < 2:
        return np.array(targets, np.float64)
    packed = np.concatenate([[0.0], np.cumsum(gaps)])
    return optimize.isotonic_regression(targets - packed, weights=weights).x + packed


def _with_dummies(layer: np.ndarray, senders: np.ndarray, receivers: np.ndarray) -> _Items:
    num_nodes = len(layer)
    num_between = layer[receivers] - layer[senders] - 1
    longest = np.zeros(num_nodes, np.int64)  # dummies that a sender's edges need
    np.maximum.at(longest, senders, num_between)
    max_dummies = max(_DUMMIES_ANYWAY, _DUMMIES * (num_nodes + len(senders)))
    ranked = np.argsort(longest, kind="stable")
    counts = np.zeros(num_nodes, np.int64)
    affordable = ranked[np.cumsum(longest[ranked]) <= max_dummies]
    counts[affordable] = longest[affordable]
    first = num_nodes + np.cumsum(counts) - counts
    owner = np.repeat(np.arange(num_nodes), counts)
    dummies = num_nodes + np.arange(len(owner))
    place = dummies - first[owner]
    passed = np.where(counts[senders] > 0, num_between, 0)
    last_items = np.where(passed > 0, first[senders] + passed - 1, senders)
    return _Items(
        layer=np.append(layer, layer[owner] + 1 + place),
        half=np.repeat([_NODE, _DUMMY], [num_nodes, len(owner)]),
        senders=np.append(np.where(place > 0, dummies - 1, owner), last_items),
        receivers=np.append(dummies, receivers),
        first_dummy=first,
        passed=passed,
    )


def _heights(items: _Items) -> np.ndarray:
    """Returns y of every item, float64 [I], with minimum 0."""
    ranked = np.argsort(items.layer, kind="stable")
    rank = np.argsort(ranked)
    bounds = np.searchsorted(items.layer[ranked], np.arange(items.layer.max() + 2))
    half = items.half[ranked]
    y = np.concatenate([np.cumsum(2 * part) - part.sum() for part in np.split(half, bounds[1:-1])])
    senders, receivers = rank[items.senders], rank[items.receivers]
    is_dummy = (half == _DUMMY).astype(int)
    weights = np.array(_STRAIGHTNESS)[is_dummy[senders] + is_dummy[receivers]]
    forwards = _lines(senders, receivers, weights, bounds)
    backwards = _lines(receivers, senders, weights, bounds)
    for sweep in range(_SORTING + _STRAIGHTENING):
        is_forward = (sweep - _SORTING - _STRAIGHTENING) % 2 == 1
        numbers = range(len(bounds) - 1)
        for number in numbers if is_forward else reversed(numbers):
            inside = slice(bounds[number], bounds[number + 1])
            lines = (forwards if is_forward else backwards)[number]
            y[inside] = _settled(y, inside, lines, half[inside], sorting=sweep < _SORTING)
    y += _level(bounds, senders, receivers, y)
    return (y - y.min())[rank]


def _level(
    bounds: np.ndarray, senders: np.ndarray, receivers: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Computes shifts of layers, float64 [I], after which the median line layer each is level.

    Without them a drawing with similar forks climbs from layer to layer. Layers in which most lines
    are straight are not shifted.
    """
    numbers = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    is_adjacent = numbers[receivers] - numbers[senders] == 1
    layer, rise = numbers[receivers[is_adjacent]], (y[receivers] - y[senders])[is_adjacent]
    ranked = np.lexsort((rise, layer))
    ends = np.searchsorted(layer[ranked], np.arange(len(bounds)))
    has_any = np.flatnonzero(np.diff(ends))
    rises = np.zeros(len(bounds) - 1)
    middle = ends[has_any] + ends[has_any + 1]
    rises[has_any] = (rise[ranked][(middle - 1) // 2] + rise[ranked][middle // 2]) / 2
    return -np.cumsum(rises)[numbers]


def _lines(
    origins: np.ndarray, ends: np.ndarray, weights: np.ndarray, bounds: np.ndarray
) -> list[_Lines]:
    """Groups lines by the layer of their ends; `bounds` are the layers' first items."""
    ranked = np.argsort(ends, kind="stable")
    split = np.searchsorted(ends[ranked], bounds[1:-1])
    columns = (np.split(column[ranked], split) for column in (origins, ends, weights))
    return [_Lines(*parts) for parts in zip(*columns, strict=True)]


def _settled(
    y: np.ndarray, inside: slice, lines: _Lines, half: np.ndarray, *, sorting: bool
) -> np.ndarray:
    """Moves a layer's items as near to their neighbours as their heights permit."""
    current, places = y[inside], lines.ends - inside.start
    if len(current) == 1:  # most layers of deep graphs
        return lines.weights @ y[lines.origins] / lines.weights.sum() if len(places) else current
    weight = np.bincount(places, lines.weights, len(current))
    weighted_sum = np.bincount(places, lines.weights * y[lines.origins], len(current))
    targets = np.where(weight > 0, weighted_sum / np.maximum(weight, _LOOSE), current)
    # Means that differ only by rounding count as equal: their items keep their order.
    order = np.lexsort((current, targets.round(6))) if sorting else np.argsort(current)
    gaps = half[order][1:] + half[order][:-1]
    settled = np.empty(len(current))
    settled[order] = spread(targets[order], gaps, np.maximum(weight, _LOOSE)[order])
    return settled


def _paths(
    items: _Items, y: np.ndarray, senders: np.ndarray, receivers: np.ndarray
) -> tuple[np.ndarray, ...]:
    counts = items.passed + 2
    ends = np.cumsum(counts)
    starts = ends - counts
    offset = np.arange(counts.sum()) - np.repeat(starts, counts)
    passed = np.repeat(items.first_dummy[senders] - 1, counts) + offset
    passed[starts], passed[ends - 1] = senders, receivers
    points = np.stack([items.layer[passed], y[passed]], axis=1).astype(np.float64)
    return tuple(np.split(points, ends[:-1])) if len(ends) else ()
