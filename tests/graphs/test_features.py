import math
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import features, opgraph
from placement.graphs.features import (
    BLOCKS,
    DEFAULT_BLOCKS,
    OP_TYPES,
    fractal_dimension,
    node_features,
    parse_blocks,
    positional_encoding,
)
from tests import helpers

WIDTHS = {
    **{"op_type": len(OP_TYPES), "member_types": len(OP_TYPES), "degrees": 2, "fractal": 1},
    **{"number": 1, "positional": 16, "output_shape": 5},
}


def _one_block(graph, block):
    return node_features(graph, (block,))


def test_order_of_blocks():
    graph = helpers.random_dag(np.random.default_rng(0), 12)
    columns = node_features(graph, tuple(reversed(BLOCKS)))
    assert columns.dtype == np.float32
    parts = [_one_block(graph, block) for block in BLOCKS]
    assert {name: part.shape[1] for name, part in zip(BLOCKS, parts, strict=True)} == WIDTHS
    np.testing.assert_array_equal(columns, np.concatenate(parts, axis=1))


def test_names_of_blocks():
    assert parse_blocks("member_types+number") == ("member_types", "number")
    assert parse_blocks("paper") == DEFAULT_BLOCKS
    with pytest.raises(UserError, match="feature"):
        parse_blocks("op_type+colour")
    with pytest.raises(UserError, match="leave on at least one of op_type, member_types, number"):
        node_features(helpers.diamond(), ())


def test_merged_types_are_means():
    graph = opgraph.make_graph(
        name="g",
        op_names=["a", "b"],
        op_types=["Convolution", "NeverHeardOf"],
        senders=[0],
        receivers=[1],
        edge_bytes=[1],
        member_types=[("Constant", "Convolution", "Constant", "Relu"), ("NeverHeardOf",)],
    )
    expected = np.zeros((2, len(OP_TYPES)))
    for op_type, share in (("Constant", 0.5), ("Convolution", 0.25), ("Relu", 0.25)):
        expected[0, OP_TYPES.index(op_type)] = share
    expected[1, -1] = 1
    np.testing.assert_array_equal(_one_block(graph, "member_types"), expected)


def test_values_by_hand():
    graph = opgraph.make_graph(
        name="g",
        op_names=["a", "b", "c"],
        op_types=["Parameter", "NeverHeardOf", "Result"],
        senders=[0, 0, 1],
        receivers=[1, 2, 2],
        edge_bytes=[1, 1, 1],
        output_shapes=[(), (3, 7), (9, 1, 2, 3, 4, 5)],
    )
    types = _one_block(graph, "op_type")
    columns = [OP_TYPES.index("Parameter"), len(OP_TYPES) - 1, OP_TYPES.index("Result")]
    assert types.argmax(axis=1).tolist() == columns
    np.testing.assert_array_equal(types.sum(axis=1), 1)
    log2, log3 = math.log(2), math.log(3)
    degrees = [[0, log3], [log2, log2], [log3, 0]]
    np.testing.assert_allclose(_one_block(graph, "degrees"), degrees, rtol=1e-6)
    shapes = [[0, 0, 0, 0, 0], [0, 0, 0, 3, 7], [1, 2, 3, 4, 5]]
    np.testing.assert_allclose(_one_block(graph, "output_shape"), np.log1p(shapes), rtol=1e-6)


def test_positions_by_hand(monkeypatch):
    monkeypatch.setattr(features, "_NUM_WAVES", 1)
    # One wave a half: sine and cosine of the index 0, 1, 2, 3 and of the level 0, 1, 1, 2.
    expected = [
        [math.sin(index), math.cos(index), math.sin(level), math.cos(level)]
        for index, level in ((0, 0), (1, 1), (2, 1), (3, 2))
    ]
    encoding = positional_encoding(helpers.diamond())
    assert encoding.dtype == np.float32
    np.testing.assert_allclose(encoding, expected, atol=1e-6)


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


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_dimensions_equal_plain_search(seed, radius):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 16))
    graph = helpers.random_dag(rng, n, edge_probability=rng.random() / 2)
    sizes = [_ball_sizes(graph, node) for node in range(n)]

    for exact_limit, max_radius in ((n, radius), (0, n), (n - 1, radius)):
        limits = {"_EXACT_LIMIT": exact_limit, "_MAX_RADIUS": max_radius}
        num_radii = n if exact_limit == n else max_radius
        expected = [_slope(each[:num_radii]) for each in sizes]
        with mock.patch.multiple(features, **limits):
            np.testing.assert_allclose(fractal_dimension(graph), expected, atol=1e-9)
