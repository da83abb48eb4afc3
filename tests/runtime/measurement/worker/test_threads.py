import contextlib
import os
import subprocess
import sys

import pytest

from placement.runtime import devices
from placement.runtime.measurement import local
from placement.runtime.measurement.request import Candidate, HeteroChoice, Measure, Measurement
from placement.runtime.measurement.worker import trials
from placement.runtime.measurement.worker.trials import ThreadTime
from tests.runtime import small

CORES = len(os.sched_getaffinity(0))


@contextlib.contextmanager
def busy(loops: int):
    """Loops that never end, on the cores that this process may use."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_thread_shares_fit_the_time():
    first = {name: ThreadTime(1_000, 1_000) for name in "abcd"}
    last = {
        "a": ThreadTime(1_500, 2_000),
        "b": ThreadTime(2_300, 2_000),  # a wait from before the first reading is booked at its end
        "c": ThreadTime(1_000, 1_000),
        "d": ThreadTime(900, 2_000),  # the number of a thread that ended was given again
    }
    assert trials.busy_shares(first, last) == {"a": 0.5, "b": 1.0, "c": 0.0, "d": 0.0}
    assert trials.count_active_threads([0.25, 0.5]) == 0.75
    assert trials.count_active_threads([1.0] * (CORES + 1)) == CORES


@pytest.mark.alone
def test_busy_machines_fail_no_candidate():
    model = small.convolutions(channels=32, size=28)
    whole = Candidate(None, (devices.reference_device(),))
    with local.LocalMeasurer(model, whole.devices) as opened:
        opened.ask(HeteroChoice(opened.devices))  # the worker starts before the machine is busy
        with busy(2 * CORES):
            (outcome,) = opened.ask(Measure([whole], min_rounds=6, time_limit_s=0.0))
            assert isinstance(outcome, Measurement), outcome
