"""Static models of one model for several weighted input shapes."""

import re

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime.models import frontend, variants
from placement.runtime.models.variants import WeightedShapes
from tests.runtime.deployment.test_shapes import dynamic


def prepare(model: ov.Model, text: str) -> tuple[variants.Variant, ...]:
    return variants.prepare_variants(
        model,
        variants.parse_weighted_shapes(text),
        lambda static: frontend.example_inputs(static, seed=0),
    )


def growing_sum(*, start: ov.Node | None = None) -> ov.Model:
    """A variable to which each inference appends its rows; the output is the sum of all rows."""
    rows = ops.parameter([-1, 2], np.float32, name="rows")
    is_input = start is not None and start.get_type_name() == "Parameter"
    parameters = [rows, start] if is_input else [rows]
    empty = ops.constant(np.zeros((0, 2), np.float32), name="empty")
    read = ops.read_value(start or empty, "kept", ov.Type.f32, ov.PartialShape([-1, 2]))
    read.set_friendly_name("read")
    appended = ops.concat([read, rows], 0, name="append")
    total = ops.reduce_sum(appended, np.array([0]), False, name="total")
    sinks = [ops.assign(appended, "kept")]
    return ov.Model([ops.result(total, name="y")], sinks, parameters, "growing")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", [("", 1)]),
        ("x:1,3", [("x:1,3", 1)]),
        ("x:1,3@9|x:8,3", [("x:1,3", 9), ("x:8,3", 1)]),
        (" x:0:1,3 @ 2 | x:0:8,3;y:1@10 ", [("x:0:1,3", 2), ("x:0:8,3;y:1", 10)]),
        ("a@b:1,3", [("a@b:1,3", 1)]),
        ('{"x": [1, 3]}', [("x:1,3", 1)]),
        ('{"a;b": [1, 3]}', [('{"a;b": [1, 3]}', 1)]),
    ],
)
def test_shapes_are_parsed_with_their_weights(text, parsed):
    assert variants.parse_weighted_shapes(text) == tuple(WeightedShapes(*p) for p in parsed)


def test_shapes_are_read_from_files(tmp_path):
    entries = [({"a;b": (1, 3)}, 9), ({"a;b": (8, 3)}, 1)]
    file = tmp_path / "shapes.json"
    file.write_text(variants.format_weighted_shapes(entries))
    parsed = variants.parse_weighted_shapes(str(file))
    assert parsed == (WeightedShapes('{"a;b": [1, 3]}', 9), WeightedShapes('{"a;b": [8, 3]}', 1))
    file.write_text('{"a;b": [1, ')
    with pytest.raises(UserError, match=r"shapes\.json' cannot be read as JSON: .* line 1"):
        variants.parse_weighted_shapes(str(file))
    with pytest.raises(UserError, match=r"absent\.json.* cannot be read"):
        variants.parse_weighted_shapes("absent.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x:1@0|x:2", "gives 'x:1' the weight '0'"),
        ("x:1@0.5|x:2", "gives 'x:1' the weight '0.5'"),
        ("x:1@|x:2", "gives 'x:1' the weight ''"),
        ("x:1@3", "gives a weight to the only shape"),
        ("x:1@3|", "has an empty shape beside a '|'"),
    ],
)
def test_mistakes_are_one_line(text, message):
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        variants.parse_weighted_shapes(text)
    assert "\n" not in str(caught.value)
    assert "--config.input_shapes='" in str(caught.value)


def test_all_variants_have_the_same_operations():
    small, large = prepare(dynamic(), "x:2,8@9|x:16,8@1")
    assert [v.shapes.weight for v in (small, large)] == [9, 1]
    assert [list(v.model.input(0).shape) for v in (small, large)] == [[2, 8], [16, 8]]
    names = [{op.get_friendly_name() for op in v.model.get_ops()} for v in (small, large)]
    assert names[0] == names[1]


def test_a_shape_with_other_operations_is_refused():
    """A name that differs stands for an operation that exists with one shape only."""
    model = dynamic()

    def prepare_other(shapes: str) -> ov.Model:
        static = frontend.prepare(model, shapes)
        if shapes == "x:16,8":
            static.get_results()[0].input_value(0).get_node().set_friendly_name("other")
        return static

    small = variants.Variant(WeightedShapes("x:2,8", 1), prepare_other("x:2,8"))
    large = variants.Variant(WeightedShapes("x:16,8", 1), prepare_other("x:16,8"))
    message = "'x:2,8' and 'x:16,8' have different operations"
    with pytest.raises(UserError, match=message) as caught:
        variants._check_operations(small, large)
    assert "other" in str(caught.value)


def test_a_growing_state_is_carried_from_shape_to_shape():
    first, second, third = prepare(growing_sum(), "rows:4,2@1|rows:1,2@50|rows:1,2@1")
    rows = frontend.example_inputs(first.model, seed=0)[0]
    row = frontend.example_inputs(second.model, seed=0)[0]
    totals = []
    for variant, inputs in ((first, rows), (second, row), (third, row)):
        request = ov.Core().compile_model(variant.model, "CPU").create_infer_request()
        for _ in range(2):  # a reset restores the carried state
            request.reset_state()
            totals.append(request.infer([inputs])[0].copy())
    expected = [rows.sum(0), rows.sum(0) + row[0], rows.sum(0) + 2 * row[0]]
    np.testing.assert_allclose(totals, np.repeat(expected, 2, axis=0), rtol=1e-5)
    names = [{op.get_friendly_name() for op in v.model.get_ops()} for v in (first, second, third)]
    assert names[0] == names[1] == names[2]


def test_a_start_that_is_stored_in_fewer_bits_is_carried_too():
    stored = ops.constant(np.zeros((0, 2), np.float16), name="stored")
    model = growing_sum(start=ops.convert(stored, "f32", name="unpack"))
    _, second = prepare(model, "rows:4,2|rows:1,2")
    (read,) = (op for op in second.model.get_ops() if op.get_type_name() == "ReadValue")
    assert list(read.input(0).get_shape()) == [4, 2]


def test_a_single_shape_keeps_its_initial_state():
    (only,) = prepare(growing_sum(), "rows:4,2")
    assert "empty" in {op.get_friendly_name() for op in only.model.get_ops()}


def test_a_state_that_is_no_constant_is_refused():
    source = ops.parameter([0, 2], np.float32, name="start")
    with pytest.raises(UserError, match="variable 'kept' does not start with a constant"):
        prepare(growing_sum(start=source), "rows:4,2|rows:1,2")


def test_a_state_of_another_size_is_refused():
    """The batch of the state follows from the first shape."""
    rows = ops.parameter([-1, 1, 2], np.float32, name="rows")
    batch = ops.gather(ops.shape_of(rows), np.array([0]), np.array(0))
    shape = ops.concat([batch, ops.constant(np.array([0, 2]))], 0)
    start = ops.broadcast(ops.constant(np.float32(0)), shape)
    read = ops.read_value(start, "kept", ov.Type.f32, ov.PartialShape([-1, -1, 2]))
    appended = ops.concat([read, rows], 1)
    result = ops.result(ops.reduce_sum(appended, np.array([1]), False))
    model = ov.Model([result], [ops.assign(appended, "kept")], [rows], "batched")
    variants_of_one_batch = prepare(model, "rows:4,1,2|rows:4,1,2")
    assert len(variants_of_one_batch) == 2
    with pytest.raises(UserError, match=re.escape("variable 'kept' has shape [4, 1, 2]")):
        prepare(model, "rows:4,1,2|rows:8,1,2")
