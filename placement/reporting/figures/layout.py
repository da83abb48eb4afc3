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
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from placement.graphs import dag

_SORTING, _STRAIGHTENING = 8, 7  # number of sweeps; the last one goes forwards
_NODE, _DUMMY = 0.5, 0.1  # half the height of an item
_LONGEST = 100  # layers; a longer edge goes straight, without dummies
_LOOSE = 0.5  # weight of an item without lines
_STRAIGHTNESS = (1.0, 2.0, 8.0)  # weight of a line with 0, 1 or 2 dummies as ends


class Layout(NamedTuple):
    """A drawing of K nodes: lengths are in layers along x, and in nodes side by side along y."""

    x: np.ndarray  # float64 [K]: the layer
    y: np.ndarray  # float64 [K]: two nodes of a layer are at least 1 apart
    # For each edge float64 [P, 2]: waypoints from its sender to its receiver, both included.
    paths: tuple[np.ndarray, ...]


def layered(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> Layout:
    """Draws an acyclic graph in layers; equal graphs are drawn equally.

    Args:
      num_nodes: K.
      senders: int [E]; parallel edges are drawn equally.
      receivers: int [E].
    """
    senders, receivers = np.asarray(senders, np.int64), np.asarray(receivers, np.int64)
    layer = layers(num_nodes, senders, receivers).astype(np.int64)
    passed = layer[receivers] - layer[senders] - 1  # dummies that each edge passes through
    passed[passed > _LONGEST] = 0
    counts = np.zeros(num_nodes, np.int64)
    np.maximum.at(counts, senders, passed)
    # Items: the nodes, then the dummies of each sender in the order of their layers.
    first_dummy = num_nodes + np.cumsum(counts) - counts
    owner = np.repeat(np.arange(num_nodes), counts)
    dummies = num_nodes + np.arange(len(owner))
    place = dummies - first_dummy[owner]
    item_layer = np.append(layer, layer[owner] + 1 + place)
    half = np.repeat([_NODE, _DUMMY], [num_nodes, len(owner)])
    last_items = np.where(passed > 0, first_dummy[senders] + passed - 1, senders)
    line_senders = np.append(np.where(place > 0, dummies - 1, owner), last_items)
    line_receivers = np.append(dummies, receivers)
    y = _heights(item_layer, half, line_senders, line_receivers)
    paths = []
    for sender, receiver, num_passed in zip(senders, receivers, passed, strict=True):
        start = first_dummy[sender]
        items = [sender, *range(start, start + num_passed), receiver]
        paths.append(np.stack([item_layer[items], y[items]], axis=1).astype(np.float64))
    return Layout(layer.astype(np.float64), y[:num_nodes], tuple(paths))


def layers(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Computes the layer of every node, int32 [K]: its depth, or the layer before its reader.

    A chain that serves a single node, such as a constant and its conversion, stands directly before
    that node instead of in the first layers.
    """
    layer = dag.levels(num_nodes, senders, receivers)
    pairs = np.unique(np.asarray(senders, np.int64) * num_nodes + receivers)
    senders, receivers = pairs // num_nodes, pairs % num_nodes
    single = np.bincount(senders, minlength=num_nodes) == 1
    edges = np.stack([senders, receivers], axis=1)
    serves = np.ones(num_nodes, bool)  # whether the node and its ancestors serve one node only
    for sender, receiver in edges[np.argsort(layer[receivers], kind="stable")]:
        serves[receiver] &= serves[sender] and single[sender]
    for sender, receiver in edges[np.argsort(-layer[senders], kind="stable")]:
        if serves[sender] and single[sender]:
            layer[sender] = layer[receiver] - 1
    return layer


def _heights(
    item_layer: np.ndarray, half: np.ndarray, senders: np.ndarray, receivers: np.ndarray
) -> np.ndarray:
    """Returns y of every item, float64 [I], with minimum 0.

    `half`, float64 [I], is half the height of each item. Lines lead from item to item, int64 [L].
    """
    # From here on items are sorted by layer, so that a layer is a slice.
    ranked = np.argsort(item_layer, kind="stable")
    rank, half = np.argsort(ranked), half[ranked]
    senders, receivers = rank[senders], rank[receivers]
    bounds = np.searchsorted(item_layer[ranked], np.arange(item_layer.max() + 2))
    y = np.concatenate([np.cumsum(2 * part) - part.sum() for part in np.split(half, bounds[1:-1])])
    is_dummy = (half == _DUMMY).astype(int)
    weights = np.array(_STRAIGHTNESS)[is_dummy[senders] + is_dummy[receivers]]
    sorted_lines = []  # backwards and forwards: origins, ends and weights, sorted by ends
    for origins, ends in ((receivers, senders), (senders, receivers)):
        order = np.argsort(ends, kind="stable")
        splits = np.searchsorted(ends[order], bounds)
        sorted_lines.append((origins[order], ends[order], weights[order], splits))
    num_layers = len(bounds) - 1
    for sweep in range(_SORTING + _STRAIGHTENING):
        is_forward = (sweep - _SORTING - _STRAIGHTENING) % 2 == 1
        origins, ends, line_weights, splits = sorted_lines[is_forward]
        for number in range(num_layers) if is_forward else reversed(range(num_layers)):
            inside = slice(bounds[number], bounds[number + 1])
            lines = slice(splits[number], splits[number + 1])
            current, places = y[inside], ends[lines] - inside.start
            weight = np.bincount(places, line_weights[lines], len(current))
            total = np.bincount(places, line_weights[lines] * y[origins[lines]], len(current))
            targets = np.where(weight > 0, total / np.maximum(weight, _LOOSE), current)
            if len(current) == 1:  # most layers of deep graphs
                y[inside] = targets
                continue
            # Means that differ only by rounding count as equal: their items keep their order.
            is_sorting = sweep < _SORTING
            order = np.lexsort((current, targets.round(6))) if is_sorting else np.argsort(current)
            heights = half[inside][order]
            packed = np.append(0.0, np.cumsum(heights[1:] + heights[:-1]))
            distances = targets[order] - packed
            weight = np.maximum(weight, _LOOSE)[order]
            y[inside.start + order] = (
                optimize.isotonic_regression(distances, weights=weight).x + packed
            )
    # Shift each layer by the median rise of the lines into it; else similar forks would climb.
    numbers = np.repeat(np.arange(num_layers), np.diff(bounds))
    origins, ends, _, splits = sorted_lines[True]
    rises = y[ends] - y[origins]
    shifts = np.zeros(num_layers)
    for number in range(1, num_layers):
        lines = slice(splits[number], splits[number + 1])
        adjacent = rises[lines][numbers[origins[lines]] == number - 1]
        shifts[number] = np.median(adjacent) if len(adjacent) else 0.0
    y -= np.cumsum(shifts)[numbers]
    return (y - y.min())[rank]
