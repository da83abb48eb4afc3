"""What several threads share: each gets its own outputs, or is told what went wrong."""

import concurrent.futures
import threading
import time
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from openvino import opset15

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
        with pytest.raises(UserError, match=r"'scale' has shape \[1\]; pass \[\]"):
            net.infer({"x": np.ones(4, np.float32), "scale": np.ones(1, np.float32)})


def test_strings_reach_the_deployed_model(tmp_path):
    text = ops.parameter([2], ov.Type.string, name="text")
    parts = [opset15.string_tensor_unpack(text).output(i) for i in range(3)]
    lengths = ops.subtract(parts[1], parts[0], name="lengths")
    scale = ops.parameter([1], np.int32, name="scale")
    result = ops.result(ops.multiply(lengths, scale, name="scaled"), name="y")
    packed = ops.result(opset15.string_tensor_pack(*parts, name="packed"), name="z")
    model = ov.Model([result, packed], [text, scale], "text")
    saved(tmp_path, model, form=artifact_lib.SINGLE, alone=A)
    with placement.load(tmp_path) as net:
        one = np.array([1], np.int64)
        for words in (["ä", ""], np.array(["ä", ""], object), np.array(["ä".encode(), b""])):
            np.testing.assert_array_equal(net.infer({"text": words, "scale": one})[0], [2, 0])
            scaled, same_words = net.submit([words, one]).result()
            np.testing.assert_array_equal(scaled, [2, 0])
            assert same_words.tolist() == ["ä", ""]
        assert net.infer([["", ""], one])[1].tolist() == ["", ""]
        for wrong in ([1.5, 2.5], [None, "a"], [["a"], ["b", "c"]], np.array(["a", "\ud800"])):
            for call in (net.infer, net.submit):
                with pytest.raises(UserError, match=r"^input 'text' ") as caught:
                    call([wrong, one])
                assert "\n" not in str(caught.value)
        with pytest.raises(UserError, match=r"^input 'scale' contains 4294967297; pass int32"):
            net.infer([["a", "b"], np.array([2**32 + 1])])


def test_wrong_name_is_among_many(tmp_path):
    sources = [ops.parameter([2], np.float32, name=name) for name in "abcd"]
    total = sources[0]
    for source in sources[1:]:
        total = ops.add(total, source)
    model = ov.Model([ops.result(total, name="y")], sources, "many")
    saved(tmp_path, model, form=artifact_lib.SINGLE, alone=A)
    given = {name: np.ones(2, np.float32) for name in ("a", "b", "c", "wrong", "d")}
    with placement.load(tmp_path) as net:
        with pytest.raises(UserError, match="no input 'wrong'; its inputs are 'a', 'b', 'c', 'd'"):
            net.infer(given)
        del given["wrong"], given["d"]
        with pytest.raises(UserError, match="input 'd' is missing"):
            net.infer(given)
