"""Why devices cannot run operations: the CPU plug-in's own words for one that it refuses."""

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime.models import support

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
