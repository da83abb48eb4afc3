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

import re
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag
from placement.search import parses
from placement.simulators import ranks
from placement.solvers import base
from placement.types import Array, Problem

KINDS = ("time", "role", "ball", "group")
TIME, ROLE, BALL, GROUP = range(len(KINDS))
_MOST = (2, 512, 512, 64)  # orders of each kind
_RANKS = 2**22, 2**20  # of balls and of parses, together: of large graphs there are fewer
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


def make(problem: Problem, classes: base.Classes, rng: np.random.Generator) -> Orders:
    """Computes the orders of a problem, on the host.

    Args:
      problem: what is to be placed.
      classes: of the problem.
      rng: of all randomness.
    """
    graph, size = problem.graph, len(classes.compute_s)
    senders, receivers = dag.quotient_edges(graph.senders, graph.receivers, classes.number)
    time = [
        np.array(list(dict.fromkeys(classes.number[order].tolist())))
        for order in (ranks.priority_order(graph, problem.costs), dag.topological_order(graph))
    ]
    first = np.unique(classes.number, return_index=True)[1]
    roles = _roles([graph.op_names[op] for op in first], time[0])
    balls = _balls(size, senders, receivers, rng)
    weight = _weight(problem, classes, senders, receivers)
    num_parses = max(1, min(_MOST[GROUP], _RANKS[1] // size))
    parsed = parses.draw(rng, size, senders, receivers, weight, num_parses)
    listed = [*time, *roles, *balls, *np.argsort(parsed.rank, axis=1)]
    number = np.array([len(time), len(roles), len(balls), num_parses], np.int32)
    rank = _ranks(listed, size)
    return Orders(
        rank=rank,
        length=np.array([len(order) for order in listed], np.int32),
        first=np.cumsum(number) - number,
        number=number,
        groups=_padded(parsed.groups, size),
        num_groups=parsed.num_groups.astype(np.int32),
        before_bytes=_before_bytes(problem, classes, listed),
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


def _roles(names: list[str], order: np.ndarray) -> list[np.ndarray]:
    """The largest sets of classes that names put together, each in the given order."""
    sets: dict[str, list[int]] = {}
    for number in order.tolist():
        parts = names[number].split("/")
        for i, part in enumerate(parts):
            if (other := re.sub(r"\d+", "*", part)) != part:
                sets.setdefault("/".join([*parts[:i], other, *parts[i + 1 :]]), []).append(number)
            if i:
                sets.setdefault("/".join([*parts[:i], ""]), []).append(number)
    some = [numbers for numbers in sets.values() if 1 < len(numbers) < len(names)]
    return [np.array(numbers) for numbers in sorted(some, key=len, reverse=True)[: _MOST[ROLE]]]


def _balls(
    size: int, senders: np.ndarray, receivers: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    along = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), (size, size))
    ways = (along, False), (along, True), (along.T.tocsr(), True)
    most = max(1, min(_MOST[BALL], _RANKS[0] // size))
    return [
        csgraph.breadth_first_order(
            ways[nth % len(ways)][0],
            seed,
            directed=ways[nth % len(ways)][1],
            return_predecessors=False,
        )
        for nth, seed in enumerate(rng.permutation(size)[:most].tolist())
    ]


def _weight(
    problem: Problem, classes: base.Classes, senders: np.ndarray, receivers: np.ndarray
) -> np.ndarray:
    """How dear it is to part the ends of each edge between classes, float64 [Q], of order 1."""
    graph, size = problem.graph, len(classes.compute_s)
    delay_s = np.zeros(len(senders))
    pair = senders.astype(np.int64) * size + receivers  # ascending
    source = classes.number[graph.senders].astype(np.int64)
    target = classes.number[graph.receivers]
    apart = source != target
    edge = np.searchsorted(pair, (source * size + target)[apart])
    np.maximum.at(delay_s, edge, ranks.mean_delay_s(graph, problem.costs)[apart])
    some = delay_s[delay_s > 0]
    return _LEAST_WEIGHT + delay_s / (np.median(some) if len(some) else 1.0)


def _before_bytes(
    problem: Problem, classes: base.Classes, orders: list[np.ndarray]
) -> np.ndarray | None:
    if not len(base.memory(problem).capacity_bytes):
        return None
    before = np.zeros((len(orders), len(classes.memory_bytes) + 1))
    for row, order in zip(before, orders, strict=True):
        np.cumsum(classes.memory_bytes[order], out=row[1 : len(order) + 1])
        row[len(order) + 1 :] = row[len(order)]
    return before.astype(np.float32)
