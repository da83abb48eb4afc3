"""Tests of `placement.runtime.models.frontend`."""

import os
import pathlib
import shutil

import numpy as np
import onnx
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime.models import frontend


def _names(model):
    return [op.get_friendly_name() for op in model.get_ordered_ops()]


def _types(model):
    return [op.get_type_name() for op in model.get_ordered_ops()]


def _input(name, shape, dtype=ov.Type.f32):
    parameter = ops.parameter(ov.PartialShape(shape), dtype, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _model(output, *inputs):
    return ov.Model([ops.result(output)], list(inputs), "model")


def _dense():
    """x [2, 8] times a weight [8, 4]: 4 operations."""
    x = _input("x", [2, 8])
    weight = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    return _model(ops.matmul(x, ops.constant(weight), False, False, name="product"), x)


def _saved(model, directory, **options):
    path = directory / "model.xml"
    ov.save_model(model, path, **options)
    return str(path)


def _message(call, *arguments):
    """The single line of the ValueError that `call` raises."""
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Reading files.


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("none.onnx", None, "no model file"),
        ("model.pt", b"x", "'.pt'"),
        ("text.onnx", b"hello\nworld", "cannot be read as ONNX"),
        ("model.pb", b"\x0a\xff\xff\xff\x0fjunk", "cannot be read as a frozen TensorFlow graph"),
    ],
)
def test_load_refuses_bad_files(tmp_path, capfd, file, content, said):
    path = tmp_path / file
    if content is not None:
        path.write_bytes(content)
    message = _message(frontend.load, str(path))
    assert said in message
    assert file in message
    assert ".xml, .onnx, .tflite, .pb" in message
    assert "Exception from" not in message
    assert capfd.readouterr().err == ""
    os.write(2, b"seen")
    assert capfd.readouterr().err == "seen"


def test_load_refuses_broken_ir(tmp_path):
    (tmp_path / "folder.pb").mkdir()
    assert "holds no saved_model.pb" in _message(frontend.load, str(tmp_path / "folder.pb"))
    path = pathlib.Path(_saved(_dense(), tmp_path))
    path.with_suffix(".bin").write_bytes(b"1234")
    message = _message(frontend.load, str(path))
    assert "cannot be read as OpenVINO IR" in message
    assert "export it again" in message
    path.with_suffix(".bin").unlink()
    assert "model.bin' there too" in _message(frontend.load, str(path))


def _saved_onnx(
    path: pathlib.Path, kind: str, *, shape=(1, 4, 8, 8), second: str = "w", **how
) -> str:
    """Saves a model of one operation with weights 'w', whose input 'x' has this shape."""
    value = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in "xy"]
    weights = onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    node = onnx.helper.make_node(kind, ["x", second], ["y"], name="node")
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:], [weights])
    onnx.save(onnx.helper.make_model(graph), path, **how)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "how", "said"),
    [
        ("Peculiar", {}, ("Peculiar", "export it again with operations that OpenVINO knows")),
        ("MatMul", {"second": ""}, ("leaves out an input that 'y' needs; export it again",)),
        ("Conv", {"shape": None}, ("rank has to be known", "the number of dimensions of every")),
    ],
)
def test_load_quotes_openvino(tmp_path, kind, how, said):
    message = _message(frontend.load, _saved_onnx(tmp_path / "model.onnx", kind, **how))
    assert all(text in message for text in said)
    assert "suffix" not in message


def test_load_names_external_weights(tmp_path):
    how = {"save_as_external_data": True, "location": "model.weights", "size_threshold": 0}
    path = _saved_onnx(tmp_path / "model.onnx", "Conv", **how)
    weights = tmp_path / "model.weights"
    for content, said in ((b"1", "copy it again"), (None, "weights is missing: copy it")):
        weights.unlink() if content is None else weights.write_bytes(content)
        message = _message(frontend.load, path)
        assert repr(str(weights)) in message
        assert said in message
        assert "suffix" not in message


@pytest.mark.parametrize("given", ["saved", "saved/saved_model.pb"])
def test_load_reads_saved_models(tmp_path, given):
    """The stored file is relu(x @ weights), x of shape [?, 3]; no TensorFlow was needed for it."""
    weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    shutil.copytree(pathlib.Path(__file__).parent / "saved_model", tmp_path / "saved")
    (tmp_path / "saved/variables").mkdir()
    model = frontend.load(str(tmp_path / given))
    prepared = frontend.prepare(model, "x:2,3")
    (array,) = frontend.example_inputs(prepared, 0)
    compiled = ov.Core().compile_model(prepared, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    np.testing.assert_allclose(compiled([array])[0], np.maximum(array @ weights, 0), atol=1e-6)


# Shapes.


def _two_inputs():
    images, ids = _input("images", [-1, 3, -1, -1]), _input("ids:0", [1, "2..64"], ov.Type.i64)
    total = ops.add(
        ops.reduce_sum(images, [0, 1, 2, 3]), ops.convert(ops.reduce_sum(ids, 1), "f32")
    )
    return _model(total, images, ids)


@pytest.mark.parametrize("batch", [0, 2])
def test_prepare_binds_shapes_by_name(batch):
    model = _two_inputs()
    prepared = frontend.prepare(model, f"images:{batch},3,8,9; ids:0:1,16")
    assert [tuple(port.shape) for port in prepared.inputs] == [(batch, 3, 8, 9), (1, 16)]
    assert all(port.get_partial_shape().is_dynamic for port in model.inputs)


@pytest.mark.parametrize("name", ["a;b", " a ", "it's", "{x}", "new\nline"])
def test_shapes_suit_any_name(name):
    source = _input(name, [-1, 3])
    model = _model(ops.relu(source), source)
    prepared = frontend.prepare(model, frontend.format_shapes({name: (2, 3)}))
    assert tuple(prepared.inputs[0].shape) == (2, 3)
    message = _message(frontend.prepare, model)
    assert "\n" not in message
    assert repr(name) in message
    proposed = message.partition("shapes.json' with ")[2].removesuffix(" in that file")
    assert tuple(frontend.prepare(model, proposed).inputs[0].shape) == (1, 3)


def test_shapes_are_read_from_files(tmp_path):
    file = tmp_path / "shapes.json"
    file.write_text('{"x": [5, 8]}')
    assert tuple(frontend.prepare(_dense(), str(file)).inputs[0].shape) == (5, 8)
    file.write_text("x:5,8")
    assert "cannot be read as JSON" in _message(frontend.prepare, _dense(), str(file))
    assert "cannot be read" in _message(frontend.prepare, _dense(), "absent.json")


def test_prepare_proposes_missing_shapes():
    message = _message(frontend.prepare, _two_inputs())
    flag = "input_shapes='images:1,3,224,224;ids:0:1,64'"
    assert flag in message
    prepared = frontend.prepare(_two_inputs(), flag.split("'")[1])
    assert tuple(prepared.inputs[0].shape) == (1, 3, 224, 224)
    message = _message(frontend.prepare, _two_inputs(), "images:1,3,8,8")
    assert "input_shapes='ids:0:1,64'" in message
    assert "images" not in message
    for shape, example in (
        ([-1, -1, -1, 3], "x:1,224,224,3"),
        ([-1], "x:1'"),
        ([-1, -1, 768], "x:1,128,768"),
        ("[...]", "x:1,3,224,224"),
    ):
        x = ops.parameter(ov.PartialShape(shape), ov.Type.f32, name="x")
        assert example in _message(frontend.prepare, _model(ops.relu(x), x))


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ("pictures:1,3,8,8;ids:0:1,16", "its inputs are images [?,3,?,?], ids:0 [1,2..64]"),
        ("images", "NAME:SIZE"),
        ("images:1,3,-1,8", "malformed entry 'images:1,3,-1,8'"),
        ('{"images": [1, 3, -1, 8]}', "[1, 3, -1, 8]; set sizes from 0"),
        ('{"images": [1, 3, 8.5, 8]}', "is 8.5, not a whole number"),
        ("images:1,3,8,8;images:1,3,8,8", "keep one"),
        ("images:9223372036854775807,3,8,8;ids:0:1,16", "set at most 1.1e+12"),
        ("images:1,4,8,8;ids:0:1,16", "input_shapes='images:1,3,224,224'"),
        ("images:1,3,8,8;ids:0:1,65", "does not fit [1,2..64]"),
    ],
)
def test_prepare_refuses_bad_shapes(shapes, said):
    assert said in _message(frontend.prepare, _two_inputs(), shapes)


def test_prepare_reshapes_static_inputs():
    assert tuple(frontend.prepare(_dense(), "x:5,8").outputs[0].shape) == (5, 4)
    message = _message(frontend.prepare, _dense(), "x:2,9")
    assert "'x:2,9'" in message
    assert "operation 'product'" in message
    assert "set shapes that it was made for" in message
    assert "Exception from" not in message


# Folding.


def test_prepare_folds_constants():
    x = _input("x", [-1, 4, 6])
    batch = ops.gather(ops.shape_of(x), ops.constant([0]), ops.constant(0))
    rest = ops.convert(ops.constant(np.array([-1], np.int32)), "i64")
    flat = ops.reshape(x, ops.concat([batch, rest], 0), False)
    prepared = frontend.prepare(_model(flat, x), "x:3,4,6")
    assert sorted(_types(prepared)) == ["Constant", "Parameter", "Reshape", "Result"]
    assert tuple(prepared.outputs[0].shape) == (3, 24)


def test_prepare_keeps_compressed_weights(tmp_path):
    model = frontend.load(_saved(_dense(), tmp_path, compress_to_fp16=True))
    prepared = frontend.prepare(model)
    assert sorted(_types(prepared)) == ["Constant", "Convert", "MatMul", "Parameter", "Result"]
    marks = {op.get_type_name(): set(op.get_rt_info().keys()) for op in prepared.get_ordered_ops()}
    assert "decompression_0" in marks["Convert"]
    assert frontend.NO_FOLDING not in marks["Convert"]
    (constant,) = (op for op in prepared.get_ops() if op.get_type_name() == "Constant")
    assert constant.get_element_type() == ov.Type.f16


def test_prepare_refuses_uncomputable_constants():
    ones, zeros = (ops.constant(np.full((2, 4), n, np.int32)) for n in (1, 0))
    x = _input("x", [2, 4], ov.Type.i32)
    message = _message(frontend.prepare, _model(ops.add(x, ops.divide(ones, zeros)), x))
    assert "constants cannot be computed: integer division by zero" in message


# Names.


def test_prepare_makes_names_unique():
    x = _input("x", [2])
    y = x
    # The third would become a_1 if that were not taken.
    for name in ("a", "a_1", "a", "a"):
        y = ops.relu(y, name=name)
    prepared = frontend.prepare(_model(y, x))
    assert _names(prepared) == ["x", "a", "a_1", "a_2", "a_3", "Result_0"]


def test_prepare_names_added_operations():
    """OpenVINO then computes the target of a Reshape before a MatMul from its input."""
    x = _input("x", [1, 2, 4])
    flat = ops.reshape(x, ops.constant(np.array([1, 8])), False, name="flat")
    weight = ops.constant(np.ones((8, 3), np.float32), name="weight")
    model = _model(ops.matmul(flat, weight, False, False, name="product"), x)
    first, second = (_names(frontend.prepare(model, "x:5,2,4")) for _ in range(2))
    assert "Concat_0" in first
    assert first == second


# Inputs.


def test_example_inputs_by_type():
    shape = [64, 8]
    types = (ov.Type.f32, ov.Type.f16, ov.Type.boolean, ov.Type.i32, ov.Type.string)
    inputs = [_input(f"x{i}", shape, dtype) for i, dtype in enumerate(types)]
    model = ov.Model([ops.result(x) for x in inputs], inputs, "model")
    f32, _, boolean, i32, _ = first = frontend.example_inputs(model, 0)
    assert [array.dtype.kind for array in first] == list("ffbiU")
    again, others = frontend.example_inputs(model, 0), frontend.example_inputs(model, 1)
    for array, same, other in zip(first, again, others, strict=True):
        np.testing.assert_array_equal(array, same)
        assert not np.array_equal(array, other)
        assert array.shape == (64, 8)
    assert abs(f32.mean()) < 0.2
    assert f32.std() == pytest.approx(1, abs=0.2)
    assert set(np.unique(boolean)) == {False, True}
    assert set(np.unique(i32)) == {0, 1}
    drawn = {kind: frontend.example_inputs(model, 0, kind)[0] for kind in frontend.FLOATS}
    ends = [(x.min().round(1), x.max().round(1)) for x in drawn.values()]
    assert ends[0][0] < -2
    assert ends[1:] == [(0, 1), (-1, 1)]
    x = _input("x", [2], ov.Type.bf16)
    message = _message(frontend.example_inputs, _model(ops.relu(x), x), 0)
    assert "'x' has type bf16" in message


def test_example_inputs_index_within_tables():
    tokens, types, mask = (_input(n, [1, 512], ov.Type.i64) for n in ("tokens", "types", "mask"))
    large, small = (ops.constant(np.ones((rows, 4), np.float32)) for rows in (100, 7))
    looked_up = ops.gather(large, ops.unsqueeze(ops.convert(tokens, "i32"), 2), ops.constant(0))
    # Read twice: the smaller table decides.
    both = ops.gather(ops.transpose(small, ops.constant([1, 0])), types, ops.constant(1))
    outputs = [looked_up, both, ops.gather(large, types, 0), ops.convert(mask, "f32")]
    model = ov.Model([ops.result(y) for y in outputs], [tokens, types, mask], "model")
    highest = [array.max() for array in frontend.example_inputs(model, 0)]
    assert 90 < highest[0] < 100
    assert highest[1:] == [6, 1]


def test_example_inputs_suit_lengths():
    x, counts = _input("x", [3, 5, 4]), _input("counts", [3], ov.Type.i64)
    rate, end = (_input(name, [], ov.Type.i64) for name in ("rate", "end"))
    outputs = [
        ops.reverse_sequence(x, counts, 0, 1),
        ops.equal(rate, ops.constant(np.int64(16000))),
        ops.range(ops.constant(np.int64(0)), end, ops.constant(np.int64(1)), "i64"),
    ]
    model = ov.Model([ops.result(y) for y in outputs], [x, counts, rate, end], "model")
    drawn = [frontend.example_inputs(model, seed)[1:] for seed in range(40)]
    assert {int(n) for lengths, _, _ in drawn for n in lengths} == {1, 2, 3, 4, 5}
    assert {int(given) for _, given, _ in drawn} == {16000}
    assert {int(last) for _, _, last in drawn} == set(range(1, 9))
