"""Orders of co-location classes; block moves take intervals of them.

The compiled search tests whether a class is in a block by comparing its rank with the block's
ends. The host computes the orders once. There are four kinds:

    time    the simulator's order of priority, and a topological order
    role    classes whose names differ in one number, such as a layer's in all time steps, or that
            share a folder, in the order of priority
    ball    breadth-first orders from a seed, along the edges, against them or both ways. The
            beginning of such an order is the seed's descendants, its ancestors or its
            surroundings, nearest first
    group   random parses (`placement.search.random_parsing`). Their groups are intervals and
            seldom separate the ends of an expensive edge
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag
from placement.instance import Instance
from placement.search import random_parsing
from placement.types import Array

KINDS = ("time", "role", "ball", "group")
TIME, ROLE, BALL, GROUP = range(len(KINDS))
_LEAST_WEIGHT = 0.2  # of an edge, added to its delay over the median delay


class Orders(NamedTuple):
    """R orders of C classes, kind after kind; jit takes the arrays as arguments."""

    ranks: Array  # int16 or int32 [R, C]: position of a class; C where it is not in the order
    lengths: Array  # int32 [R]: number of classes in each order
    first_order: Array  # int32 [num_kinds]: index of each kind's first order
    num_orders: Array  # int32 [num_kinds]
    groups: Array  # int32 [P, T, 2]: begin and end of the groups of each parse
    num_groups: Array  # int32 [P]
    # float32 [R, C + 1]: bytes of all classes before a rank; None where no memory is limited
    prefix_bytes: Array | None


class ClassGraph(NamedTuple):
    """The graph of C classes that orders are computed from, on the host."""

    names: list[str]  # of each class's first operation
    senders: np.ndarray  # int [Q]: edges between classes
    receivers: np.ndarray  # int [Q]
    edge_weights: np.ndarray  # float64 [Q], of order 1: cost of separating an edge's ends
    memory_bytes: np.ndarray | None  # float64 [C]; None where no memory is limited


class MaxOrders(NamedTuple):
    """Largest number of orders of each kind."""

    role: int
    ball: int
    group: int


_MAX_ORDERS = MaxOrders(role=512, ball=512, group=64)
# Largest number of orders times classes, so that large graphs have fewer orders.
_MAX_RANKS = MaxOrders(role=2**63, ball=2**22, group=2**20)


def compute_orders(problem: Instance, rng: np.random.Generator) -> Orders:
    """Computes the orders of a problem's classes on the host; `rng` draws seeds and parses."""
    graph, classes = problem.graph, problem.classes
    num_classes = len(classes.first_ops)
    time_orders = [
        np.array(list(dict.fromkeys(classes.ids[order].tolist())))
        for order in (problem.priority_order, problem.topological_order)
    ]
    is_limited = len(problem.memory_limits.capacity_bytes) > 0
    class_graph = ClassGraph(
        [graph.op_names[op] for op in classes.first_ops],
        *class_edges(graph.senders, graph.receivers, problem.mean_edge_delay_s, classes.ids),
        classes.memory_bytes if is_limited else None,
    )
    max_orders = MaxOrders(
        role=_MAX_ORDERS.role,
        ball=max(1, min(_MAX_ORDERS.ball, _MAX_RANKS.ball // num_classes)),
        group=max(1, min(_MAX_ORDERS.group, _MAX_RANKS.group // num_classes)),
    )
    return draw_orders(class_graph, time_orders, max_orders, rng)


def draw_orders(
    class_graph: ClassGraph,
    time_orders: list[np.ndarray],
    max_orders: MaxOrders,
    rng: np.random.Generator,
) -> Orders:
    """Draws orders of classes on the host.

    Args:
      class_graph: the classes and their edges.
      time_orders: orders of all classes in time; role orders follow the first.
      max_orders: largest number of orders of the other kinds.
      rng: draws the seeds of balls, and parses.
    """
    names, senders, receivers, edge_weights, memory_bytes = class_graph
    size = len(names)
    role_orders = _matching_classes(names, time_orders[0], max_orders.role)
    adjacency = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), (size, size))
    # Matrices to search breadth first, and whether along their direction alone.
    searches = (adjacency, False), (adjacency, True), (adjacency.T.tocsr(), True)
    balls = []
    for i, seed in enumerate(rng.permutation(size)[: max_orders.ball].tolist()):
        matrix, directed = searches[i % len(searches)]
        balls.append(
            csgraph.breadth_first_order(matrix, seed, directed=directed, return_predecessors=False)
        )
    parses = random_parsing.draw_parses(
        rng, size, senders, receivers, edge_weights, max_orders.group
    )
    orders = [*time_orders, *role_orders, *balls, *np.argsort(parses.ranks, axis=1)]
    ranks = np.full((len(orders), size), size, np.int16 if size < 2**15 - 1 else np.int32)
    prefix_bytes = np.zeros((len(orders), size + 1))
    for i, order in enumerate(orders):
        ranks[i, order] = np.arange(len(order))
        if memory_bytes is not None:
            np.cumsum(memory_bytes[order], out=prefix_bytes[i, 1 : len(order) + 1])
            prefix_bytes[i, len(order) + 1 :] = prefix_bytes[i, len(order)]
    num_orders = np.array(
        [len(time_orders), len(role_orders), len(balls), max_orders.group], np.int32
    )
    # Padded to the largest possible number of groups, so that all draws have equal shapes.
    padding = ((0, 0), (0, size - parses.groups.shape[1]), (0, 0))
    return Orders(
        ranks=ranks,
        lengths=np.array([len(order) for order in orders], np.int32),
        first_order=np.cumsum(num_orders) - num_orders,
        num_orders=num_orders,
        groups=np.pad(parses.groups, padding, mode="edge").astype(np.int32),
        num_groups=parses.num_groups.astype(np.int32),
        prefix_bytes=None if memory_bytes is None else prefix_bytes.astype(np.float32),
    )


def class_edges(
    senders: np.ndarray, receivers: np.ndarray, delay_s: np.ndarray, class_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the edges between classes and weighs them by the cost of separating their ends.

    Args:
      senders: int [E], operations.
      receivers: int [E], operations.
      delay_s: float64 [E].
      class_ids: int32 [N], class of each operation.

    Returns:
      Senders and receivers int [Q], classes; weights float64 [Q], of order 1.
    """
    num_classes = int(class_ids.max()) + 1
    class_senders, class_receivers = dag.quotient(senders, receivers, class_ids)
    longest_s = np.zeros(len(class_senders))
    # Ascending numbers of pairs of classes, to look up the edge between two classes.
    pairs = class_senders.astype(np.int64) * num_classes + class_receivers
    edge_pairs = class_ids[senders].astype(np.int64) * num_classes + class_ids[receivers]
    crosses = class_ids[senders] != class_ids[receivers]
    np.maximum.at(longest_s, np.searchsorted(pairs, edge_pairs[crosses]), delay_s[crosses])
    positive_s = longest_s[longest_s > 0]
    unit_s = np.median(positive_s) if len(positive_s) else 1.0
    return class_senders, class_receivers, _LEAST_WEIGHT + longest_s / unit_s


def pad_orders(orders: Orders, num_orders: int, num_classes: int) -> Orders:
    """Adds orders that are never drawn and classes that are in no order, up to these numbers."""
    size = orders.ranks.shape[1]
    more_orders, more_classes = num_orders - len(orders.ranks), num_classes - size
    ranks = np.where(orders.ranks == size, num_classes, orders.ranks)
    padding = ((0, more_orders), (0, more_classes))
    prefix_bytes = orders.prefix_bytes
    return orders._replace(
        ranks=np.pad(ranks, padding, constant_values=num_classes),
        lengths=np.pad(orders.lengths, (0, more_orders)),
        groups=np.pad(orders.groups, ((0, 0), (0, more_classes), (0, 0)), mode="edge"),
        prefix_bytes=None if prefix_bytes is None else np.pad(prefix_bytes, padding, "edge"),
    )


def _matching_classes(names: list[str], order: np.ndarray, max_orders: int) -> list[np.ndarray]:
    """Returns the largest sets of classes whose names share a pattern, each in the given order."""
    sets: dict[str, list[int]] = {}
    for class_id in order.tolist():
        for pattern in _list_patterns(names[class_id]):
            sets.setdefault(pattern, []).append(class_id)
    proper_sets = [members for members in sets.values() if 1 < len(members) < len(names)]
    largest_sets = sorted(proper_sets, key=len, reverse=True)[:max_orders]
    return [np.array(members) for members in largest_sets]


def _list_patterns(name: str) -> Iterator[str]:
    """Yields the patterns of a name: with the numbers of one part replaced, and its folders."""
    parts = name.split("/")
    for i, part in enumerate(parts):
        if (pattern := re.sub(r"\d+", "*", part)) != part:
            yield "/".join([*parts[:i], pattern, *parts[i + 1 :]])
        if i:
            yield "/".join([*parts[:i], ""])
