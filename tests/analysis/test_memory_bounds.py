"""Limits of memory learned from failures, worked out by hand."""

import numpy as np
import pytest

from placement.analysis.memory_bounds import learn_capacity

INF = np.inf
NONE = np.empty((0, 2))


@pytest.mark.parametrize(
    ("capacity", "failed", "succeeded", "named", "expected"),
    [
        ([INF, 100], [500, 80], NONE, None, [INF, 78.4]),  # the only one with a limit
        ([1000, 100], [500, 40], NONE, None, [490, 100]),  # 50% against 40%
        ([1000, 100], [500, 40], NONE, 1, [1000, 39.2]),  # as the error says
        ([INF, INF], [500, 80], NONE, None, [490, INF]),  # the one with the most memory
        ([1000, 100], [500, 40], [[600, 0]], None, [1000, 39.2]),  # the first held more
        ([1000, 100], [500, 40], [[600, 0]], 0, [1000, 39.2]),  # so it is not as the error says
        ([100, 100], [50, 0], NONE, None, [49, 100]),  # the other is not used
    ],
)
def test_the_limit_of_the_device_that_ran_out_of_memory_is_lowered(
    capacity, failed, succeeded, named, expected
):
    capacity, failed = np.array(capacity, float), np.array(failed, float)
    learned = learn_capacity(capacity, failed, np.array(succeeded, float), named)
    np.testing.assert_allclose(learned, expected)
    assert (learned < failed).any()


def test_nothing_is_learned_where_no_device_can_be_the_cause():
    capacity, failed = np.array([INF, 100.0]), np.array([500.0, 40.0])
    assert learn_capacity(capacity, failed, np.array([[500.0, 0.0], [0.0, 40.0]])) is None
