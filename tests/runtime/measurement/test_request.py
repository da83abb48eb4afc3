import math

import numpy as np
import pytest

from placement.runtime.measurement import request


@pytest.mark.parametrize(
    ("count", "rank"),
    [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (25, 8), (100, 40)],  # of any table of the sign test
)
def test_interval_by_hand(count, rank):
    samples = np.random.default_rng(count).permutation(count) + 1.0
    found = request.median_interval(samples)
    assert found == ((count + 1) / 2, rank, count + 1 - rank, count)
    below = sum(math.comb(count, i) for i in range(rank)) / 2**count
    assert 1 - 2 * below >= 0.95
    assert 1 - 2 * (below + math.comb(count, rank) / 2**count) < 0.95
