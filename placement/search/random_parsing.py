"""Random parses of a graph: nested groups that seldom separate the ends of an expensive edge.

Every node keeps the edge with its highest score, as in HSDAG's parsing (Duan et al. 2024, section
2.3). The components of the kept edges become the nodes of the next level, until no edge is left.
Here the scores are random: u ** (1 / w) for a uniform u and an edge's weight w. Each edge of a node
then has the highest score with a probability proportional to its weight (Efraimidis and Spirakis
2006). A level also drops kept edges with a random probability, so that group sizes vary.

Because groups are nested, some order of the nodes has every group as an interval.
"""

from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

_MAX_LEVELS = 24
_LEAST_KEEP_PROBABILITY = 0.3  # of a level, for its kept edges


class Parses(NamedTuple):
    """P parses of C nodes, with room for T groups each."""

    ranks: np.ndarray  # int [P, C]: position of a node in the parse's order
    groups: np.ndarray  # int [P, T, 2]: begin and end of each group of several nodes
    num_groups: np.ndarray  # int [P]: at least 1; a parse without groups has one of a single node


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
