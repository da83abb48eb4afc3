"""Models that the plain CPU cannot compile or run, or whose outputs it does not repeat."""

import pathlib
import pickle

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime.errors import UnusableError
from placement.runtime.measurement.worker.channel import Heartbeat
from placement.runtime.measurement.worker.loaded import LoadedModel
from placement.runtime.models import frontend, inputs, serialization
from tests.runtime import small


def refusal(model: ov.Model, folder: pathlib.Path, **given: str) -> str:
    """Returns the message about a model; '' if it can be used."""
    model = frontend.prepare(model)
    serialization.write_model(model, folder)
    loaded_inputs = inputs.load_inputs(model, **given)
    (folder / "inputs.pickle").write_bytes(pickle.dumps(loaded_inputs))
    try:
        Heartbeat(folder, create=True)
        LoadedModel(folder)
    except UnusableError as error:
        return str(error)
    return ""


def constant(value, dtype=np.float32) -> ov.Node:
    return ops.constant(np.asarray(value, dtype))


def result(value, name: str) -> ov.Node:
    node = ops.result(value)
    node.output(0).get_tensor().set_names({name})
    return node


def noise(seed: int, *, scale: float = 1.0) -> ov.Node:
    limits = constant(0), constant(scale)
    shape = constant([4], np.int64)
    return ops.random_uniform(shape, *limits, "f32", seed, seed, name="noise")


def noisy(seed: int, *, scale: float = 1.0) -> ov.Model:
    source = ops.parameter([4], np.float32, name="x")
    results = [
        result(ops.relu(source), "clean"),
        result(ops.add(source, noise(seed, scale=scale)), "noisy"),
    ]
    return ov.Model(results, [source], "noisy")


def noisy_branch() -> ov.Model:
    """An If that adds noise if `is_training`."""
    source = ops.parameter([4], np.float32, name="x")
    is_training = ops.parameter([], ov.Type.boolean, name="is_training")
    then_input, else_input = (ops.parameter([4], np.float32) for _ in range(2))
    then_result = ops.result(ops.add(then_input, noise(0)))
    else_result = ops.result(else_input)
    choice = ops.if_op(is_training)
    choice.set_then_body(ov.Model([then_result], [then_input], "then"))
    choice.set_else_body(ov.Model([else_result], [else_input], "else"))
    choice.set_input(source.output(0), then_input, else_input)
    value = choice.set_output(then_result, else_result)
    return ov.Model([result(ops.relu(value), "y")], [source, is_training], "branch")


def loop() -> ov.Model:
    """A loop of `n` iterations: the carried value, and what the last iteration computed."""
    source = ops.parameter([4], np.float32, name="x")
    count = ops.parameter([], np.int64, name="n")
    index, carried = ops.parameter([], np.int64), ops.parameter([4], np.float32)
    total = ops.result(ops.add(carried, constant(1)))
    last = ops.result(ops.tanh(carried))
    body = ov.Model([ops.result(constant(True, bool)), total, last], [index, carried], "body")
    repeat = ops.loop(count.output(0), constant(True, bool).output(0))
    repeat.set_friendly_name("repeat")
    repeat.set_function(body)
    repeat.set_special_body_ports([0, 0])
    repeat.set_merged_input(carried, source.output(0), total.output(0))
    outputs = repeat.get_iter_value(total.output(0), -1), repeat.get_iter_value(last.output(0), -1)
    results = [
        result(ops.relu(output), name) for output, name in zip(outputs, ("y", "z"), strict=True)
    ]
    return ov.Model(results, [source, count], "loop")


def unrolled() -> ov.Model:
    """Two LSTM cells with equal weights, which OpenVINO 2026.4 joins to a cycle."""
    source = ops.parameter([3, 4], np.float32, name="x")
    weights = constant(np.ones((16, 4))), constant(np.ones((16, 4))), constant(np.ones(16))
    hidden, cell = source.output(0), source.output(0)
    for _ in range(2):
        step = ops.lstm_cell(hidden, hidden, cell, *weights, 4)
        hidden, cell = step.output(0), step.output(1)
    return ov.Model([ops.result(hidden), ops.result(cell)], [source], "unrolled")


def test_random_outputs_are_named(tmp_path):
    message = refusal(noisy(7), tmp_path)
    assert "differ in the outputs 'noisy', because of RandomUniform 'noise'" in message


def test_usable_models_are_accepted(tmp_path):
    assert refusal(noisy(0, scale=1e-6), tmp_path) == ""
    assert refusal(small.counter(), tmp_path) == ""


def test_random_branch_counts_where_taken(tmp_path):
    assert refusal(noisy_branch(), tmp_path, values="is_training:0") == ""
    assert "RandomUniform 'noise'" in refusal(noisy_branch(), tmp_path, values="is_training:1")


def test_unwritten_loop_outputs_are_refused(tmp_path):
    assert refusal(loop(), tmp_path, values="n:3") == ""
    message = refusal(loop(), tmp_path, values="n:0")
    assert "differ in the outputs 'z', because of Loop 'repeat'" in message


def test_failing_models_quote_openvino(tmp_path):
    message = refusal(unrolled(), tmp_path)
    assert message.startswith("the plain CPU cannot compile the model: Loop detected during")
    source = ops.parameter([4], np.float32, name="x")
    shape = ops.parameter([2], np.int64, name="shape")
    model = ov.Model([ops.result(ops.reshape(source, shape, False))], [source, shape], "reshape")
    given = tmp_path / "given.npz"
    np.savez(given, x=np.ones(4, np.float32), shape=np.array([3, 3]))
    message = refusal(model, tmp_path, file=str(given))
    assert f"cannot run the model on its inputs (1 of {given}): [CPU] Reshape" in message
    assert not any(text in message for text in ("drawn", "\n", ".cpp"))
