import math

import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import fractal, opgraph, positional
from placement.graphs.features import OP_TYPES, node_features
from tests import helpers

BLOCKS = {"op_type": len(OP_TYPES), "degrees": 2, "fractal": 1, "positional": 16, "output_shape": 5}
OFF = dict.fromkeys(BLOCKS, False)


def _one_block(graph, block):
    return node_features(graph, **(OFF | {block: True}))


def test_vocabulary_is_unique_and_ends_in_other():
    assert len(set(OP_TYPES)) == len(OP_TYPES)
    assert OP_TYPES[-1] == "other"


def test_blocks_stand_in_order():
    graph = helpers.random_dag(np.random.default_rng(0), 12)
    features = node_features(graph)
    assert features.dtype == np.float32
    parts = [_one_block(graph, block) for block in BLOCKS]
    assert [part.shape for part in parts] == [(12, width) for width in BLOCKS.values()]
    np.testing.assert_array_equal(features, np.concatenate(parts, axis=1))
    np.testing.assert_allclose(parts[2][:, 0], fractal.fractal_dimension(graph), rtol=1e-6)
    np.testing.assert_array_equal(parts[3], positional.positional_encoding(graph))


@pytest.mark.parametrize("block", BLOCKS)
def test_switching_a_block_off_removes_its_columns(block):
    graph = helpers.random_dag(np.random.default_rng(1), 9)
    rest = [_one_block(graph, other) for other in BLOCKS if other != block]
    np.testing.assert_array_equal(
        node_features(graph, **{block: False}), np.concatenate(rest, axis=1)
    )


def test_everything_off_is_refused():
    with pytest.raises(UserError, match="leave on at least one of op_type, degrees, fractal"):
        node_features(helpers.diamond(), **OFF)


def test_values_by_hand():
    graph = opgraph.make(
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
