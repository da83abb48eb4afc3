"""Random parses of a graph: groups within groups, of nodes that are dear to part.

Every node keeps the edge with its highest score, as HSDAG's parsing does (Duan et al. 2024, section
2.3), and what kept edges connect becomes a node of the next level, until no edge is left. Here
scores are random, u ** (1 / w) of u uniform and an edge's weight w, so that of the edges of a node
each is the highest with a probability proportional to its weight (Efraimidis and Spirakis 2006);
and a kept edge is dropped with a probability of the level's, so that sizes vary.

As groups are nested, there is an order of the nodes in which every group is an interval.
"""

from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

_LEVELS = 24  # at most
_LEAST_KEPT = 0.3  # of the probabilities to keep an edge


class Parses(NamedTuple):
    """P parses of C nodes; a row has T places for its groups, those of several nodes."""

    rank: np.ndarray  # int [P, C]: where a node stands in the parse's order
    groups: np.ndarray  # int [P, T, 2]: begin and end of each group there
    num_groups: np.ndarray  # int [P]: at least 1, which may be of one node


def draw(
    rng: np.random.Generator,
    num_nodes: int,
    senders: np.ndarray,
    receivers: np.ndarray,
    weight: np.ndarray,
    num_parses: int,
) -> Parses:
    """Draws parses, all of them at once.

    Args:
      rng: of all randomness.
      num_nodes: C, at least 1.
      senders: int [E].
      receivers: int [E].
      weight: float [E], positive: how dear it is to part an edge's ends.
      num_parses: P.
    """
    chex.assert_equal_shape([senders, receivers, weight])
    chex.assert_type([senders, receivers, weight], [int, int, float])
    # Parse p's copy of node c is p * C + c: one graph, whose components are found in one call.
    parse = np.repeat(np.arange(num_parses), len(senders))
    ends = np.stack([np.tile(senders, num_parses), np.tile(receivers, num_parses)])
    ends = ends + parse * num_nodes
    exponent = np.tile(1 / weight, num_parses)
    kept = rng.uniform(_LEAST_KEPT, 1.0, (_LEVELS, num_parses))
    group = np.arange(num_parses * num_nodes)
    levels: list[np.ndarray] = []
    num_groups = len(group)
    for share in kept:
        apart = ends[0] != ends[1]
        parse, ends, exponent = parse[apart], ends[:, apart], exponent[apart]
        if not len(parse):
            break
        keeps = _highest(rng.random(len(parse)) ** exponent, ends, num_groups)
        keeps &= rng.random(len(parse)) < share[parse]
        matrix = sparse.coo_array((np.ones(keeps.sum()), ends[:, keeps]), (num_groups,) * 2)
        num_groups, joined = csgraph.connected_components(matrix, directed=False)
        ends, group = joined[ends], joined[group]
        levels.append(group.reshape(num_parses, num_nodes))
    return _nested(levels, num_parses, num_nodes)


def _highest(score: np.ndarray, ends: np.ndarray, num_groups: int) -> np.ndarray:
    """Whether an edge is the highest of either end, bool [E]."""
    highest = np.zeros(num_groups)
    np.maximum.at(highest, ends.ravel(), np.tile(score, 2))
    return (score == highest[ends]).any(axis=0)


def _nested(levels: list[np.ndarray], num_parses: int, num_nodes: int) -> Parses:
    """The order that keeps the groups of all levels together, each int [P, C], and the groups."""
    nodes = np.tile(np.arange(num_nodes), (num_parses, 1))
    order = np.lexsort([nodes, *levels], axis=1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, nodes, axis=1)
    places = [np.stack([np.arange(num_parses), *np.zeros((2, num_parses), int)])]
    places[0][2] = 1  # so that a row has one at least
    for level in levels:
        inner = np.take_along_axis(level, order, axis=1)
        begins = np.ones((num_parses, num_nodes), bool)
        begins[:, 1:] = inner[:, 1:] != inner[:, :-1]
        begin = np.flatnonzero(begins)
        length = np.diff(begin, append=begins.size)
        begin, length = begin[length > 1], length[length > 1]
        row, begin = np.divmod(begin, num_nodes)
        places.append(np.stack([row, begin, begin + length]))
    row, begin, end = np.unique(np.concatenate(places, axis=1), axis=1)
    count = np.bincount(row, minlength=num_parses)
    # The first of a row is of one node, and comes first: it is left out where there are others.
    only = count == 1
    first = np.cumsum(count) - count + ~only
    count = count - ~only
    nth = np.arange(count.max())
    chosen = first[:, None] + np.minimum(nth, count[:, None] - 1)
    return Parses(rank, np.stack([begin[chosen], end[chosen]], axis=-1), count)
