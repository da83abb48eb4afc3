"""What several threads share: each gets its own outputs, or is told what went wrong."""

import concurrent.futures
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import placement
from placement.errors import UserError
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment.network import Network
from placement.runtime.execution.split import Segment
from tests.runtime import small
from tests.runtime.deployment.test_deploy import HOST, INPUT, A, B, saved

CALLERS = 4
FORMS = (artifact_lib.SINGLE, artifact_lib.HETERO, artifact_lib.CONCURRENT)
PATIENCE_S = 60


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """The diamond in each form, with 'left' on the other device."""
    made = {form: tmp_path_factory.mktemp(form) for form in FORMS}
    for form, folder in made.items():
        alone = B if form == artifact_lib.SINGLE else None
        saved(folder, small.diamond(), form=form, alone=alone, left=B)
    return made


@pytest.fixture
def callers():
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        yield pool


@pytest.mark.parametrize("form", FORMS)
def test_every_thread_gets_the_outputs_of_its_own_inputs(folders, form, callers):
    inputs = [(i + 1) * INPUT for i in range(CALLERS)]

    def outputs(array: np.ndarray) -> list[np.ndarray]:
        return [net.infer([array])[0] for _ in range(50)]

    with placement.load(folders[form]) as net:
        assert net.form == form
        wanted = [net.infer([array])[0] for array in inputs]
        calls = [callers.submit(outputs, array) for array in inputs]
        for call, right in zip(calls, wanted, strict=True):
            for output in call.result(PATIENCE_S):
                np.testing.assert_array_equal(output, right)


def fail_while_calls_wait(net: Network, callers) -> list[concurrent.futures.Future]:
    """Calls of which one has begun when a device's thread fails."""
    begin = threading.Event()

    def fail() -> None:
        begin.wait(PATIENCE_S)
        raise ArithmeticError("out of order")

    net._workers.submit(A, (-1, -1), fail)  # before every part
    calls = [callers.submit(net.infer, [INPUT]) for _ in range(CALLERS)]
    while not net._workers._active_inferences:
        time.sleep(0.001)
    begin.set()
    return calls


def test_every_call_is_told_that_a_devices_thread_has_failed(folders, callers):
    before = set(threading.enumerate())
    net = placement.load(folders[artifact_lib.CONCURRENT])
    threads = set(threading.enumerate()) - before
    assert {thread.name for thread in threads} == {A, B}
    calls = fail_while_calls_wait(net, callers)
    for call in calls:
        with pytest.raises(RuntimeError, match=f"thread of {A} has ended: out of order"):
            call.result(PATIENCE_S)
    with pytest.raises(RuntimeError, match="out of order"):
        net.infer([INPUT])
    assert not net._workers._active_inferences  # so that nobody spins
    net.close()
    assert not any(thread.is_alive() for thread in threads)


def test_the_threads_of_a_network_that_nobody_has_end(folders):
    before = set(threading.enumerate())
    net = placement.load(folders[artifact_lib.CONCURRENT])
    net.infer([INPUT])
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    del net
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("form", FORMS)
def test_closing_lets_the_inference_under_way_end_and_refuses_the_others(folders, form, callers):
    net = placement.load(folders[form])
    (wanted,) = net.infer([INPUT])
    ended = []

    def infer() -> None:
        while True:
            ended.append(net.infer([INPUT])[0])

    calls = [callers.submit(infer) for _ in range(CALLERS)]
    while len(ended) < 20:
        time.sleep(0.001)
    net.close()
    for call in calls:
        with pytest.raises(UserError, match="the network is closed; load it again"):
            call.result(PATIENCE_S)
    for output in ended:
        np.testing.assert_array_equal(output, wanted)
    for use in (lambda: net.infer([INPUT]), net.reset_state):
        with pytest.raises(UserError, match="the network is closed; load it again"):
            use()
    net.close()


@pytest.mark.parametrize("form", FORMS)
def test_scalars_are_inputs_and_outputs(tmp_path, form):
    model = small.scaled()
    affinity = small.everywhere(model, A, square=B)
    segments = (Segment(A, ("times",)), Segment(B, ("square",)))
    alone = B if form == artifact_lib.SINGLE else None
    artifact = artifact_lib.Artifact(model, affinity, segments, HOST, form, alone, "by a test", {})
    artifact_lib.save(artifact, tmp_path)
    with placement.load(tmp_path) as net:
        assert net.form == form
        for scale in (np.float32(3), np.array(3.0), 3.0):
            scaled, squared = net.infer({"x": np.ones(4, np.float32), "scale": scale})
            np.testing.assert_array_equal(scaled, np.full(4, 3))
            np.testing.assert_array_equal(squared, np.float32(9))
            assert squared.shape == ()
        with pytest.raises(UserError, match=r"'scale' has shape \[1\]; give \[\]"):
            net.infer({"x": np.ones(4, np.float32), "scale": np.ones(1, np.float32)})
