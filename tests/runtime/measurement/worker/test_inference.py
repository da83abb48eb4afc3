import pytest

from placement.runtime.measurement.worker import inference


def test_warm_up_is_taken_out_of_the_counters():
    mean_s = (2 * 9.0 + 10 * 3.0) / 12
    assert inference.without_warm_up(mean_s, 9.0, rounds=10, warm_up=2) == pytest.approx(3.0)
    assert inference.without_warm_up(1.0, 9.0, rounds=10, warm_up=2) == 0.0  # counters are rounded
