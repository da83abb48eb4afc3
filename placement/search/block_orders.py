"""Orders of decisions; block moves take intervals of them.

The compiled search tests whether a decision is in a block by comparing its rank with the block's
ends. The host computes the orders once. There are three kinds:

    time    the simulator's order of priority, and a topological order
    ball    breadth-first orders from a seed, along the edges, against them or both ways. The
            beginning of such an order is the seed's descendants, its ancestors or its
            surroundings, nearest first
    group   random parses. Their groups are intervals and seldom separate the ends of an expensive
            edge

In a parse every node keeps the edge with its highest score, as in HSDAG (Duan et al. 2024, section
2.3). The components of the kept edges become the nodes of the next level, until no edge is left.
Scores are random: u ** (1 / w) for a uniform u and an edge's weight w. Each edge of a node then has
the highest one with a probability proportional to its weight (Efraimidis and Spirakis 2006). A
level also drops kept edges with a random probability, so that group sizes vary.
"""

from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag
from placement.problem import Problem
from placement.types import Array

KINDS = ("time", "ball", "group")
TIME, BALL, GROUP = range(len(KINDS))
_LEAST_WEIGHT = 0.2  # of an edge, added to its delay over the median delay
_MAX_BALLS, _MAX_GROUPS = 512, 64
# Largest number of orders times decisions, so that large graphs have fewer orders.
_MAX_BALL_RANKS, _MAX_GROUP_RANKS = 2**22, 2**18
_MAX_LEVELS = 24
_LEAST_KEEP_PROBABILITY = 0.3  # of a level, for its kept edges


class Parses(NamedTuple):
    """P parses of C nodes, with room for T groups each."""

    ranks: np.ndarray  # int [P, C]: position of a node in the parse's order
    groups: np.ndarray  # int [P, T, 2]: begin and end of each group of several nodes
    num_groups: np.ndarray  # int [P]: at least 1; a parse without groups has one of a single node


class Orders(NamedTuple):
    """R orders of K decisions, kind after kind; jit takes the arrays as arguments."""

    ranks: Array  # int16 or int32 [R, K]: position of a decision; K where it is not in the order
    lengths: Array  # int32 [R]: number of decisions in each order
    first_order: Array  # int32 [num_kinds]: index of each kind's first order
    num_orders: Array  # int32 [num_kinds]
    groups: Array  # int32 [P, T, 2]: begin and end of the groups of each parse
    num_groups: Array  # int32 [P]
    # float32 [R, K + 1]: bytes of all decisions before a rank; None where no memory is limited
    prefix_bytes: Array | None


def compute_orders(problem: Problem, rng: np.random.Generator) -> Orders:
    """Computes the orders of a problem's decisions on the host; `rng` draws seeds and parses."""
    graph, num_decisions = problem.graph, problem.num_decisions
    time_orders = [problem.order_decisions(problem.priority_order), problem.decision_order]
    is_limited = len(problem.memory_limits.capacity_bytes) > 0
    edges = weigh_edges(graph.senders, graph.receivers, problem.mean_edge_delay_s, problem.decision)
    group_size = max(num_decisions, len(edges[0]))  # an edge takes as long in a parse
    return draw_orders(
        time_orders,
        edges,
        problem.decisions.memory_bytes if is_limited else None,
        rng,
        num_balls=max(1, min(_MAX_BALLS, _MAX_BALL_RANKS // num_decisions)),
        num_groups=max(1, min(_MAX_GROUPS, _MAX_GROUP_RANKS // group_size)),
    )


def draw_orders(
    time_orders: list[np.ndarray],
    edges: tuple[np.ndarray, np.ndarray, np.ndarray],
    memory_bytes: np.ndarray | None,
    rng: np.random.Generator,
    *,
    num_balls: int,
    num_groups: int,
) -> Orders:
    """Draws orders of decisions on the host.

    Args:
      time_orders: orders of all decisions in time.
      edges: of `weigh_edges`.
      memory_bytes: float64 [K]; None where no memory is limited.
      rng: draws the seeds of balls, and parses.
      num_balls: the largest number of balls.
      num_groups: the number of parses.
    """
    senders, receivers, edge_weights = edges
    size = len(time_orders[0])
    adjacency = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), (size, size))
    # Matrices to search breadth first, and whether along their direction alone.
    searches = (adjacency, False), (adjacency, True), (adjacency.T.tocsr(), True)
    balls = []
    for i, seed in enumerate(rng.permutation(size)[:num_balls].tolist()):
        matrix, directed = searches[i % len(searches)]
        balls.append(
            csgraph.breadth_first_order(matrix, seed, directed=directed, return_predecessors=False)
        )
    parses = draw_parses(rng, size, senders, receivers, edge_weights, num_groups)
    orders = [*time_orders, *balls, *np.argsort(parses.ranks, axis=1)]
    ranks = np.full((len(orders), size), size, np.int16 if size < 2**15 - 1 else np.int32)
    prefix_bytes = np.zeros((len(orders), size + 1))
    for i, order in enumerate(orders):
        ranks[i, order] = np.arange(len(order))
        if memory_bytes is not None:
            np.cumsum(memory_bytes[order], out=prefix_bytes[i, 1 : len(order) + 1])
            prefix_bytes[i, len(order) + 1 :] = prefix_bytes[i, len(order)]
    num_orders = np.array([len(time_orders), len(balls), num_groups], np.int32)
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


def draw_parses(
    rng: np.random.Generator,
    num_nodes: int,
    senders: np.ndarray,
    receivers: np.ndarray,
    edge_weights: np.ndarray,
    num_parses: int,
) -> Parses:
    """Draws all parses at once.

    Args:
      rng: draws scores and dropped edges.
      num_nodes: C, at least 1.
      senders: int [E].
      receivers: int [E].
      edge_weights: float [E], positive: cost of separating an edge's ends.
      num_parses: P.
    """
    chex.assert_equal_shape([senders, receivers, edge_weights])
    chex.assert_type([senders, receivers, edge_weights], [int, int, float])
    # Parse p's copy of node c is p * C + c. One call then finds the components of all parses.
    parse = np.repeat(np.arange(num_parses), len(senders))
    ends = np.stack([np.tile(senders, num_parses), np.tile(receivers, num_parses)])
    ends = ends + parse * num_nodes
    exponent = np.tile(1 / edge_weights, num_parses)
    keep_probabilities = rng.uniform(_LEAST_KEEP_PROBABILITY, 1.0, (_MAX_LEVELS, num_parses))
    group = np.arange(num_parses * num_nodes)
    num_groups = len(group)
    levels: list[np.ndarray] = []
    for keep_probability in keep_probabilities:
        crosses = ends[0] != ends[1]
        parse, ends, exponent = parse[crosses], ends[:, crosses], exponent[crosses]
        if not len(parse):
            break
        scores = rng.random(len(parse)) ** exponent
        highest = np.zeros(num_groups)
        np.maximum.at(highest, ends.ravel(), np.tile(scores, 2))
        is_kept = (scores == highest[ends]).any(axis=0)
        is_kept &= rng.random(len(parse)) < keep_probability[parse]
        matrix = sparse.coo_array((np.ones(is_kept.sum()), ends[:, is_kept]), (num_groups,) * 2)
        num_groups, component = csgraph.connected_components(matrix, directed=False)
        ends, group = component[ends], component[group]
        levels.append(group.reshape(num_parses, num_nodes))

    # Orders of the nodes in which the groups of all levels are intervals.
    nodes = np.tile(np.arange(num_nodes), (num_parses, 1))
    order = np.lexsort([nodes, *levels], axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, nodes, axis=1)
    # Columns of (parse, begin, end). The first of each parse is its first node alone.
    intervals = [np.stack([np.arange(num_parses), *np.zeros((2, num_parses), int)])]
    intervals[0][2] = 1
    for level in levels:
        ordered_groups = np.take_along_axis(level, order, axis=1)
        is_begin = np.ones((num_parses, num_nodes), bool)
        is_begin[:, 1:] = ordered_groups[:, 1:] != ordered_groups[:, :-1]
        begin = np.flatnonzero(is_begin)
        length = np.diff(begin, append=is_begin.size)
        begin, length = begin[length > 1], length[length > 1]
        parse, begin = np.divmod(begin, num_nodes)
        intervals.append(np.stack([parse, begin, begin + length]))
    parse, begin, end = np.unique(np.concatenate(intervals, axis=1), axis=1)
    count = np.bincount(parse, minlength=num_parses)
    # The single node sorts first; it is left out of parses that have groups.
    is_single = count == 1
    first = np.cumsum(count) - count + ~is_single
    count = count - ~is_single
    columns = first[:, None] + np.minimum(np.arange(count.max()), count[:, None] - 1)
    return Parses(ranks, np.stack([begin[columns], end[columns]], axis=-1), count)


def weigh_edges(
    senders: np.ndarray, receivers: np.ndarray, delay_s: np.ndarray, decision: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the edges between decisions and weighs them by the cost of separating their ends.

    Args:
      senders: int [E], operations.
      receivers: int [E], operations.
      delay_s: float64 [E].
      decision: int32 [N], of each operation.

    Returns:
      Senders and receivers int [Q], decisions; weights float64 [Q], of order 1.
    """
    num_decisions = int(decision.max()) + 1
    outer_senders, outer_receivers = dag.quotient(senders, receivers, decision)
    longest_s = np.zeros(len(outer_senders))
    # Ascending numbers of pairs of decisions, to look up the edge between two.
    pairs = outer_senders.astype(np.int64) * num_decisions + outer_receivers
    edge_pairs = decision[senders].astype(np.int64) * num_decisions + decision[receivers]
    crosses = decision[senders] != decision[receivers]
    np.maximum.at(longest_s, np.searchsorted(pairs, edge_pairs[crosses]), delay_s[crosses])
    positive_s = longest_s[longest_s > 0]
    unit_s = np.median(positive_s) if len(positive_s) else 1.0
    return outer_senders, outer_receivers, _LEAST_WEIGHT + longest_s / unit_s


def pad_orders(orders: Orders, num_orders: int, num_decisions: int) -> Orders:
    """Adds orders that are never drawn and decisions that are in no order, up to these numbers."""
    size = orders.ranks.shape[1]
    more_orders, more_decisions = num_orders - len(orders.ranks), num_decisions - size
    ranks = np.where(orders.ranks == size, num_decisions, orders.ranks)
    padding = ((0, more_orders), (0, more_decisions))
    prefix_bytes = orders.prefix_bytes
    return orders._replace(
        ranks=np.pad(ranks, padding, constant_values=num_decisions),
        lengths=np.pad(orders.lengths, (0, more_orders)),
        groups=np.pad(orders.groups, ((0, 0), (0, more_decisions), (0, 0)), mode="edge"),
        prefix_bytes=None if prefix_bytes is None else np.pad(prefix_bytes, padding, "edge"),
    )
