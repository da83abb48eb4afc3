import pytest

from placement.runtime.measurement.worker import inference


def test_counters_leave_out_warm_up():
    mean_s = (2 * 9.0 + 10 * 3.0) / 12
    assert inference.mean_after_warm_up(mean_s, 9.0, 10) == pytest.approx(3.0)
    assert inference.mean_after_warm_up(1.0, 9.0, 10) == 0.0  # counters are rounded
