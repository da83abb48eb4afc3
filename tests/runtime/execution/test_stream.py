"""Requests under way as OpenVINO has them, and its own benchmark beside our figures."""

from collections.abc import Callable

import numpy as np
import openvino as ov
import pytest
from openvino.tools.benchmark.benchmark import Benchmark

from placement.runtime import devices
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement.worker import inference
from tests.runtime import small

_PAIRS = 20
_FACTOR = 1.5  # between what we and `benchmark_app` measure


class _Inputs:
    """What `Benchmark` asks for where inputs stay: the size of a batch."""

    def get_next_batch_size(self) -> int:
        return 1


def _compiled(model: ov.Model, make: Callable[..., tuple[devices.Device, ...]]):
    """On the CPU in f32, among the devices that something makes of those of the host."""
    device = next(d for d in make(devices.resolve("host")) if d.precision == "f32")
    return compile_placement(ov.Core(), model, None, [device])


def _drawn(model: ov.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(port.shape).astype(np.float32) for port in model.inputs]


def _ratio(ours: Callable[[], float], theirs: Callable[[], float]) -> float:
    """Returns the ratio of the minima, which other work affects least, of alternating calls."""
    pairs = np.array([(ours(), theirs()) for _ in range(_PAIRS)])
    least_s = pairs.min(axis=0)
    return float(least_s[0] / least_s[1])


def test_streams_compute_like_requests():
    model = small.convolutions()
    inputs = _drawn(model)
    alone = inference.create_request(_compiled(model, devices.list_references), inputs)
    stream = inference.create_request(
        _compiled(model, devices.list_throughput_references), inputs, streams=True
    )
    np.testing.assert_allclose(
        inference.infer_outputs(stream)[0], inference.infer_outputs(alone)[0], rtol=1e-4, atol=1e-5
    )
    assert stream.num_requests >= 1
    assert stream.stream(4 * stream.num_requests) > 0


@pytest.mark.alone
def test_times_agree_with_benchmark_app():
    """Its latency of a request after the other, its frames a second of many under way.

    A figure that counts a request twice, or leaves out one that is under way, is wrong by a factor
    of two.
    """
    model = small.convolutions(channels=32, size=28)
    inputs = _drawn(model)
    plain = _compiled(model, devices.list_references)
    request, theirs = (
        inference.create_request(plain, inputs),
        inference.create_request(plain, inputs),
    )
    one_by_one = Benchmark("CPU", number_iterations=10, api_type="sync", inference_only=True)

    def latency_s() -> float:
        times_ms, _, _ = one_by_one.sync_inference(theirs, _Inputs())
        return min(times_ms) / 1e3

    latency = _ratio(lambda: min(inference.infer_s(request) for _ in range(10)), latency_s)
    assert 1 / _FACTOR < latency < _FACTOR

    served = _compiled(model, devices.list_throughput_references)
    stream = inference.create_request(served, inputs, streams=True)
    count = 8 * stream.num_requests
    many = Benchmark("CPU", 0, count, api_type="async", inference_only=True)
    queue = many.create_infer_requests(served)
    for each in queue:
        inference.set_inputs(each, inputs)

    def reciprocal_s() -> float:
        _, total_s, processed = many.async_inference_only(queue, _Inputs())
        return total_s / processed

    assert 1 / _FACTOR < _ratio(lambda: stream.stream(count), reciprocal_s) < _FACTOR
