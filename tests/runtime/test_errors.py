"""One-line summaries of OpenVINO's exceptions."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.pipeline.console import faults
from placement.runtime import errors

RAISED = """Exception from src/inference/src/cpp/infer_request.cpp:246:
Exception from src\\bindings\\python\\src\\pyopenvino\\core\\infer_request.hpp:55:
Caught exception: Exception from src/plugins/intel_cpu/src/graph.cpp:1628:
Node choice of type If
Standard exception from compilation library:
Exception from src/plugins/intel_cpu/src/node.cpp:794:
[CPU] Reshape node with name 'shape' Check 'a <= 1 && b == 'c'' failed at src/reshape.cpp:77:
While validating node 'opset1::Reshape shape (x[0]:f32[4]) -> (f32[?])' with friendly_name 'shape':
[cpu]reshape: (4.6) conflicts with the reshape pattern (5.7).


"""
SUMMARY = (
    "Node choice of type If: [CPU] Reshape node with name 'shape': "
    "[cpu]reshape: (4.6) conflicts with the reshape pattern (5.7)"
)


def test_summaries_omit_source_places():
    error = RuntimeError(RAISED)
    assert errors.summarise_error(error) == SUMMARY
    assert errors.find_reason(error, "") == SUMMARY
    assert faults.summarise(error) == f"RuntimeError: {SUMMARY}"


def test_summary_of_nothing_is_type():
    assert errors.summarise_error(RuntimeError("Exception from src/a.cpp:1:\n")) == "RuntimeError"


def test_real_exceptions_have_no_places():
    source = ops.parameter([4, 6], np.float32)
    target = ops.parameter([2], np.int64)
    total = ops.reduce_sum(ops.reshape(source, target, False), np.array([0, 1]), False)
    model = ov.Model([ops.result(total)], [source, target])
    request = ov.Core().compile_model(model, "CPU").create_infer_request()
    request.start_async([np.ones((4, 6), np.float32), np.array([5, 7])])
    with pytest.raises(RuntimeError) as caught:
        request.wait()
    summary = errors.summarise_error(caught.value)
    assert "conflicts with the reshape pattern" in summary
    assert not any(text in summary for text in ("Exception from", ".cpp", "Check '", "\n"))
