import math

import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import fractal, opgraph
from placement.graphs.features import (
    BLOCKS,
    DEFAULT_BLOCKS,
    OP_TYPES,
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
    features = node_features(graph, tuple(reversed(BLOCKS)))
    assert features.dtype == np.float32
    parts = [_one_block(graph, block) for block in BLOCKS]
    assert {name: part.shape[1] for name, part in zip(BLOCKS, parts, strict=True)} == WIDTHS
    np.testing.assert_array_equal(features, np.concatenate(parts, axis=1))
    columns = dict(zip(BLOCKS, parts, strict=True))
    expected = fractal.fractal_dimension(graph)
    np.testing.assert_allclose(columns["fractal"][:, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(columns["positional"], positional_encoding(graph))
    np.testing.assert_array_equal(columns["number"][:, 0], np.arange(12))


def test_names_of_blocks():
    assert parse_blocks("member_types+number") == ("member_types", "number")
    assert parse_blocks("paper") == DEFAULT_BLOCKS
    with pytest.raises(UserError, match="feature"):
        parse_blocks("op_type+colour")


def test_no_block_is_refused():
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


def test_positions_by_hand():
    # One wave a half: sine and cosine of the index 0, 1, 2, 3 and of the level 0, 1, 1, 2.
    expected = [
        [math.sin(index), math.cos(index), math.sin(level), math.cos(level)]
        for index, level in ((0, 0), (1, 1), (2, 1), (3, 2))
    ]
    encoding = positional_encoding(helpers.diamond(), num_waves=1)
    assert encoding.dtype == np.float32
    np.testing.assert_allclose(encoding, expected, atol=1e-6)
