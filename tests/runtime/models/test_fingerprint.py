import json

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.reporting import runs
from placement.runtime.models import fingerprint, frontend
from tests.runtime import small


def product(*, factor: float = 1.0, axis: int = 1, transpose: bool = False) -> ov.Model:
    matrix = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) * factor
    source = ops.parameter([8, 8], np.float32, name="x")
    value = ops.matmul(source, ops.constant(matrix, name="m"), False, transpose, name="product")
    total = ops.reduce_sum(value, ops.constant([axis], np.int64, name="axis"), True, name="total")
    return ov.Model([ops.result(total, name="y")], [source], "product")


def differences(then: ov.Model, now: ov.Model) -> list[str]:
    return fingerprint.describe_differences(
        fingerprint.compute_fingerprint(then), fingerprint.compute_fingerprint(now)
    )


def test_files_have_the_same_fingerprint(tmp_path):
    model = frontend.prepare(small.convolutions())
    ov.save_model(model, tmp_path / "model.xml", compress_to_fp16=False)
    again = frontend.prepare(frontend.load(str(tmp_path / "model.xml")))
    assert differences(model, again) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"factor": 1.01}, ["weights changed in 'm'"]),
        ({"axis": -1}, ["'axis' differ in attributes, inputs or values"]),
        ({"transpose": True}, ["'product' differ in attributes, inputs or values"]),
        ({"factor": 1 + 1e-7}, []),  # the last bit, as another processor may fold it
    ],
)
def test_changes_are_named(change, said):
    assert differences(product(), product(**change)) == said


def test_other_operations_are_named():
    longer = small.convolutions(length=5, size=12)
    found = differences(small.convolutions(), longer)
    assert found[0] == "it has new 'weights_4', 'conv_4', 'relu_4'"
    assert found[1] == "'x' was Parameter f32[1,16,14,14] and is Parameter f32[1,16,12,12]"
    assert found[-1] == "7 more have other shapes or types"
    gone = differences(small.convolutions(), small.convolutions(length=1))
    assert gone[0] == "it lacks 'weights_1', 'conv_1', 'relu_1' and 6 more"


def test_other_wiring_differs():
    model = small.diamond()
    nodes = {op.get_friendly_name(): op for op in model.get_ops()}
    nodes["right"].input(0).replace_source_output(nodes["left"].output(0))
    found = differences(small.diamond(), model)
    assert found == ["'right' differ in attributes, inputs or values"]


def masked(*, below: float = 0.0, above: float = -np.inf, dtype: type = np.float32) -> ov.Model:
    mask = np.where(np.tri(4, 8) > 0, below, above).astype(dtype)
    source = ops.parameter([4, 8], dtype, name="x")
    value = ops.add(source, ops.constant(mask, name="mask"), name="sum")
    return ov.Model([ops.result(value, name="y")], [source], "masked")


@pytest.mark.parametrize("above", [-np.inf, np.nan, np.finfo(np.float64).min])
def test_masks_survive_files(above, tmp_path):
    model = masked(above=above, dtype=np.float64)
    runs.write_json(tmp_path / "then.json", fingerprint.compute_fingerprint(model))
    then = json.loads((tmp_path / "then.json").read_text())
    assert fingerprint.describe_differences(then, fingerprint.compute_fingerprint(model)) == []
    moved = fingerprint.compute_fingerprint(masked(below=above, above=0.0, dtype=np.float64))
    assert len(fingerprint.describe_differences(then, moved)) == 1
