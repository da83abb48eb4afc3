import math
import time

import numpy as np
import openvino as ov
import pytest

from placement.runtime import devices
from placement.runtime.measurement import local, profile
from tests.runtime import small

pytestmark = pytest.mark.alone

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)


@pytest.fixture(scope="module")
def model():
    return small.convolutions(channels=32, size=28)


@pytest.fixture(scope="module")
def measurer(model):
    with local.LocalMeasurer(model, HOST) as opened:
        yield opened


def test_kernels_have_the_operations_they_fuse_and_sum_to_the_latency(measurer):
    profiles = measurer.profile(seconds=0.5)
    assert [found.device for found in profiles] == [device.label for device in HOST]
    for found in profiles:
        kernel_of = {name: names for names, _ in found.kernels for name in names}
        assert len(kernel_of) == sum(len(names) for names, _ in found.kernels)  # each in one
        for i in range(4):
            assert kernel_of[f"conv_{i}"] == kernel_of[f"relu_{i}"]
        assert not found.unsupported
        # Loose, since the counters are means and the latency a median: a busy machine parts them.
        assert 0.3 < sum(seconds for _, seconds in found.kernels) / found.latency_s < 3


def test_what_no_kernel_names_joins_its_only_reader():
    # A product with a bias runs under the name of the addition.
    ops = ov.opset13
    source = ops.parameter([64, 64], np.float32, name="x")
    matrix = ops.constant(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    bias = ops.constant(np.ones((1, 64), np.float32))
    product = ops.matmul(source, matrix, False, False, name="product")
    total = ops.add(product, bias, name="sum")
    model = ov.Model([ops.result(total, name="y")], [source], "bias")
    with local.LocalMeasurer(model, HOST) as opened:
        (found,) = opened.profile(HOST[:1], seconds=0.1)
    (kernel,) = [names for names, _ in found.kernels if "sum" in names]
    assert set(kernel) == {"product", "sum"}


def test_nodes_without_names_count_for_their_reader():
    node = profile._Node
    model = small.convolutions(length=2)
    nodes = [
        node(("x",), 0.0, ()),
        node((), 1.0, (0,)),  # a Reorder before the first convolution
        node(("conv_0", "relu_0"), 10.0, (1,)),
        node(("conv_1",), 20.0, (2,)),
        node(("conv_1", "relu_1"), 5.0, (3,)),  # shares an operation with the one before
        node((), 2.0, (4,)),  # a Convert at the end
    ]
    kernels = dict(profile._kernels(model, nodes, frozenset()))
    assert kernels == {("x",): 0.0, ("conv_0", "relu_0"): 11.0, ("conv_1", "relu_1"): 27.0}
    without = dict(profile._kernels(model, nodes, frozenset({"conv_1"})))
    assert ("conv_1", "relu_1") not in without


def test_names_with_commas_are_found():
    assert profile._split("a,b,c,d,e", {"a", "b,c", "e"}) == ("a", "b,c", "e")


def test_warm_up_is_taken_out_of_the_counters():
    early = [profile._Node(("a",), 9.0, ())]  # mean of the first _WARM_UP
    late = [
        profile._Node(("a",), (9.0 * profile._WARM_UP + 10 * 3.0) / (10 + profile._WARM_UP), ())
    ]
    assert profile._without_warm_up(early, late, 10)[0].seconds == pytest.approx(3.0)


def test_what_a_device_does_not_support_runs_on_the_cpu_and_is_left_out(model, monkeypatch):
    core = devices.open_core(HOST)
    monkeypatch.setattr(profile, "unsupported", lambda *_: frozenset({"conv_1", "relu_1"}))
    array = np.ones((1, 32, 28, 28), np.float32)
    found = profile.profile_devices(core, model, [array], HOST[:1], 0.2, math.inf, lambda: None)
    (found,) = found.devices
    named = {name for names, _ in found.kernels for name in names}
    assert {"conv_0", "conv_2", "conv_3"} <= named
    assert not named & {"conv_1", "relu_1"}
    assert found.unsupported == {"conv_1", "relu_1"}
    assert found.latency_s == pytest.approx(sum(seconds for _, seconds in found.kernels))


def test_the_cpu_supports_a_convolution(model):
    core = devices.open_core(HOST)
    assert profile.unsupported(core, model, A) == frozenset()


def test_handing_over_is_measured_at_several_sizes(measurer):
    (found,) = measurer.transfers()
    assert found.pair == (0, 1)
    assert {2.0**12, 2.0**16, 2.0**20} < set(found.num_bytes)  # and those of the model's tensors
    assert len(found.seconds) == len(found.num_bytes) == len(set(found.num_bytes))
    assert np.isfinite(found.seconds).all()
    assert 1e-6 < found.latency_s + found.s_per_byte * 2**20 < 0.1


def test_tiny_tensors_set_no_bandwidth():
    with local.LocalMeasurer(small.tiny(), HOST) as opened:
        (found,) = opened.transfers()
    assert found.num_bytes.min() < 100
    assert 1e-6 < found.latency_s + found.s_per_byte * 2**20 < 0.03  # at 0.6 MB/s it took 2 s


def test_where_time_is_over_costs_are_told_still_and_what_was_left_out(model):
    with local.LocalMeasurer(model, HOST) as opened:
        profiles = opened.profile(seconds=5.0, limit_s=0.0)
        (transfer,) = opened.transfers(limit_s=0.0)
        left_out = opened.conditions()["profile"].left_out
    for found in profiles:
        assert 0 < found.latency_s < 10
        assert sum(seconds for _, seconds in found.kernels) > 0
    assert transfer.num_bytes.tolist() == [4096]
    assert transfer.latency_s < 10
    assert left_out[0] == "operations timed 1 times, not 5"
    assert "of the tensors handed over" in left_out[1]


def test_a_profile_takes_as_long_as_it_may():
    model = small.convolutions(channels=64, size=56, length=8)  # 500 inferences take long
    with local.LocalMeasurer(model, HOST) as opened:
        opened.profile(seconds=0.1)
        begin = time.monotonic()
        opened.profile(seconds=60.0, limit_s=1.5)
        assert time.monotonic() - begin < 5
        assert not opened.conditions()["profile"].left_out


def test_chains_have_the_models_shapes_and_some_of_known_sizes():
    images = profile.transfer_shapes(small.convolutions())
    assert {len(shape) for shape in images} == {4}
    assert (1, 16, 14, 14) in images
    shapes = profile.transfer_shapes(small.diamond())
    assert all(len(shape) == 2 and shape[1] == 16 for shape in shapes)
    for found in (images, shapes):
        assert [4 * math.prod(shape) for shape in found[:3]] == [2**12, 2**20, 2**16]
