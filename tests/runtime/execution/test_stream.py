"""Streams of requests as OpenVINO itself serves them."""

import numpy as np
import openvino as ov

from placement.runtime import devices
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement.worker import inference
from tests.runtime import small


def test_streams_compute_like_requests():
    model, host = small.convolutions(), devices.resolve("host")
    plain, served = devices.list_references(host)[0], devices.list_throughput_references(host)[0]
    inputs = [np.random.default_rng(0).standard_normal(model.inputs[0].shape).astype(np.float32)]
    compiled = compile_placement(ov.Core(), model, None, [plain])
    expected = inference.infer_outputs(inference.create_request(compiled, inputs))
    compiled = compile_placement(ov.Core(), model, None, [served])
    stream = inference.create_request(compiled, inputs, streams=True)
    assert stream.num_requests == compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
    assert 0 < stream.stream(4 * stream.num_requests) < 60
    for request in stream.requests:
        np.testing.assert_allclose(
            request.output_tensors[0].data, expected[0], rtol=1e-4, atol=1e-5
        )
