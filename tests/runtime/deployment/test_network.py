"""A loaded network: inputs, threads, queued requests, other shapes and states."""

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
from placement import zoo
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.deployment.artifact import CONCURRENT, HETERO, SINGLE
from placement.runtime.execution.split import Segment
from placement.runtime.models import frontend
from tests.runtime import small
from tests.runtime.deployment.folders import FORMS, INPUT, B, make, save

CALLERS = 8
PATIENCE_S = 60
LARGEST = 16
DECODER = "decoder:layers=2,hidden=32,heads=2,vocabulary=200,context=64"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """The diamond in each form, with 'left' on the other device."""
    return {
        form: save(tmp_path_factory.mktemp(form), small.diamond(), form, left=B) for form in FORMS
    }


@pytest.fixture
def callers():
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        yield pool


@pytest.fixture(scope="module")
def single(folders):
    with placement.load(folders[SINGLE]) as net:
        yield net


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "0 inputs are passed; pass a list or a dict with an array for each of 'x'"),
        (None, "the inputs are a NoneType; pass a list or a dict"),
        ({}, "the inputs are empty; pass a list or a dict with an array for each of 'x'"),
        ({"x": INPUT, "y": INPUT}, "the inputs are 'x', 'y'; pass a list or a dict"),
        ([INPUT[:2]], r"'x' has shape \[2, 8\]; pass \[4, 8\]"),
        ([None], "'x' is object; pass an array of float32"),
    ],
)
def test_wrong_inputs_are_refused(single, inputs, message):
    for call in (single.infer, single.submit):
        with pytest.raises(UserError, match=message) as caught:
            call(inputs)
        assert "\n" not in str(caught.value)


def test_inputs_have_names_or_order(single):
    by_order = single.infer([INPUT])[0]
    for inputs in ({"x": INPUT}, [INPUT.astype(np.float64)], [np.asfortranarray(INPUT)]):
        np.testing.assert_array_equal(single.infer(inputs)[0], by_order)


def test_scalars_are_inputs_and_outputs(tmp_path):
    with placement.load(save(tmp_path, small.scaled(), CONCURRENT, square=B)) as net:
        assert net.form == CONCURRENT
        for scale in (np.float32(3), np.array(3.0), 3.0):
            scaled, squared = net.infer({"x": np.ones(4, np.float32), "scale": scale})
            np.testing.assert_array_equal(scaled, np.full(4, 3))
            assert (squared.shape, float(squared)) == ((), 9.0)
        with pytest.raises(UserError, match=r"'scale' has shape \[1\]; pass \[\]"):
            net.infer({"x": np.ones(4, np.float32), "scale": np.ones(1, np.float32)})


def test_strings_reach_the_model(tmp_path):
    text = ops.parameter([2], ov.Type.string, name="text")
    parts = [opset15.string_tensor_unpack(text).output(i) for i in range(3)]
    lengths = ops.subtract(parts[1], parts[0], name="lengths")
    scale = ops.parameter([1], np.int32, name="scale")
    result = ops.result(ops.multiply(lengths, scale, name="scaled"), name="y")
    packed = ops.result(opset15.string_tensor_pack(*parts, name="packed"), name="z")
    save(tmp_path, ov.Model([result, packed], [text, scale], "text"), SINGLE)
    with placement.load(tmp_path) as net:
        one = np.array([1], np.int64)
        for words in (["ä", ""], np.array(["ä", ""], object), np.array(["ä".encode(), b""])):
            np.testing.assert_array_equal(net.infer({"text": words, "scale": one})[0], [2, 0])
            scaled, same_words = net.submit([words, one]).result()
            np.testing.assert_array_equal(scaled, [2, 0])
            assert same_words.tolist() == ["ä", ""]
        assert net.infer([["", ""], one])[1].tolist() == ["", ""]
        for wrong in ([1.5, 2.5], [None, "a"], [["a"], ["b", "c"]], np.array(["a", "\ud800"])):
            with pytest.raises(UserError, match=r"^input 'text' ") as caught:
                net.infer([wrong, one])
            assert "\n" not in str(caught.value)
        with pytest.raises(UserError, match=r"^input 'scale' contains 4294967297; pass int32"):
            net.infer([["a", "b"], np.array([2**32 + 1])])


@pytest.mark.parametrize("form", FORMS)
def test_threads_get_their_own_outputs(folders, form, callers):
    inputs = [(i + 1) * INPUT for i in range(CALLERS)]

    def infer_often(array: np.ndarray) -> list[np.ndarray]:
        futures = [net.submit([array]) for _ in range(10)]
        computed = [net.infer([array])[0] for _ in range(10)]
        return computed + [future.result(PATIENCE_S)[0] for future in futures]

    with placement.load(folders[form]) as net:
        expected = [net.infer([array])[0] for array in inputs]
        calls = [callers.submit(infer_often, array) for array in inputs]
        for call, right in zip(calls, expected, strict=True):
            for output in call.result(PATIENCE_S):
                np.testing.assert_array_equal(output, right)


def test_submit_waits_while_full(tmp_path):
    model = small.convolutions(channels=32, size=56)
    image = np.ones(model.inputs[0].get_shape(), np.float32)
    with placement.load(save(tmp_path, model, SINGLE)) as net:
        futures = []
        for _ in range(40):
            futures.append(net.submit([image]))
            assert sum(not future.done() for future in futures) <= 6
        assert all(len(future.result(PATIENCE_S)) == 1 for future in futures)


@pytest.mark.parametrize("form", [SINGLE, CONCURRENT])
def test_closing_ends_what_has_begun(folders, form, callers):
    net = placement.load(folders[form])
    (expected,) = net.infer([INPUT])
    outputs = []

    def infer_forever() -> None:
        while True:
            outputs.append(net.infer([INPUT])[0])

    calls = [callers.submit(infer_forever) for _ in range(CALLERS)]
    while len(outputs) < 20:
        time.sleep(0.001)
    futures = [net.submit([INPUT]) for _ in range(10)]
    net.close()
    outputs += [future.result(0)[0] for future in futures]
    for call in calls:
        with pytest.raises(UserError, match="the network is closed; load it again"):
            call.result(PATIENCE_S)
    for output in outputs:
        np.testing.assert_array_equal(output, expected)
    for use in (lambda: net.infer([INPUT]), lambda: net.submit([INPUT]), net.reset_state):
        with pytest.raises(UserError, match="the network is closed; load it again"):
            use()
    net.close()


def test_threads_of_devices_end(folders):
    for is_closed in (True, False):
        before = set(threading.enumerate())
        net = placement.load(folders[CONCURRENT])
        net.infer([INPUT])
        threads = set(threading.enumerate()) - before
        assert len(threads) == 2
        if is_closed:
            net.close()
        del net
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def dynamic(*, least: int = 1, name: str = "x", left: str = "left") -> ov.Model:
    """Two products of a batch of up to 16 rows, side by side, their sum and a reshaped view."""
    generator = np.random.default_rng(0)
    rows = ov.Dimension(least, LARGEST)
    source = ops.parameter(ov.PartialShape([rows, 8]), np.float32, name=name)

    def product(name: str) -> ov.Node:
        matrix = generator.standard_normal((8, 8)).astype(np.float32)
        return ops.matmul(source, ops.constant(matrix, name=f"m_{name}"), False, False, name=name)

    total = ops.add(product(left), product("right"), name="sum")
    rows = ops.gather(ops.shape_of(total), np.array([0]), np.array(0))
    target = ops.concat([rows, ops.constant(np.array([2, 4]))], 0)
    result = ops.result(ops.reshape(total, target, False, name="view"), name="y")
    return ov.Model([result], [source], "dynamic")


def save_dynamic(folder: Path, form: str, model: ov.Model, other: ov.Model | None = None) -> Path:
    """Deploys a model for four rows, with 'right' on the other device."""
    named = frontend.name_operations(model)
    name = named.inputs[0].get_node().get_friendly_name()
    placed = frontend.prepare(named, frontend.format_shapes({name: (4, 8)}))
    return save(folder, placed, form, dynamic=other or named, right=B)


def infer_plain(x: np.ndarray) -> np.ndarray:
    compiled = ov.Core().compile_model(dynamic(), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([x])[0]


@pytest.mark.parametrize("form", FORMS)
def test_other_batch_sizes_are_right(form, tmp_path):
    with placement.load(save_dynamic(tmp_path, form, dynamic(least=0, name="a;b"))) as net:
        for batch in (1, 4, 7, LARGEST, 1):
            x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
            (y,) = net.infer({"a;b": x})
            assert y.shape == (batch, 2, 4)
            np.testing.assert_allclose(y, infer_plain(x), atol=0.1 * infer_plain(x).std())
        assert net.infer([np.zeros((0, 8), np.float32)])[0].shape == (0, 2, 4)
        for shape in ((LARGEST + 1, 8), (4, 9), (4,)):
            with pytest.raises(UserError, match=r"input 'a;b' has shape .*; pass \[\.\.16,8\]"):
                net.infer([np.ones(shape, np.float32)])
        with pytest.raises(UserError, match=r"submit serves only the shapes .*\[4, 8\]; call inf"):
            net.submit([np.ones((2, 8), np.float32)])
        assert net.submit([np.ones((4, 8), np.float32)]).result()[0].shape == (4, 2, 4)


def test_uncompilable_shapes_are_refused(tmp_path):
    other = frontend.name_operations(dynamic(left="other"))
    with placement.load(save_dynamic(tmp_path, HETERO, dynamic(), other)) as net:
        said = r"for inputs of the shapes \[2, 8\]: the placement has no device for 'other'"
        with pytest.raises(UserError, match=said):
            net.infer([np.ones((2, 8), np.float32)])
        assert net.infer([np.ones((4, 8), np.float32)])[0].shape == (4, 2, 4)


def test_state_is_kept(tmp_path):
    with placement.load(save(tmp_path, small.counter(), HETERO)) as net:
        for count in (1, 2):
            np.testing.assert_array_equal(net.infer([np.ones(4, np.float32)])[0], np.full(4, count))
        net.reset_state()
        np.testing.assert_array_equal(net.infer([np.ones(4, np.float32)])[0], np.ones(4))
        with pytest.raises(UserError, match="keeps a state from one inference") as caught:
            net.submit([np.ones(4, np.float32)])
        assert "\n" not in str(caught.value)


def generate(infer, prompt: np.ndarray, count: int = 20) -> list[int]:
    """Generates tokens greedily with a function that returns logits."""
    ids, tokens = prompt, []
    for _ in range(count):
        tokens.append(int(infer([ids])[0].argmax()))
        ids = np.array([[tokens[-1]]])
    return tokens


@pytest.mark.parametrize("form", [HETERO, CONCURRENT])
def test_decoder_equals_plain_openvino(form, tmp_path):
    prompt = np.random.default_rng(3).integers(0, 200, (1, 8))
    plain = small.reference(zoo.build(DECODER)).create_infer_request()
    expected = generate(plain.infer, prompt)
    assert len(set(expected)) > 10  # a decoder that repeats itself would hide errors
    named = frontend.name_operations(zoo.build(DECODER))
    cpus = devices.resolve("host:f32,f32")
    placed = frontend.prepare(named, "ids:1,8")
    second = {
        name: cpus[1].name
        for op in placed.get_ops()
        if (name := op.get_friendly_name()).startswith(("layer/1", "norm", "last", "output"))
        and op.get_type_name() not in ("Constant", "Result")
    }
    made = make(placed, form, cpus=cpus, dynamic=named, **second)
    if form == CONCURRENT:  # each variable stays within one segment
        ops_of = {
            cpu.name: [op for op, d in made.affinity.items() if d == cpu.name] for cpu in cpus
        }
        made = made._replace(segments=tuple(Segment(d, tuple(o)) for d, o in ops_of.items()))
    artifact.save(made, tmp_path)
    with placement.load(tmp_path) as net:
        for _ in range(2):  # a reset restores the initial state, whichever shapes came last
            net.reset_state()
            assert generate(net.infer, prompt) == expected
        # A prompt may also come in pieces, of shapes that were not placed.
        net.reset_state()
        net.infer([prompt[:, :5]])
        (logits,) = net.infer([prompt[:, 5:]])
        assert logits.argmax() == expected[0]
        with pytest.raises(UserError, match=r"input 'ids' has shape \[1, 65\]; pass \[1,1..64\]"):
            net.infer([np.zeros((1, 65), np.int64)])
