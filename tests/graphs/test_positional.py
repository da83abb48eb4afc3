import math

import numpy as np
import pytest

from placement.graphs.positional import positional_encoding
from tests import helpers


def test_diamond_by_hand():
    # One wave a half: sine and cosine of the index 0, 1, 2, 3 and of the level 0, 1, 1, 2.
    expected = [
        [math.sin(index), math.cos(index), math.sin(level), math.cos(level)]
        for index, level in ((0, 0), (1, 1), (2, 1), (3, 2))
    ]
    encoding = positional_encoding(helpers.diamond(), dim=4)
    assert encoding.dtype == np.float32
    np.testing.assert_allclose(encoding, expected, atol=1e-6)


def test_wavelengths_are_geometric():
    encoding = positional_encoding(helpers.chain(50), dim=8)
    np.testing.assert_allclose(encoding[:, 1], np.sin(np.arange(50) / 100), atol=1e-6)
    np.testing.assert_allclose(encoding[:, 3], np.cos(np.arange(50) / 100), atol=1e-6)
    np.testing.assert_array_equal(encoding[:, :4], encoding[:, 4:])  # in a chain index = level


def test_parallel_branches_differ_by_index_alone():
    encoding = positional_encoding(helpers.fork_join(5))
    assert encoding.shape == (7, 16)
    assert len(np.unique(encoding[1:6, :8], axis=0)) == 5
    assert len(np.unique(encoding[1:6, 8:], axis=0)) == 1


@pytest.mark.parametrize("dim", [-4, 0, 2, 6])
def test_dim_must_be_a_multiple_of_four(dim):
    with pytest.raises(ValueError, match=f"dim is {dim}; give a positive multiple of 4"):
        positional_encoding(helpers.diamond(), dim=dim)
