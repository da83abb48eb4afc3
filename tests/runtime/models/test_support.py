"""Why devices cannot run operations: the CPU plug-in's own words for one that it refuses."""

import types

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime import devices
from placement.runtime.measurement import local
from placement.runtime.measurement.request import Reasons
from placement.runtime.models import support
from tests.runtime import small

REASON = "Supports only across channels or across spatial reduction"


def refused() -> ov.Model:
    """Two LRN across the rows alone, which the CPU plug-in has not implemented, and a ReLU."""
    source = ops.parameter([1, 3, 5, 5], np.float32, name="x")
    value = ops.relu(source, name="relu")
    for name in ("lrn_0", "lrn_1"):
        value = ops.lrn(value, np.array([2]), 1.0, 1.0, 1.0, 3, name=name)
    return ov.Model([ops.result(value, name="y")], [source], "refused")


def test_reasons_quote_the_plugin():
    model, core = refused(), ov.Core()
    names = support.list_unsupported(core, model, "CPU")
    assert names == ["lrn_0", "lrn_1"]
    explained = support.explain(core, model, "CPU", names)
    assert explained == [
        support.UnsupportedOp("CPU", name, "LRN", "f32[1,3,5,5], i64[1]", REASON) for name in names
    ]
    assert support.survey(model)["CPU"] == explained
    # The model itself is not cut.
    assert [op.get_friendly_name() for op in model.get_ordered_ops()][-1] == "y"


def test_equal_operations_are_compiled_once():
    core, compiled = ov.Core(), []

    def compile_model(model: ov.Model, device: str) -> ov.CompiledModel:
        compiled.append(model)
        return core.compile_model(model, device)

    counting = types.SimpleNamespace(compile_model=compile_model)
    assert len(support.explain(counting, refused(), "CPU", ["lrn_0", "lrn_1", "relu"])) == 3
    assert len(compiled) == 2


def test_compilable_operations_have_no_reason():
    model = small.convolutions()
    pair = devices.resolve("host:f32,f32")
    with local.LocalMeasurer(model, pair) as measurer:
        (explained,) = measurer.ask(Reasons(pair[0], frozenset({"conv_1"})))
    assert explained.reason == "OpenVINO gives no reason: alone, the operation compiles"
    assert explained.inputs == "f32[1,16,14,14], f32[16,16,3,3]"
