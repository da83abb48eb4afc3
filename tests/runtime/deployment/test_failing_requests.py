"""Requests that fail inside the model: they raise, and the next ones are right."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

import placement
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment.artifact import CONCURRENT, SINGLE
from placement.runtime.models import frontend, operations
from tests.runtime import small
from tests.runtime.deployment.folders import FORMS, HOST, save

ROOT = Path(__file__).parents[3]
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
WEIGHTS = (np.random.default_rng(1).standard_normal((6, 6)) / 3).astype(np.float32)


def _model(output: ov.Output, *parameters: ov.Node) -> ov.Model:
    doubled = ops.multiply(output, np.float32(2), name="doubled")
    return ov.Model([ops.result(doubled, name="y")], list(parameters), "failing")


def reshape():
    """A product is reshaped to a shape that the second input gives."""
    x, shape = ops.parameter([4, 6], np.float32, name="x"), ops.parameter([2], np.int64, name="s")
    product = ops.relu(ops.matmul(x, WEIGHTS, False, False))
    total = ops.reduce_sum(ops.exp(ops.reshape(product, shape, False)), [0, 1], False)
    return _model(total, x, shape), [X, np.array([3, 8])], [X, np.array([5, 7])]


def rows():
    """The sum of two selections of rows, which may have unequal numbers of rows."""
    x = ops.parameter([4, 6], np.float32, name="x")
    masks = [ops.parameter([4], np.int64, name=name) for name in "mn"]
    picked = [ops.gather(x, ops.squeeze(ops.non_zero(mask), [0]), 0) for mask in masks]
    total = ops.add(ops.matmul(picked[0], WEIGHTS, False, False), ops.tanh(picked[1]))
    model = _model(ops.reduce_sum(ops.relu(total), [0], False), x, *masks)
    mask = np.array([1, 1, 0, 1])
    return model, [X, mask, np.array([0, 1, 1, 1])], [X, mask, np.array([0, 1, 1, 0])]


def branch():
    """A reshaping in a branch of an If."""
    x, shape = ops.parameter([4, 6], np.float32, name="x"), ops.parameter([2], np.int64, name="s")
    condition = ops.parameter([], bool, name="k")
    inner_x, inner_shape = ops.parameter([4, 6], np.float32), ops.parameter([2], np.int64)
    inner = ops.reduce_sum(ops.reshape(inner_x, inner_shape, False), [0, 1], False)
    other_x = ops.parameter([4, 6], np.float32)
    results = [ops.result(inner), ops.result(ops.reduce_max(other_x, [0, 1], False))]
    choice = ops.if_op(condition)
    choice.set_then_body(ov.Model([results[0]], [inner_x, inner_shape], "then"))
    choice.set_else_body(ov.Model([results[1]], [other_x], "else"))
    product = ops.relu(ops.matmul(x, WEIGHTS, False, False))
    choice.set_input(product.output(0), inner_x, other_x)
    choice.set_input(shape.output(0), inner_shape, None)
    good = [X, np.array(True), np.array([3, 8])]
    model = _model(choice.set_output(*results), x, condition, shape)
    return model, good, [*good[:2], np.array([5, 7])]


MODELS = (reshape, rows, branch)


def deploy(folder: Path, model: ov.Model, form: str, cpus=HOST) -> None:
    """Deploys a model whose first half is on one device, and the second on another."""
    model = frontend.prepare(model)
    constants = operations.constant_names(model)
    names = [op.get_friendly_name() for op in model.get_ordered_ops()]
    names = [name for name in names if name not in constants]
    middle = next(i for i, name in enumerate(names) if "ReduceSum" in name or name == "doubled")
    save(folder, model, form, cpus=cpus, **dict.fromkeys(names[middle:], cpus[-1].name))


@pytest.mark.parametrize(
    ("make", "form", "bound"),
    [*itertools.product(MODELS, FORMS, [True]), (rows, SINGLE, False), (rows, CONCURRENT, False)],
)
def test_failing_request_raises(make, form, bound, tmp_path, monkeypatch):
    model, good, bad = make()
    other = [1.5 * good[0], *good[1:]]
    expected = [small.reference(model)(inputs)[0] for inputs in (good, other)]
    monkeypatch.setattr("placement.runtime.processors.CAN_BIND_THREADS", bound)
    deploy(tmp_path, model, form, devices.resolve("host"))
    with placement.load(tmp_path) as net:
        for _ in range(2):
            np.testing.assert_allclose(net.infer(good)[0], expected[0], rtol=0.02)
            for _ in range(2):
                with pytest.raises(RuntimeError, match=r"the inference failed: .+") as raised:
                    net.infer(bad)
                assert "\n" not in str(raised.value)
                assert ".cpp" not in str(raised.value)
            np.testing.assert_allclose(net.infer(other)[0], expected[1], rtol=0.02)


@pytest.mark.parametrize("form", FORMS)
def test_submitted_requests_fail_alone(form, tmp_path):
    model, good, bad = rows()
    inputs = [[np.float32(i % 7) * X, *(bad if i % 5 == 3 else good)[1:]] for i in range(40)]
    with_reference = small.reference(model)
    expected = [None if i % 5 == 3 else with_reference(inputs[i])[0] for i in range(40)]
    deploy(tmp_path, model, form)
    with placement.load(tmp_path) as net:
        for future, answer in zip([net.submit(i) for i in inputs], expected, strict=True):
            if answer is None:
                with pytest.raises(RuntimeError, match="the inference failed"):
                    future.result(60)
            else:
                np.testing.assert_allclose(future.result(60)[0], answer, rtol=0.02)
        np.testing.assert_allclose(net.infer(good)[0], with_reference(good)[0], rtol=0.02)


@pytest.mark.parametrize("form", [SINGLE, CONCURRENT])
def test_failed_inference_loses_state(form, tmp_path):
    model, good, bad = reshape()
    (x, shape), (result,) = model.get_parameters(), model.get_results()
    initial = ops.constant(np.zeros((4, 6), np.float32))
    count = ops.add(x, ops.read_value(initial, "count", np.float32, [4, 6]), name="count")
    (reader,) = [op for op in model.get_ops() if op.get_type_name() == "MatMul"]
    reader.input(0).replace_source_output(count.output(0))
    model = ov.Model([result], [ops.assign(count, "count")], [x, shape], "stateful")
    request = small.reference(model).create_infer_request()
    expected = [request.infer(good)[0] for _ in range(2)]
    deploy(tmp_path, model, form)
    with placement.load(tmp_path) as net:
        for _ in range(2):
            for answer in expected:
                np.testing.assert_allclose(net.infer(good)[0], answer, rtol=0.05)
            with pytest.raises(RuntimeError, match="the inference failed"):
                net.infer(bad)
            with pytest.raises(UserError, match="call reset_state"):
                net.infer(good)
            net.reset_state()


ONE_CORE = """
import sys, numpy as np, placement
from tests.runtime.deployment import test_failing_requests as cases
_, good, bad = cases.rows()
for folder, form in ((1, None), (1, False), (2, None)):
    with placement.load(sys.argv[folder], concurrent=form) as net:
        (answer,) = net.infer(good)
        try:
            net.infer(bad)
        except RuntimeError as error:
            assert "the inference failed" in str(error)
        else:
            sys.exit("the failing request was answered")
        np.testing.assert_array_equal(net.infer(good)[0], answer)
"""


def test_one_core_reports_failing_request(tmp_path):
    folders = tmp_path / "concurrent", tmp_path / "single"
    deploy(folders[0], rows()[0], CONCURRENT)
    deploy(folders[1], rows()[0], SINGLE, devices.resolve("CPU"))
    subprocess.run(
        [sys.executable, "-c", ONE_CORE, *map(str, folders)],
        check=True,
        cwd=ROOT,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
