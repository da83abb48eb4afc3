"""Where to draw the nodes of an acyclic graph: in layers from left to right, edges forward.

After Sugiyama, Tagawa and Toda 1981 ("Methods for visual understanding of hierarchical system
structures"), with coordinates in the place of ranks. A layer is a depth. An edge over several
layers passes through a *dummy* in each of them; the edges of one sender share their dummies, so
that a tensor which is read many times is one line until it forks. Then layer after layer, forwards
and backwards in turn, every item moves to the mean of its neighbours in the layers that it has just
come from, and a least-squares projection (isotonic regression) moves those apart that are too
close. The first sweeps also sort a layer by these means, which undoes crossings; the last keep the
order and straighten lines, those between dummies most. In the end whole layers are shifted, so that
the median line is level.

All is linear in nodes, edges and dummies, up to the logarithm of a sort.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from placement.graphs import dag

_SORTING, _STRAIGHTENING = 8, 7  # sweeps; the last one goes forwards
_NODE, _DUMMY = 0.5, 0.1  # half the room that an item takes in its layer
_DUMMIES = 3  # at most, a node and edge,
_DUMMIES_ANYWAY = 20_000  # or altogether, in a small graph
_LOOSE = 0.5  # weight of an item that nothing pulls
_STRAIGHTNESS = (1.0, 2.0, 8.0)  # weight of a line by how many of its ends are dummies


class Layout(NamedTuple):
    """A drawing of K nodes: lengths are in layers along x, and in nodes side by side along y."""

    x: np.ndarray  # float64 [K]: the layer
    y: np.ndarray  # float64 [K]: two nodes of a layer are at least 1 apart
    # Of each edge float64 [P, 2]: waypoints from its sender to its receiver, both included.
    paths: tuple[np.ndarray, ...]


class _Items(NamedTuple):
    """Nodes, then dummies: I of them, joined by L lines of one layer each but for long edges."""

    layer: np.ndarray  # int64 [I]
    half: np.ndarray  # float64 [I]: half the room that it takes
    senders: np.ndarray  # int64 [L]
    receivers: np.ndarray  # int64 [L]
    first_dummy: np.ndarray  # int64 [K]: of the node's outgoing edges
    passed: np.ndarray  # int64 [E]: how many of them each edge passes through


class _Lines(NamedTuple):
    """What pulls the items of a layer."""

    origins: np.ndarray  # int64 [L']: the items before
    ends: np.ndarray  # int64 [L']: those of the layer, in ascending order
    weights: np.ndarray  # float64 [L']


def layered(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> Layout:
    """Draws an acyclic graph in layers; equal graphs are drawn equally.

    Edges that span too many layers have no dummies and go straight, whatever lies between, so that
    dummies are at most three times as many as nodes and edges together (or 20,000 in all). A graph
    of 100,000 operations takes some seconds.

    Args:
      num_nodes: K.
      senders: int [E]; parallel edges are drawn alike.
      receivers: int [E].
    """
    senders, receivers = np.asarray(senders, np.int64), np.asarray(receivers, np.int64)
    layer = layers(num_nodes, senders, receivers).astype(np.int64)
    items = _with_dummies(layer, senders, receivers)
    y = _across(items)
    paths = _paths(items, y, senders, receivers)
    return Layout(layer.astype(np.float64), y[:num_nodes], paths)


def layers(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Computes the layer of every node, int32 [K]: its depth, or just before its reader's.

    What serves a single node, such as a constant and its conversion, has the layer before that
    node's instead of the first ones, where it would be a long way off.
    """
    layer = dag.depths(num_nodes, senders, receivers)
    senders, receivers = _distinct(num_nodes, senders, receivers)
    single = np.bincount(senders, minlength=num_nodes) == 1
    edges = np.stack([senders, receivers], axis=1)
    serves = np.ones(num_nodes, bool)  # one node alone, with all that leads to it
    for sender, receiver in edges[np.argsort(layer[receivers], kind="stable")]:
        serves[receiver] &= serves[sender] and single[sender]
    moves = serves & single
    for sender, receiver in edges[np.argsort(-layer[senders], kind="stable")]:
        if moves[sender]:
            layer[sender] = layer[receiver] - 1
    return layer


def spread(wanted: np.ndarray, gaps: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Positions in the given order, as near as can be to where they are wanted.

    Args:
      wanted: float64 [K].
      gaps: float64 [K - 1]: the least distance of each from the one before.
      weights: float64 [K], positive: how much each counts; by default all alike.

    Returns:
      float64 [K], ascending: those of the least sum of weighted squares of what they moved by.
    """
    if len(wanted) < 2:
        return np.array(wanted, np.float64)
    packed = np.concatenate([[0.0], np.cumsum(gaps)])
    return optimize.isotonic_regression(wanted - packed, weights=weights).x + packed


def _distinct(
    num_nodes: int, senders: np.ndarray, receivers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.unique(np.asarray(senders, np.int64) * num_nodes + receivers)
    return pairs // num_nodes, pairs % num_nodes


def _with_dummies(layer: np.ndarray, senders: np.ndarray, receivers: np.ndarray) -> _Items:
    num_nodes = len(layer)
    between = layer[receivers] - layer[senders] - 1
    longest = np.zeros(num_nodes, np.int64)  # dummies that the edges of a sender would need
    np.maximum.at(longest, senders, between)
    most = max(_DUMMIES_ANYWAY, _DUMMIES * (num_nodes + len(senders)))
    ranked = np.argsort(longest, kind="stable")
    counts = np.zeros(num_nodes, np.int64)
    affordable = ranked[np.cumsum(longest[ranked]) <= most]
    counts[affordable] = longest[affordable]
    first = num_nodes + np.cumsum(counts) - counts
    owner = np.repeat(np.arange(num_nodes), counts)
    dummies = num_nodes + np.arange(len(owner))
    place = dummies - first[owner]
    passed = np.where(counts[senders] > 0, between, 0)
    before = np.where(passed > 0, first[senders] + passed - 1, senders)
    return _Items(
        layer=np.append(layer, layer[owner] + 1 + place),
        half=np.repeat([_NODE, _DUMMY], [num_nodes, len(owner)]),
        senders=np.append(np.where(place > 0, dummies - 1, owner), before),
        receivers=np.append(dummies, receivers),
        first_dummy=first,
        passed=passed,
    )


def _across(items: _Items) -> np.ndarray:
    """Returns float64 [I]: y of every item, the least being 0."""
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
        ahead = (sweep - _SORTING - _STRAIGHTENING) % 2 == 1
        numbers = range(len(bounds) - 1)
        for number in numbers if ahead else reversed(numbers):
            inside = slice(bounds[number], bounds[number + 1])
            lines = (forwards if ahead else backwards)[number]
            y[inside] = _settled(y, inside, lines, half[inside], sorting=sweep < _SORTING)
    y += _level(bounds, senders, receivers, y)
    return (y - y.min())[rank]


def _level(
    bounds: np.ndarray, senders: np.ndarray, receivers: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Computes float64 [I]: shifts of layers, after which half of the lines into each rise.

    The sweeps let a picture climb, where its forks are alike; lines that are straight stay so
    wherever most are.
    """
    numbers = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    near = numbers[receivers] - numbers[senders] == 1
    into, rise = numbers[receivers[near]], (y[receivers] - y[senders])[near]
    ranked = np.lexsort((rise, into))
    ends = np.searchsorted(into[ranked], np.arange(len(bounds)))
    has_any = np.flatnonzero(np.diff(ends))
    rises = np.zeros(len(bounds) - 1)
    middle = ends[has_any] + ends[has_any + 1]
    rises[has_any] = (rise[ranked][(middle - 1) // 2] + rise[ranked][middle // 2]) / 2
    return -np.cumsum(rises)[numbers]


def _lines(
    origins: np.ndarray, ends: np.ndarray, weights: np.ndarray, bounds: np.ndarray
) -> list[_Lines]:
    """Groups lines by the layer of their ends, whose items are numbered from bound to bound."""
    ranked = np.argsort(ends, kind="stable")
    split = np.searchsorted(ends[ranked], bounds[1:-1])
    columns = (np.split(column[ranked], split) for column in (origins, ends, weights))
    return [_Lines(*parts) for parts in zip(*columns, strict=True)]


def _settled(
    y: np.ndarray, inside: slice, lines: _Lines, half: np.ndarray, *, sorting: bool
) -> np.ndarray:
    """Moves a layer's items as near to their neighbours as there is room for."""
    now, places = y[inside], lines.ends - inside.start
    if len(now) == 1:  # as most are in deep graphs
        return lines.weights @ y[lines.origins] / lines.weights.sum() if len(places) else now
    weight = np.bincount(places, lines.weights, len(now))
    pulled = np.bincount(places, lines.weights * y[lines.origins], len(now))
    wanted = np.where(weight > 0, pulled / np.maximum(weight, _LOOSE), now)
    # Means that differ by rounding alone are equal: their items stay in the order they have.
    order = np.lexsort((now, wanted.round(6))) if sorting else np.argsort(now)
    gaps = half[order][1:] + half[order][:-1]
    settled = np.empty(len(now))
    settled[order] = spread(wanted[order], gaps, np.maximum(weight, _LOOSE)[order])
    return settled


def _paths(
    items: _Items, y: np.ndarray, senders: np.ndarray, receivers: np.ndarray
) -> tuple[np.ndarray, ...]:
    counts = items.passed + 2
    ends = np.cumsum(counts)
    starts = ends - counts
    along = np.arange(counts.sum()) - np.repeat(starts, counts)
    passed = np.repeat(items.first_dummy[senders] - 1, counts) + along
    passed[starts], passed[ends - 1] = senders, receivers
    points = np.stack([items.layer[passed], y[passed]], axis=1).astype(np.float64)
    return tuple(np.split(points, ends[:-1])) if len(ends) else ()
