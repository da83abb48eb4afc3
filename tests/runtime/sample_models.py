"""Sample models of many kinds: small files from installed packages, and models built here.

`MODELS` has a factory without arguments for each. It returns the model as it was read or built, and
the input_shapes that `frontend.prepare` needs for it. A factory skips the test that calls it if the
package with its file is not installed.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import openvino as ov
import pytest
from openvino import opset15 as ops

from placement.runtime.models import frontend

_WIDTH = 8


class Sample(NamedTuple):
    """A model, and the shapes for its dynamic inputs."""

    model: ov.Model
    input_shapes: str = ""


def packaged(package: str, file: str) -> str:
    """Returns the path of a file in an installed package; skips the test if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package}, which carries {file}, is not installed")
    path = Path(spec.submodule_search_locations[0]) / file
    assert path.is_file(), f"the package {package} no longer carries {file}"
    return str(path)


def _file(package: str, file: str, input_shapes: str = "") -> Callable[[], Sample]:
    return lambda: Sample(frontend.load(packaged(package, file)), input_shapes)


def _wake_word(name: str, input_shapes: str = "") -> Callable[[], Sample]:
    return _file("pyopen_wakeword", f"models/{name}.tflite", input_shapes)


def _model(
    outputs: list[ov.Node | ov.Output], inputs: list[ov.Node], name: str, writes: tuple = ()
) -> ov.Model:
    """Returns a model whose results are called y0, y1, ..."""
    results = [ops.result(output, name=f"y{i}") for i, output in enumerate(outputs)]
    return ov.Model(results, list(writes), inputs, name)


def _weights(*shape: int, seed: int = 0) -> ov.Node:
    values = np.random.default_rng(seed).standard_normal(shape) / shape[-1] ** 0.5
    return ops.constant(values.astype(np.float32))


def _product(value: ov.Node | ov.Output, seed: int = 0, width: int = _WIDTH) -> ov.Node:
    return ops.matmul(value, _weights(width, width, seed=seed), False, False)


def dynamic_input() -> Sample:
    """A classifier of tokens: batch and length are dynamic, so are all shapes after them."""
    tokens = ops.parameter([-1, -1], np.int64, name="tokens")
    mask = ops.parameter([-1, -1], np.int64, name="mask")
    table = ops.gather(_weights(32, _WIDTH), tokens, np.int64(0))
    scaled = ops.multiply(table, ops.unsqueeze(ops.convert(mask, np.float32), np.int64(-1)))
    hidden = ops.relu(_product(scaled, 1))
    # Heads as an exporter writes them: a shape computed from that of the input.
    shape = ops.shape_of(hidden)
    rows = ops.gather(shape, np.array([0, 1]), np.int64(0))
    heads = ops.reshape(hidden, ops.concat([rows, ops.constant([2, 4], np.int64)], 0), False)
    mixed = ops.softmax(ops.transpose(heads, [0, 2, 1, 3]), 3)
    pooled = ops.reduce_mean(mixed, np.array([2]), False)
    return Sample(_model([pooled], [tokens, mask], "dynamic_input"), "tokens:2,7;mask:2,7")


def branches() -> Sample:
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
    return Sample(_model([total], [source], "branches"))


def loop() -> Sample:
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
    return Sample(_model([output], [source], "loop"))


def tensor_iterator() -> Sample:
    """A recurrence over the slices of a sequence; all steps and the last step are outputs."""
    source = ops.parameter([5, 1, _WIDTH], np.float32, name="x")
    start = ops.parameter([1, 1, _WIDTH], np.float32, name="start")
    projected = _product(source, 1)
    step = ops.parameter([1, 1, _WIDTH], np.float32)
    state = ops.parameter([1, 1, _WIDTH], np.float32)
    result = ops.result(ops.tanh(ops.add(_product(step, 2), _product(state, 3))))
    recurrence = ov.op.tensor_iterator()
    recurrence.set_body(ov.Model([result], [step, state], "body"))
    recurrence.set_sliced_input(step, projected.output(0), 0, 1, 1, -1, 0)
    recurrence.set_merged_input(state, start.output(0), result.output(0))
    last = recurrence.get_iter_value(result.output(0), -1)
    steps = recurrence.get_concatenated_slices(result.output(0), 0, 1, 1, -1, 0)
    results = [ops.relu(_product(last, 4)), _product(steps, 5)]
    return Sample(_model(results, [source, start], "tensor_iterator"))


def _variable(name: str, shape: list[int]) -> ov.op.util.Variable:
    info = ov.op.util.VariableInfo()
    info.data_shape, info.data_type = ov.PartialShape(shape), ov.Type.f32
    info.variable_id = name
    return ov.op.util.Variable(info)


def states() -> Sample:
    """Two variables that change by each other's value and the input: every output differs."""
    source = ops.parameter([1, _WIDTH], np.float32, name="x")
    zero = ops.constant(np.zeros((1, _WIDTH), np.float32))
    variables = [_variable(name, [1, _WIDTH]) for name in ("first", "second")]
    first, second = (ov.opset6.read_value(zero, variable) for variable in variables)
    mixed = ops.tanh(ops.add(ops.add(_product(first, 1), _product(second, 2)), source))
    second_state = ops.tanh(_product(mixed, 3))
    writes = (ov.opset6.assign(mixed, variables[0]), ov.opset6.assign(second_state, variables[1]))
    return Sample(_model([ops.add(mixed, _product(second_state, 4))], [source], "states", writes))


def cache() -> Sample:
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
    return Sample(_model([output], [source], "cache", (write,)))


def strings() -> Sample:
    """A string input: the lengths and letters of words."""
    source = ops.parameter([6], ov.Type.string, name="words")
    unpacked = ops.string_tensor_unpack(source)
    lengths = ops.subtract(unpacked.output(1), unpacked.output(0))
    features = ops.multiply(
        ops.unsqueeze(ops.convert(lengths, np.float32), np.int64(1)), _weights(1, _WIDTH)
    )
    letters = ops.convert(unpacked.output(2), np.float32)
    mean = ops.reduce_mean(letters, np.array([0]), True)
    return Sample(_model([ops.relu(_product(features, 1)), mean], [source], "strings"))


def lengths() -> Sample:
    """Sequences with their int64 lengths, and a reversed axis."""
    source = ops.parameter([3, 5, _WIDTH], np.float32, name="x")
    counts = ops.parameter([3], np.int64, name="lengths")
    hidden = ops.constant(np.zeros((3, 1, 4), np.float32))
    sequence = ops.gru_sequence(
        _product(source, 1),
        hidden,
        counts,
        _weights(1, 12, _WIDTH, seed=2),
        _weights(1, 12, 4, seed=3),
        ops.constant(np.zeros((1, 12), np.float32)),
        4,
        "forward",
    )
    mirrored = ops.reverse_sequence(source, counts, 0, 1)
    results = [sequence.output(0), sequence.output(1), _product(mirrored, 4)]
    return Sample(_model(results, [source, counts], "lengths"))


def steps() -> Sample:
    """A scalar input that is the length of a computed tensor."""
    source = ops.parameter([1, _WIDTH], np.float32, name="x")
    count = ops.parameter([], np.int64, name="count")
    numbers = ops.range(ops.constant(np.int64(0)), count, ops.constant(np.int64(1)), "i64")
    positions = ops.unsqueeze(ops.convert(numbers, np.float32), np.int64(1))
    encoded = ops.sin(ops.multiply(positions, _product(source, 1)))
    return Sample(_model([_product(encoded, 2)], [source, count], "steps"))


def several_outputs() -> Sample:
    """Several outputs: one that another operation reads too, and one that is returned twice."""
    source = ops.parameter([4, 16], np.float32, name="x")
    addend = ops.parameter([4, _WIDTH], np.float32, name="other")
    parts = ops.split(_product(source, 1, 16), np.int64(1), 2)
    best = ops.topk(parts.output(0), np.int64(3), np.int64(1), "max", "value")
    total = ops.add(parts.output(1), _product(addend, 2))
    last = ops.tanh(_product(total, 3))
    results = [best.output(0), best.output(1), total, last, last, parts.output(0)]
    return Sample(_model(results, [source, addend], "several_outputs"))


def dynamic_output() -> Sample:
    """Outputs whose lengths depend on the data: non-maximum suppression and a threshold."""
    generator = np.random.default_rng(0)
    source = ops.parameter([1, 12, _WIDTH], np.float32, name="x")
    scores = ops.sigmoid(ops.matmul(source, _weights(_WIDTH, 2, seed=1), False, False))
    corners = generator.uniform(0, 10, (1, 12, 2)).astype(np.float32)
    size = ops.exp(ops.matmul(source, _weights(_WIDTH, 2, seed=2), False, False))
    boxes = ops.concat([ops.constant(corners), ops.add(ops.constant(corners), size)], 2)
    selected = ops.non_max_suppression(
        boxes,
        ops.transpose(scores, [0, 2, 1]),
        ops.constant(np.int64(4)),
        ops.constant(np.float32(0.5)),
        ops.constant(np.float32(0.2)),
    )
    best = ops.reduce_max(scores, np.array([0, 2]), False)
    rows = ops.non_zero(ops.greater(best, np.float32(0.5)), "i64")
    high_scoring = ops.gather(
        ops.squeeze(boxes, np.int64(0)), ops.squeeze(rows, np.int64(0)), np.int64(0)
    )
    results = [selected.output(0), selected.output(1), ops.relu(high_scoring)]
    return Sample(_model(results, [source], "dynamic_output"))


def _quantised(value: ov.Node) -> ov.Node:
    """Returns `value` rounded to 256 levels between -4 and 4."""
    ends = [ops.constant(np.full((1, 1, 1, 1), end, np.float32)) for end in (-4, 4, -4, 4)]
    return ops.fake_quantize(value, *ends, 256)


def int8() -> Sample:
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
    return Sample(_model([_product(pooled, 1)], [source], "int8"))


def deep() -> Sample:
    """1,400 operations as exporters write them: many small, a third of them Constants.

    Paths through it are longer than Python's limit of recursion.
    """
    source = ops.parameter([4, _WIDTH], np.float32, name="x")
    value, skipped = source, source
    for i in range(130):
        value = ops.add(_product(value, i), _weights(1, _WIDTH, seed=i))
        value = ops.multiply(value, ops.sigmoid(value))
        mean = ops.reduce_mean(value, np.array([1]), True)
        value = ops.tanh(ops.add(ops.subtract(value, mean), skipped))
        skipped = value if i % 5 == 0 else skipped
    return Sample(_model([value], [source], "deep"))


MODELS: dict[str, Callable[[], Sample]] = {
    "light_shufflenet": _file("onnx", "backend/test/data/light/light_shufflenet.onnx"),
    "melspectrogram": _wake_word("melspectrogram", "serving_default_input:0:1,1280"),
    "speech_embedding": _wake_word("embedding_model", "serving_default_input_1:0:1,76,32,1"),
    "wake_word": _wake_word("okay_nabu"),
    "dynamic_input": dynamic_input,
    "branches": branches,
    "loop": loop,
    "tensor_iterator": tensor_iterator,
    "states": states,
    "cache": cache,
    "strings": strings,
    "lengths": lengths,
    "steps": steps,
    "several_outputs": several_outputs,
    "dynamic_output": dynamic_output,
    "int8": int8,
    "deep": deep,
}
