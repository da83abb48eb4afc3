"""One-line summaries of OpenVINO's exceptions."""

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
