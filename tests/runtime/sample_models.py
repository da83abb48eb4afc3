"""Sample models of many kinds: small files from installed packages, and models built here.

`MODELS` has a factory without arguments for each. A factory skips the test that calls it if the
package with its file is not installed.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset15 as ops

from placement.runtime.models import frontend

_WIDTH = 8


def _packaged(package: str, file: str) -> ov.Model:
    """Reads a file in an installed package; skips the test if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package}, which carries {file}, is not installed")
    path = Path(spec.submodule_search_locations[0]) / file
    assert path.is_file(), f"the package {package} no longer carries {file}"
    return frontend.load(str(path))


def _model(
    outputs: list[ov.Node | ov.Output], inputs: list[ov.Node], name: str, writes: tuple = ()
) -> ov.Model:
    """Returns a model whose results are called y0, y1, ..."""
    results = [ops.result(output, name=f"y{i}") for i, output in enumerate(outputs)]
    return ov.Model(results, list(writes), inputs, name)


def _weights(*shape: int, seed: int = 0) -> ov.Node:
    values = np.random.default_rng(seed).standard_normal(shape) / shape[-1] ** 0.5
    return ops.constant(values.astype(np.float32))


def _product(value: ov.Node | ov.Output, seed: int = 0) -> ov.Node:
    return ops.matmul(value, _weights(_WIDTH, _WIDTH, seed=seed), False, False)


def branches() -> ov.Model:
    """An If whose condition depends on the data, with captured values in both bodies."""
    source = ops.parameter([4, _WIDTH], np.float32, name="x")
    hidden = _product(source, 1)
    condition = ops.greater(ops.reduce_sum(hidden, np.array([0, 1]), False), np.float32(0))
    inner = [ops.parameter([4, _WIDTH], np.float32) for _ in range(2)]
    if_true = ops.result(ops.relu(_product(inner[0], 2)))
    if_false = ops.result(ops.tanh(_product(inner[1], 3)))
    choice = ov.op.if_op(condition.output(0))
    choice.set_then_body(ov.Model([if_true], [inner[0]]))
    choice.set_else_body(ov.Model([if_false], [inner[1]]))
    choice.set_input(hidden.output(0), inner[0], inner[1])
    branch_output = choice.set_output(if_true, if_false)
    total = ops.add(_product(branch_output, 4), hidden)
    return _model([total], [source], "branches")


def loop() -> ov.Model:
    """A Loop that ends when the data say so, with a state, an invariant and its last value."""
    source = ops.parameter([1, _WIDTH], np.float32, name="x")
    initial = _product(source, 1)
    state = ops.parameter([1, _WIDTH], np.float32)
    fixed = ops.parameter([1, _WIDTH], np.float32)
    grown = ops.add(_product(state, 2), fixed)
    size = ops.reduce_sum(ops.abs(grown), np.array([0, 1]), False)
    is_continuing = ops.result(ops.less(size, np.float32(1e3)))
    next_state = ops.result(grown)
    body = ov.Model([is_continuing, next_state], [state, fixed], "body")
    cycle = ov.op.loop(ops.constant(np.int64(12)), ops.constant(True))
    cycle.set_function(body)
    cycle.set_special_body_ports([-1, 0])
    cycle.set_merged_input(state, initial.output(0), next_state.output(0))
    cycle.set_invariant_input(fixed, source.output(0))
    last = cycle.get_iter_value(next_state.output(0), -1)
    output = ops.tanh(_product(last, 3))
    return _model([output], [source], "loop")


def _variable(name: str, shape: list[int]) -> ov.op.util.Variable:
    info = ov.op.util.VariableInfo()
    info.data_shape, info.data_type = ov.PartialShape(shape), ov.Type.f32
    info.variable_id = name
    return ov.op.util.Variable(info)


def states() -> ov.Model:
    """Two variables that change by each other's value and the input: every output differs."""
    source = ops.parameter([1, _WIDTH], np.float32, name="x")
    zero = ops.constant(np.zeros((1, _WIDTH), np.float32))
    variables = [_variable(name, [1, _WIDTH]) for name in ("first", "second")]
    first, second = (ov.opset6.read_value(zero, variable) for variable in variables)
    mixed = ops.tanh(ops.add(ops.add(_product(first, 1), _product(second, 2)), source))
    second_state = ops.tanh(_product(mixed, 3))
    writes = (ov.opset6.assign(mixed, variables[0]), ov.opset6.assign(second_state, variables[1]))
    return _model([ops.add(mixed, _product(second_state, 4))], [source], "states", writes)


def cache() -> ov.Model:
    """A key-value cache as in language models: a variable that grows with every inference."""
    source = ops.parameter([1, 1, _WIDTH], np.float32, name="x")
    variable = _variable("cache", [1, -1, _WIDTH])
    empty = ops.constant(np.zeros((1, 0, _WIDTH), np.float32))
    past = ov.opset6.read_value(empty, variable)
    key = ops.tanh(ops.subtract(_product(source, 1), ops.reduce_sum(past, np.array([1]), True)))
    present = ops.concat([past, key], 1)
    write = ov.opset6.assign(present, variable)
    scores = ops.softmax(ops.matmul(_product(source, 2), present, False, True), -1)
    output = _product(ops.matmul(scores, present, False, False), 3)
    return _model([output], [source], "cache", (write,))


def strings() -> ov.Model:
    """A string input: the lengths and letters of words."""
    source = ops.parameter([6], ov.Type.string, name="words")
    unpacked = ops.string_tensor_unpack(source)
    lengths = ops.subtract(unpacked.output(1), unpacked.output(0))
    features = ops.multiply(
        ops.unsqueeze(ops.convert(lengths, np.float32), np.int64(1)), _weights(1, _WIDTH)
    )
    letters = ops.convert(unpacked.output(2), np.float32)
    mean = ops.reduce_mean(letters, np.array([0]), True)
    return _model([ops.relu(_product(features, 1)), mean], [source], "strings")


def _quantised(value: ov.Node) -> ov.Node:
    """Returns `value` rounded to 256 levels between -4 and 4."""
    ends = [ops.constant(np.full((1, 1, 1, 1), end, np.float32)) for end in (-4, 4, -4, 4)]
    return ops.fake_quantize(value, *ends, 256)


def int8() -> ov.Model:
    """Convolutions as quantisers write them: int8 weights with scales, rounded activations."""
    generator = np.random.default_rng(0)
    source = ops.parameter([1, _WIDTH, 12, 12], np.float32, name="x")
    value = source
    for _ in range(3):
        stored = ops.constant(generator.integers(-127, 128, (_WIDTH, _WIDTH, 3, 3), np.int8))
        scale = generator.uniform(0.5, 1.5, (_WIDTH, 1, 1, 1)) / 400
        weights = ops.multiply(ops.convert(stored, np.float32), ops.constant(np.float32(scale)))
        ones = [1, 1]
        value = ops.relu(ops.convolution(_quantised(value), weights, ones, ones, ones, ones))
    pooled = ops.reduce_mean(value, np.array([2, 3]), False)
    return _model([_product(pooled, 1)], [source], "int8")


MODELS: dict[str, Callable[[], ov.Model]] = {
    "light_shufflenet": lambda: _packaged("onnx", "backend/test/data/light/light_shufflenet.onnx"),
    "wake_word": lambda: _packaged("pyopen_wakeword", "models/okay_nabu.tflite"),
    "branches": branches,
    "loop": loop,
    "states": states,
    "cache": cache,
    "strings": strings,
    "int8": int8,
}
