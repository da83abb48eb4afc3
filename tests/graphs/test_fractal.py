import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from placement.graphs.fractal import fractal_dimension
from tests import helpers


def _ball_sizes(graph, node):
    """Counts nodes within 1, 2, ... hops by breadth-first search, until no node is added."""
    neighbours = {op: set() for op in range(graph.num_ops)}
    for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        neighbours[sender].add(receiver)
        neighbours[receiver].add(sender)
    ball, sizes = {node}, []
    while grown := set().union(*(neighbours[op] for op in ball)) - ball:
        ball |= grown
        sizes.append(len(ball))
    return sizes


def _slope(sizes):
    if len(sizes) < 2:
        return 0.0
    return np.polyfit(np.log(np.arange(1, len(sizes) + 1)), np.log(sizes), 1)[0]


def test_path_of_four_by_hand():
    # From an end: 2, 3, 4 nodes at r = 1, 2, 3; worked out with x = log r about its mean.
    x = np.log([1, 2, 3]) - math.log(6) / 3
    end = x @ np.log([2, 3, 4]) / (x @ x)
    inner = math.log(4 / 3) / math.log(2)
    expected = [end, inner, inner, end]
    np.testing.assert_allclose(fractal_dimension(helpers.chain(4)), expected, rtol=1e-12)
    assert end == pytest.approx(0.6260, abs=1e-4)


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_equals_plain_search(seed, radius):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 16))
    graph = helpers.random_dag(rng, n, edge_probability=rng.random() / 2)
    sizes = [_ball_sizes(graph, node) for node in range(n)]

    def close(expected, **bounds):
        np.testing.assert_allclose(fractal_dimension(graph, **bounds), expected, atol=1e-9)

    close([_slope(each) for each in sizes])
    close([_slope(each) for each in sizes], exact_limit=0, radius=n)
    close([_slope(each[:radius]) for each in sizes], exact_limit=n - 1, radius=radius)


def test_large_path():
    result = fractal_dimension(helpers.chain(5_000))
    inner = _slope([2 * r + 1 for r in range(1, 9)])
    assert result.dtype == np.float64
    np.testing.assert_allclose(result[8:-8], inner, rtol=1e-12)
    assert result[0] == pytest.approx(_slope(range(2, 10)))
