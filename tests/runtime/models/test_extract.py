"""Tests of `placement.runtime.models.extract`."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement import zoo
from placement.runtime.models import extract, frontend


def _input(name, shape, dtype=ov.Type.f32):
    return ops.parameter(shape, dtype, name=name)


def _constant(name, array):
    return ops.constant(array, name=name)


def _dense():
    """x [2, 8] times a float16 weight [8, 4], plus itself: y + y."""
    x = _input("x", [2, 8])
    weight = _constant("weight", np.ones((8, 4), np.float16))
    product = ops.matmul(x, ops.convert(weight, "f32", name="convert"), False, False, name="y")
    return ov.Model([ops.result(ops.add(product, product, name="twice"), name="out")], [x], "m")


def _edges(graph):
    return {
        (graph.op_names[s], graph.op_names[r], int(size))
        for s, r, size in zip(graph.senders, graph.receivers, graph.edge_bytes, strict=True)
    }


def _by_name(graph, values):
    return dict(zip(graph.op_names, np.asarray(values).tolist(), strict=True))


def test_full_view():
    model = _dense()
    graph, estimated = extract.op_graph(model, name="dense")
    assert graph.name == "dense"
    assert graph.op_names == tuple(op.get_friendly_name() for op in model.get_ordered_ops())
    types = ["Parameter", "Constant", "Convert", "MatMul", "Add", "Result"]
    names = ["x", "weight", "convert", "y", "twice", "out"]
    kinds = dict(zip(graph.op_names, graph.op_types, strict=True))
    assert kinds == dict(zip(names, types, strict=True))
    assert _edges(graph) == {
        ("x", "y", 64),
        ("weight", "convert", 64),
        ("convert", "y", 128),
        ("y", "twice", 32),
        ("twice", "out", 32),
    }
    assert graph.num_edges == 6  # y is read twice
    shapes = dict(zip(graph.op_names, graph.output_shapes, strict=True))
    assert (shapes["weight"], shapes["y"], shapes["out"]) == ((8, 4), (2, 4), (2, 4))
    work, weights = _by_name(graph, graph.flops), _by_name(graph, graph.weight_bytes)
    assert work == dict.fromkeys(names, 0) | {"y": 2 * 2 * 4 * 8, "twice": 8}
    assert weights == dict.fromkeys(names, 0) | {"weight": 64}
    assert estimated == {}
    groups = _by_name(graph, graph.colocation)
    assert groups["weight"] == groups["convert"] == groups["y"]
    assert groups["out"] == groups["twice"]
    assert len(set(groups.values())) == 3  # x, y, twice


def test_view_without_constants():
    graph = extract.op_graph(_dense(), name="dense", constants=False).graph
    assert sorted(graph.op_names) == ["out", "twice", "x", "y"]
    assert _edges(graph) == {("x", "y", 64), ("y", "twice", 32), ("twice", "out", 32)}
    assert _by_name(graph, graph.weight_bytes) == {"x": 0, "y": 64, "twice": 0, "out": 0}
    assert graph.colocation.max() == 2


def test_outputs_are_tensors():
    x = _input("x", [2, 6])
    parts = ops.split(x, ops.constant(1), 2).outputs()
    outputs = [ops.relu(parts[0]), ops.sigmoid(parts[0]), ops.relu(parts[1])]
    model = frontend.prepare(ov.Model([ops.result(y) for y in outputs], [x], "m"))
    graph = extract.op_graph(model, name="m", constants=False).graph
    split = graph.op_types.index("Split")
    tensors = graph.tensors[graph.senders == split]
    assert len(tensors) == 3
    assert len(set(tensors.tolist())) == 2
    assert len(set(graph.tensors.tolist())) == 1 + 2 + 3


def test_shared_constants_follow_first_readers():
    x = _input("x", [4])
    shared = _constant("shared", np.ones(4, np.float32))
    y = ops.multiply(ops.add(x, shared, name="first"), shared, name="second")
    model = ov.Model([ops.result(y, name="out")], [x], "m")
    full = extract.op_graph(model, name="m").graph
    groups = _by_name(full, full.colocation)
    assert groups["shared"] == groups["first"] != groups["second"]
    bare = extract.op_graph(model, name="m", constants=False).graph
    assert _by_name(bare, bare.weight_bytes) == {"x": 0, "first": 16, "second": 0, "out": 0}


def test_state_stays_on_one_device(tmp_path):
    x = _input("x", [1, 2])
    start = _constant("start", np.zeros((1, 2), np.float32))
    state = ops.read_value(start, "v", ov.Type.f32, [1, 2], name="read")
    total = ops.add(x, state, name="total")
    assign = ops.assign(total, "v")
    assign.set_friendly_name("assign")
    model = ov.Model([ops.result(total, name="out")], [assign], [x], "m")
    path = tmp_path / "model.xml"
    ov.save_model(model, path)
    for kept in (model, ov.Core().read_model(path)):
        graph = extract.op_graph(kept, name="m").graph
        groups = _by_name(graph, graph.colocation)
        between = {groups[name] for name in ("start", "read", "total", "assign", "out")}
        assert len(between) == 1
        assert groups["x"] not in between
        bare = extract.op_graph(kept, name="m", constants=False).graph
        assert {"read", "assign"} < set(bare.op_names)


def test_resnet50():
    model = zoo.build("resnet50", weights=False)
    full, estimated = extract.op_graph(model, name="resnet50")
    bare, _ = extract.op_graph(model, name="resnet50", constants=False)
    assert (full.num_ops, full.num_edges) == (396, 411)
    assert bare.num_ops == 178
    assert estimated == {}
    # He et al. 2015, table 1: 3.8e9 multiply-adds with the stride in the first convolution; in the
    # 3x3, as here, they are 4.1e9.
    assert full.flops.sum() == pytest.approx(2 * 4.1e9, rel=0.01)
    assert bare.flops.sum() == full.flops.sum()
    assert bare.weight_bytes.sum() == full.weight_bytes.sum()
    # 25.6 million parameters in float16; folded batch normalisation leaves one vector of two.
    assert full.weight_bytes.sum() == pytest.approx(2 * 25.5e6, rel=0.01)
    # Every group of the full view is led by an operation of the view without constants.
    assert len(set(full.colocation.tolist())) == len(set(bare.colocation.tolist())) == 177
