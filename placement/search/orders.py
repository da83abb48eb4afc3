"""What blocks of operations are drawn from: orders of the classes of co-located operations.

A block is an interval of an order, so that membership is a comparison of ranks, inside jit. There
are four kinds of orders, of which the host computes some once:

    time    the simulator's order of priority, and a topological order
    role    the classes whose names are alike but for one number, such as a layer's in all steps,
            or that are of one folder, in the order of priority
    ball    breadth-first orders from a seed, against the edges, along them or both ways: so the
            beginning of one is the seed's ancestors, its descendants or all around, nearest first
    group   random parses, whose groups are intervals and seldom part what is dear to part
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag, roles
from placement.instance import Instance
from placement.search import parses
from placement.types import Array

KINDS = ("time", "role", "ball", "group")
TIME, ROLE, BALL, GROUP = range(len(KINDS))
_LEAST_WEIGHT = 0.2  # of an edge, beside its delay over the median


class Orders(NamedTuple):
    """R orders of C classes; arrays that jit takes as arguments."""

    # int16 or int32 [R, C]: where a class stands, C where it is not in the order; kind after kind.
    rank: Array
    length: Array  # int32 [R]: how many classes an order has
    first: Array  # int32 [K]: the first order of each kind
    number: Array  # int32 [K]: how many of each kind there are
    groups: Array  # int32 [P, T, 2]: begin and end of the groups of each parse
    num_groups: Array  # int32 [P]
    # float32 [R, C + 1]: what the classes before a rank occupy; None where no memory is limited
    before_bytes: Array | None


class Parts(NamedTuple):
    """The C classes that orders are made of, on the host."""

    names: list[str]  # of the first operation of each
    senders: np.ndarray  # int [Q]: edges between classes
    receivers: np.ndarray  # int [Q]
    weight: np.ndarray  # float64 [Q], of order 1: how dear it is to part an edge's ends
    memory_bytes: np.ndarray | None  # float64 [C]; None where no memory is limited


class Most(NamedTuple):
    """How many orders there are of each kind, at most."""

    role: int
    ball: int
    group: int


_MOST = Most(role=512, ball=512, group=64)
_RANKS = Most(role=2**63, ball=2**22, group=2**20)  # of all orders of a kind together


def make(problem: Instance, rng: np.random.Generator) -> Orders:
    """Computes the orders of a problem, on the host.

    Args:
      problem: what is to be placed.
      rng: of all randomness.
    """
    graph, classes = problem.graph, problem.classes
    size = len(classes.first_ops)
    time = [
        np.array(list(dict.fromkeys(classes.ids[order].tolist())))
        for order in (problem.priority_order, problem.topological_order)
    ]
    limited = len(problem.memory_limits.capacity_bytes) > 0
    parts = Parts(
        [graph.op_names[op] for op in classes.first_ops],
        *edges_between(graph.senders, graph.receivers, problem.mean_edge_delay_s, classes.ids),
        classes.memory_bytes if limited else None,
    )
    most = Most(
        role=_MOST.role,
        ball=max(1, min(_MOST.ball, _RANKS.ball // size)),
        group=max(1, min(_MOST.group, _RANKS.group // size)),
    )
    return draw(parts, time, most, rng)


def draw(parts: Parts, time: list[np.ndarray], most: Most, rng: np.random.Generator) -> Orders:
    """Draws the orders of classes, on the host.

    Args:
      parts: the classes.
      time: orders of all of them in time; the first is that of roles.
      most: how many there are of the other kinds.
      rng: of all randomness.
    """
    size = len(parts.names)
    of_roles = _roles(parts.names, time[0], most.role)
    balls = _balls(size, parts.senders, parts.receivers, most.ball, rng)
    parsed = parses.draw(rng, size, parts.senders, parts.receivers, parts.weight, most.group)
    listed = [*time, *of_roles, *balls, *np.argsort(parsed.rank, axis=1)]
    number = np.array([len(time), len(of_roles), len(balls), most.group], np.int32)
    return Orders(
        rank=_ranks(listed, size),
        length=np.array([len(order) for order in listed], np.int32),
        first=np.cumsum(number) - number,
        number=number,
        groups=_padded(parsed.groups, size),
        num_groups=parsed.num_groups.astype(np.int32),
        before_bytes=_before_bytes(parts.memory_bytes, listed),
    )


def edges_between(
    senders: np.ndarray, receivers: np.ndarray, delay_s: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the edges between classes, and how dear it is to part the ends of each.

    Args:
      senders: int [E], operations.
      receivers: int [E].
      delay_s: float64 [E].
      number: int32 [N], the class of every operation.

    Returns:
      Senders and receivers int [Q], classes; weights float64 [Q], of order 1.
    """
    size = int(number.max()) + 1
    between = dag.quotient(senders, receivers, number)
    longest_s = np.zeros(len(between[0]))
    pair = between[0].astype(np.int64) * size + between[1]  # ascending
    source, target = number[senders].astype(np.int64), number[receivers]
    apart = source != target
    edge = np.searchsorted(pair, (source * size + target)[apart])
    np.maximum.at(longest_s, edge, delay_s[apart])
    some = longest_s[longest_s > 0]
    weight = _LEAST_WEIGHT + longest_s / (np.median(some) if len(some) else 1.0)
    return *between, weight


def pad(orders: Orders, num_orders: int, size: int) -> Orders:
    """Adds orders that are never drawn and classes that are in none, up to so many of both."""
    more, classes = num_orders - len(orders.rank), size - orders.rank.shape[1]
    rank = np.where(orders.rank == orders.rank.shape[1], size, orders.rank)
    before = orders.before_bytes
    return orders._replace(
        rank=np.pad(rank, ((0, more), (0, classes)), constant_values=size),
        length=np.pad(orders.length, (0, more)),
        groups=np.pad(orders.groups, ((0, 0), (0, classes), (0, 0)), mode="edge"),
        before_bytes=None if before is None else np.pad(before, ((0, more), (0, classes)), "edge"),
    )


def _padded(groups: np.ndarray, size: int) -> np.ndarray:
    """Groups of as many places as there can be, so that no draw has a shape of its own."""
    places = ((0, 0), (0, size - groups.shape[1]), (0, 0))
    return np.pad(groups, places, mode="edge").astype(np.int32)


def _ranks(orders: list[np.ndarray], size: int) -> np.ndarray:
    narrow = np.int16 if size < np.iinfo(np.int16).max else np.int32
    rank = np.full((len(orders), size), size, narrow)
    for row, order in zip(rank, orders, strict=True):
        row[order] = np.arange(len(order))
    return rank


def _roles(names: list[str], order: np.ndarray, most: int) -> list[np.ndarray]:
    """The largest sets of classes that names put together, each in the given order."""
    sets: dict[str, list[int]] = {}
    for number in order.tolist():
        for shared in roles.alike(names[number]):
            sets.setdefault(shared, []).append(number)
    some = [numbers for numbers in sets.values() if 1 < len(numbers) < len(names)]
    return [np.array(numbers) for numbers in sorted(some, key=len, reverse=True)[:most]]


def _balls(
    size: int, senders: np.ndarray, receivers: np.ndarray, most: int, rng: np.random.Generator
) -> list[np.ndarray]:
    along = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), (size, size))
    ways = (along, False), (along, True), (along.T.tocsr(), True)
    return [
        csgraph.breadth_first_order(
            ways[nth % len(ways)][0],
            seed,
            directed=ways[nth % len(ways)][1],
            return_predecessors=False,
        )
        for nth, seed in enumerate(rng.permutation(size)[:most].tolist())
    ]


def _before_bytes(memory_bytes: np.ndarray | None, orders: list[np.ndarray]) -> np.ndarray | None:
    if memory_bytes is None:
        return None
    before = np.zeros((len(orders), len(memory_bytes) + 1))
    for row, order in zip(before, orders, strict=True):
        np.cumsum(memory_bytes[order], out=row[1 : len(order) + 1])
        row[len(order) + 1 :] = row[len(order)]
    return before.astype(np.float32)
