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


def test_vocabulary_is_unique_and_ends_in_other():
    assert len(set(OP_TYPES)) == len(OP_TYPES)
    assert OP_TYPES[-1] == "other"


def test_blocks_stand_in_their_order_whatever_that_of_their_names():
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


def test_without_choice_there_is_one_block_of_each_kind():
    graph = helpers.random_dag(np.random.default_rng(1), 9)
    others = set(BLOCKS) - {"member_types", "number"}
    np.testing.assert_array_equal(node_features(graph), node_features(graph, others))


def test_names_of_blocks():
    assert parse_blocks("member_types+number") == ("member_types", "number")
    assert parse_blocks("paper") == DEFAULT_BLOCKS
    with pytest.raises(UserError, match="feature"):
        parse_blocks("op_type+colour")


def test_no_block_is_refused():
    with pytest.raises(UserError, match="leave on at least one of op_type, member_types, number"):
        node_features(helpers.diamond(), ())


def test_the_type_of_a_merged_operation_is_the_mean_of_its_members():
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


def test_without_members_the_type_is_its_own():
    graph = helpers.random_dag(np.random.default_rng(2), 9)
    np.testing.assert_array_equal(_one_block(graph, "member_types"), _one_block(graph, "op_type"))


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


def test_positions_of_the_diamond_by_hand():
    # One wave a half: sine and cosine of the index 0, 1, 2, 3 and of the level 0, 1, 1, 2.
    expected = [
        [math.sin(index), math.cos(index), math.sin(level), math.cos(level)]
        for index, level in ((0, 0), (1, 1), (2, 1), (3, 2))
    ]
    encoding = positional_encoding(helpers.diamond(), num_waves=1)
    assert encoding.dtype == np.float32
    np.testing.assert_allclose(encoding, expected, atol=1e-6)


def test_wavelengths_of_positions_are_geometric():
    encoding = positional_encoding(helpers.chain(50), num_waves=2)
    np.testing.assert_allclose(encoding[:, 1], np.sin(np.arange(50) / 100), atol=1e-6)
    np.testing.assert_allclose(encoding[:, 3], np.cos(np.arange(50) / 100), atol=1e-6)
    np.testing.assert_array_equal(encoding[:, :4], encoding[:, 4:])  # in a chain index = level


def test_positions_of_parallel_branches_differ_by_index_alone():
    encoding = positional_encoding(helpers.fork_join(5))
    assert encoding.shape == (7, 16)
    assert len(np.unique(encoding[1:6, :8], axis=0)) == 5
    assert len(np.unique(encoding[1:6, 8:], axis=0)) == 1
