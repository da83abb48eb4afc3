"""Requests from many threads: each gets its own outputs, and nothing grows."""

import concurrent.futures
import gc
import os
import resource
import sys
import threading
import time

import numpy as np
import pytest

import placement
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import service
from placement.runtime.execution.split import Segment
from placement.runtime.models import frontend
from tests.runtime import small
from tests.runtime.deployment.test_deploy import INPUT, A, B, saved

FORMS = (artifact_lib.SINGLE, artifact_lib.HETERO, artifact_lib.CONCURRENT)
THREADS = 8
PATIENCE_S = 60


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The diamond in each form, with 'left' on the other device."""
    made = {form: tmp_path_factory.mktemp(form) for form in FORMS}
    for form, folder in made.items():
        alone = B if form == artifact_lib.SINGLE else None
        saved(folder, small.diamond(), form=form, alone=alone, left=B)
    return made


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1_200, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_many_requests_from_eight_threads(folders, form, count, monkeypatch):
    monkeypatch.setattr(service, "_MAX_LATENCIES", 100)  # so that the log is soon full
    inputs = [(i + 1) * INPUT for i in range(THREADS)]

    def asked(number: int, requests: int) -> None:
        waiting: list[concurrent.futures.Future] = []
        for _ in range(requests):
            waiting.append(net.submit([inputs[number]]))
            if len(waiting) == 20:
                np.testing.assert_array_equal(waiting.pop(0).result(PATIENCE_S)[0], right[number])
        for future in waiting:
            np.testing.assert_array_equal(future.result(PATIENCE_S)[0], right[number])

    def load(requests: int) -> None:
        calls = [callers.submit(asked, i, requests // THREADS) for i in range(THREADS)]
        for call in calls:
            call.result(4 * PATIENCE_S)

    with placement.load(folders[form]) as net:
        right = [net.infer([array])[0] for array in inputs]
        with concurrent.futures.ThreadPoolExecutor(THREADS) as callers:
            load(count // 3)
            files, threads, before = _open_files(), threading.enumerate(), _resident_bytes()
            blocks = sys.getallocatedblocks()
            load(count)
            assert _open_files() == files
            assert set(threading.enumerate()) <= set(threads)
            assert _resident_bytes() - before < 8 << 20
            assert sys.getallocatedblocks() - blocks < count / 2  # of Python's objects
        found = net.latencies()
    assert found.requests == THREADS + count // 3 // THREADS * THREADS + count
    assert 0 < found.median_s <= found.p90_s <= found.p99_s <= found.longest_s < PATIENCE_S


class _Slow:
    """A request that ends when it is let."""

    def __init__(self) -> None:
        self.let, self.begun = threading.Semaphore(0), 0

    def run(self, future) -> None:
        self.begun += 1
        self.let.acquire()
        future.set_result([])


def _never_closed() -> None:
    """As long as nobody closes it."""


def test_who_submits_faster_than_requests_end_is_held_back():
    slow = _Slow()
    served = service.Service(1, service.LatencyLog())
    futures, most = [], 1 + service._WAITING_PER_RUNNER

    def submit_all() -> None:
        for _ in range(2 * most):
            futures.append(served.submit(slow.run, _never_closed))

    submitting = threading.Thread(target=submit_all)
    submitting.start()
    end_s = time.monotonic() + PATIENCE_S
    while len(futures) < most and time.monotonic() < end_s:
        time.sleep(0.001)
    time.sleep(0.2)  # in which it would go on
    assert len(futures) == most
    for ended in range(1, most + 1):
        slow.let.release()
        futures[ended - 1].result(PATIENCE_S)
    slow.let.release(most)
    submitting.join(PATIENCE_S)
    served.close()
    assert all(future.done() for future in futures)
    assert slow.begun == 2 * most


def test_who_is_held_back_hears_that_the_service_has_been_closed():
    slow = _Slow()
    served = service.Service(1, service.LatencyLog())
    closed = threading.Event()

    def check_open() -> None:
        if closed.is_set():
            raise UserError("closed")

    futures = [served.submit(slow.run, check_open) for _ in range(1 + service._WAITING_PER_RUNNER)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(served.submit, slow.run, check_open)
        closed.set()
        with pytest.raises(UserError, match="closed"):
            late.result(PATIENCE_S)
    slow.let.release(len(futures))
    served.close()
    assert [future.result(PATIENCE_S) for future in futures] == [[]] * len(futures)
    with pytest.raises(UserError, match="closed"):
        served.submit(slow.run, check_open)


def test_an_error_is_that_of_its_request_alone():
    def fail(future) -> None:
        raise RuntimeError("out of order")

    log = service.LatencyLog()
    served = service.Service(1, log)
    futures = [served.submit(fail, _never_closed) for _ in range(5)]
    for future in futures:
        with pytest.raises(RuntimeError, match="out of order"):
            future.result(PATIENCE_S)
    served.close()
    assert log.read().requests == 0
    assert np.isnan(log.read().median_s)


def test_what_was_submitted_ends_before_a_network_is_closed(folders):
    net = placement.load(folders[artifact_lib.CONCURRENT])
    (right,) = net.infer([INPUT])
    futures = [net.submit([INPUT]) for _ in range(10)]
    net.close()
    for future in futures:
        np.testing.assert_array_equal(future.result(0)[0], right)
    with pytest.raises(UserError, match="the network is closed; load it again"):
        net.submit([INPUT])


@pytest.mark.alone
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_stream_keeps_both_devices_busy(tmp_path):
    """A chain of two halves, of which one request is in the first, another in the second.

    The best of several tries: on a busy machine a thread waits for its core now and then.
    """
    alike = devices.resolve("host:f32,f32")
    one, other = (device.name for device in alike)
    model = frontend.prepare(small.convolutions(channels=32, size=28, length=4))
    halves = [("conv_0", "relu_0", "conv_1", "relu_1"), ("conv_2", "relu_2", "conv_3", "relu_3")]
    affinity = small.everywhere(model, one, **dict.fromkeys(halves[1], other))
    segments = (Segment(one, ("x", *halves[0])), Segment(other, halves[1]))
    form = artifact_lib.CONCURRENT
    made = artifact_lib.Artifact(model, affinity, segments, alike, form, None, "by a test", {})
    artifact_lib.save(made, tmp_path)
    array = np.ones(model.inputs[0].get_shape(), np.float32)
    with placement.load(tmp_path) as net:
        for _ in range(20):
            net.infer([array])
        alone_s = net.latencies().median_s
        each_s, end_s = np.inf, time.monotonic() + PATIENCE_S
        while each_s >= 0.85 * alone_s and time.monotonic() < end_s:
            began_s = time.perf_counter()
            concurrent.futures.wait([net.submit([array]) for _ in range(40)], PATIENCE_S)
            each_s = (time.perf_counter() - began_s) / 40
    assert each_s < 0.85 * alone_s


def test_a_model_with_a_state_takes_one_request_at_a_time(tmp_path):
    saved(tmp_path, small.counter(), form=artifact_lib.SINGLE, alone=A)
    with placement.load(tmp_path) as net:
        shape = net._model.inputs[0].get_shape()
        array = np.ones(shape, np.float32)
        net.infer([array])
        with pytest.raises(UserError, match="keeps a state from one inference") as told:
            net.submit([array])
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_callback_cannot_close_its_network_and_is_told_so(folders, form):
    with placement.load(folders[form]) as net:
        # As a callback is run: in a thread of the service, which closing would wait for.
        closing = net._open_service()._pool.submit(net.close)
        with pytest.raises(UserError, match="close it in another thread"):
            closing.result(PATIENCE_S)
        assert len(net.submit([INPUT]).result(PATIENCE_S)) == 1
