"""Placements on one CPU in two precisions. Precisions themselves are checked where bf16 exists."""

import dataclasses
import json

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

import placement
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.execution import hetero, mixed_precision
from placement.runtime.models import frontend
from tests.runtime import small

HAS_BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def whole_cpu(precision: str, **changes: object) -> devices.Device:
    (cpu,) = devices.resolve("CPU")
    properties = {**cpu.properties, "INFERENCE_PRECISION_HINT": precision}
    name = f"CPU_{precision.upper()}"
    fields = {"name": name, "precision": precision, "properties": properties, "host": True}
    return dataclasses.replace(cpu, **(fields | changes))


F32, BF16 = whole_cpu("f32"), whole_cpu("bf16")


def residual() -> ov.Model:
    """Two convolutions whose sum the plug-in merges with one of them."""
    x = ops.parameter([1, 16, 12, 12], np.float32, name="x")
    generator = np.random.default_rng(0)

    def convolution(source: ov.Node, name: str) -> ov.Node:
        weights = ops.constant(generator.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12)
        return ops.convolution(source, weights, [1, 1], [1, 1], [1, 1], [1, 1], name=name)

    first = ops.relu(convolution(x, "first"), name="relu")
    total = ops.add(convolution(first, "second"), first, name="total")
    return ov.Model([ops.result(ops.relu(total, name="last"), name="y")], [x], "residual")


def compute_precisions(compiled: ov.CompiledModel) -> dict[str, str]:
    """Returns the precision that each operation of the plug-in's program computes in."""
    precisions = {}
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = op.get_rt_info()
        if "originalLayersNames" in info:
            names = info["originalLayersNames"].astype(str).split(",")
            precisions |= dict.fromkeys(names, info["runtimePrecision"].astype(str))
    return precisions


def test_pair_is_recognised():
    assert mixed_precision.find_coarse_device([F32, BF16]) == BF16
    assert mixed_precision.find_coarse_device([BF16, F32]) == BF16
    for others in (
        [F32],
        [F32, whole_cpu("f32", name="CPU_F32_1")],  # one precision
        [F32, BF16, whole_cpu("f16")],
        [F32, dataclasses.replace(BF16, core=0)],  # one core is not the whole CPU
        [F32, dataclasses.replace(BF16, name="GPU", host=False)],
        [F32, dataclasses.replace(BF16, properties={**BF16.properties, "NUM_STREAMS": "2"})],
    ):
        assert mixed_precision.find_coarse_device(others) is None


def test_merged_operations_are_marked():
    model = frontend.prepare(residual())
    changed = mixed_precision.keep_in_f32(ov.Core(), model, ["second"])
    assert mixed_precision.list_kept(changed) == {"second", "total"}
    assert not mixed_precision.list_kept(model)  # the given model is not changed


def replaced() -> ov.Model:
    """Operations that the plug-in replaces by others: in f32 they need another form."""
    x = ops.parameter([1, 16, 12, 12], np.float32, name="x")
    generator = np.random.default_rng(0)
    weights = ops.constant(generator.standard_normal((12, 20)).astype(np.float32))
    pooled = ops.max_pool(x, [1, 1], [1, 1], [1, 1], [1, 1], [3, 3], "floor", "explicit", "i64", 0)
    product = ops.matmul(pooled.output(0), weights, False, False, name="product")
    row = ops.gather(ops.softmax(product, -1), np.int64(3), np.int64(2), name="row")
    scaled = ops.add(ops.multiply(row, np.float32(2.0)), np.float32(0.5), name="scaled")
    return ov.Model([ops.result(ops.unsqueeze(scaled, np.int64(1)), name="y")], [x], "replaced")


@pytest.mark.parametrize("transposed", [False, True])
def test_replaced_forms_compute_the_same(transposed):
    model = replaced()
    if transposed:
        (product,) = (op for op in model.get_ops() if op.get_friendly_name() == "product")
        factors = [
            ops.transpose(port.get_source_output(), axes)
            for port, axes in zip(
                product.inputs(), (np.array([0, 1, 3, 2]), np.array([1, 0])), strict=True
            )
        ]
        product.output(0).replace(ops.matmul(*factors, True, True).output(0))
    model = frontend.prepare(model)
    x = np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype(np.float32)
    core = small.open_core([F32, BF16])
    names = [op.get_friendly_name() for op in model.get_ops()]
    expected = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)[0]
    changed = mixed_precision.keep_in_f32(core, model, names)
    assert changed.outputs[0].get_names() == model.outputs[0].get_names()
    # In a precision that the processor does not have, the plug-in computes in f32 anyway.
    computed = core.compile_model(changed, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})(x)[0]
    np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not HAS_BF16, reason="this processor computes in f32 alone")
def test_marked_operations_compute_in_f32():
    model = frontend.prepare(small.convolutions())
    affinity = small.everywhere(model, BF16.name, conv_1=F32.name, relu_1=F32.name)
    compiled = hetero.compile_placement(small.open_core([F32, BF16]), model, affinity, [F32, BF16])
    precisions = compute_precisions(compiled)
    assert precisions["conv_1"] == "f32"
    assert precisions["conv_2"] == "bf16"


def test_deployed_placement_computes_the_same(tmp_path):
    dynamic = frontend.name_operations(residual())
    dynamic.reshape([ov.Dimension(1, 4), 16, 12, 12])
    model = frontend.prepare(residual())
    affinity = small.everywhere(model, BF16.name, first=F32.name, relu=F32.name)
    made = artifact.Artifact(model, artifact.HETERO, (F32, BF16), affinity, dynamic=dynamic)
    artifact.save(made, tmp_path)
    x = np.random.default_rng(2).standard_normal((3, 16, 12, 12)).astype(np.float32)
    core = small.open_core([F32, BF16])
    compiled = hetero.compile_placement(core, model, affinity, [F32, BF16])
    expected = np.concatenate([compiled(x[i : i + 1])[0] for i in range(3)])
    with placement.load(tmp_path) as network:
        assert network.form == artifact.MIXED
        single = np.concatenate([network.infer([x[i : i + 1]])[0] for i in range(3)])
        batch = network.infer([x])[0]  # of a shape that was not placed
    np.testing.assert_array_equal(single, expected)
    np.testing.assert_allclose(batch, single, rtol=1e-4, atol=1e-4)
    # The file holds the marks.
    content = json.loads((tmp_path / artifact.MANIFEST).read_text())
    saved = core.read_model(tmp_path / content["model"])
    assert mixed_precision.list_kept(saved) == {"first", "relu"}
    assert content["device"] == BF16.name
    affinities = json.loads((tmp_path / "affinities.json").read_text())
    assert affinities.keys() == {op.get_friendly_name() for op in saved.get_ops()}
    assert set(affinities.values()) == {F32.name, BF16.name}
