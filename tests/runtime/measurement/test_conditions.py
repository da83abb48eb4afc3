import os
import time

import pytest

from placement.runtime import devices
from placement.runtime.measurement import conditions, local
from placement.runtime.measurement.conditions import Conditions, WorkClock
from placement.runtime.measurement.request import Candidate, Measure, Profile
from tests.runtime import small
from tests.runtime.measurement.worker.test_threads import CORES, busy

HOST = devices.resolve("host")


@pytest.mark.alone
def test_busy_machines_are_reported():
    model = small.convolutions()
    whole = Candidate(None, (devices.reference_device(),))
    found = Conditions()
    with local.LocalMeasurer(model, HOST) as opened:
        opened.ask(Measure([whole], min_rounds=6, time_limit_s=0.0))  # the worker starts
        with busy(CORES):
            while found.seconds < 0.5:  # one profile may take less time than the system can tell of
                opened.ask(Profile(opened.devices))
                found = opened.conditions()["profile"]
    assert found.other_work_share > conditions.BUSY
    assert "other programs took" in found.describe_disturbances()


@pytest.mark.alone
def test_own_work_does_not_count():
    clock = WorkClock([os.getpid()])
    ran, began = time.process_time(), time.monotonic()
    while time.monotonic() - began < 0.5:
        pass
    found, seconds = clock.conditions(), time.monotonic() - began
    # Of a core that this process did not have, others may have had it all, but no more.
    assert found.other_work_s <= CORES * seconds - (time.process_time() - ran) + 0.1


def test_disturbances_are_described():
    assert not Conditions(0.1, 0.2, 0.2).describe_disturbances()  # too short to tell
    text = "other programs took 20% of the processor's time"
    assert Conditions(1.0, 0.4, 2.0).describe_disturbances() == text
    assert not Conditions(interval_width=1.2).describe_disturbances()
    assert "a factor of 2.5" in Conditions(interval_width=2.5).describe_disturbances()
    first, second = Conditions(1.0, 0.5, 2.0, 1.2), Conditions(1.0, 0.1, 2.0, 1.1)
    assert first + second == Conditions(2.0, 0.6, 4.0, 1.2)
    assert (first + second).to_json()["others_share"] == pytest.approx(0.15)
    assert WorkClock([2**22 + 1]).conditions().cores_s == 0  # the process has ended
