import dataclasses
import types
from unittest import mock

import numpy as np
import pytest

from placement.runtime import devices
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement import local
from placement.runtime.measurement.request import (
    Candidate,
    Measure,
    Profile,
    SubmodelTimes,
)
from placement.runtime.measurement.worker import inference, profile
from placement.runtime.models import operations
from tests.runtime import small

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)


@pytest.fixture(scope="module")
def model():
    return small.convolutions(channels=32, size=28)


@pytest.fixture(scope="module")
def measurer(model):
    with local.LocalMeasurer(model, HOST) as opened:
        yield opened


@pytest.mark.alone
def test_kernels_have_fused_operations(measurer):
    profiles = measurer.ask(Profile(measurer.devices))
    assert len(profiles) == len(HOST)
    for found in profiles:
        kernel_of = {name: names for names, _ in found.kernels for name in names}
        assert len(kernel_of) == sum(len(names) for names, _ in found.kernels)  # each in one
        for i in range(4):
            assert kernel_of[f"conv_{i}"] == kernel_of[f"relu_{i}"]
        assert not found.unsupported
        # Loose, since the counters are means and the latency a median: a busy machine parts them.
        assert 0.1 < sum(seconds for _, seconds in found.kernels) / found.latency_s < 10


def profile_devices(model, devices, core):
    inputs = [np.ones((1, 32, 28, 28), np.float32)]

    def request(affinity, devices):
        return inference.create_request(compile_placement(core, model, affinity, devices), inputs)

    loaded = types.SimpleNamespace(core=core, model=model, inputs=inputs, request=request)
    loaded.infer_s, loaded.warm_s = inference.infer_s, inference.infer_s
    loaded.heartbeat = mock.Mock()
    return profile.profile_devices(loaded, devices)


def test_parts_profile_small_devices(model):
    core = small.open_core(HOST)
    whole = HOST[1]
    num_bytes = sum(
        op.get_byte_size() for op in model.get_ops() if op.get_type_name() == "Constant"
    )
    limited = dataclasses.replace(whole, capacity_bytes=num_bytes * 3 // 4)
    # Four convolutions with equal weights: two of them exceed the 3/16 of a part.
    assert len(profile.divide(core, model, limited)) >= 4
    computed = set(operations.computed_names(model))
    (found,) = profile_devices(model, [limited], core)
    (expected,) = profile_devices(model, [whole], core)
    listed = [name for members, _ in found.kernels for name in members]
    assert len(listed) == len(set(listed))
    assert set(listed) >= {name for members, _ in expected.kernels for name in members} & computed
    assert not found.unsupported
    assert found.latency_s == pytest.approx(sum(seconds for _, seconds in found.kernels))


def test_unsupported_operations_are_left_out(model, monkeypatch):
    core = small.open_core(HOST)
    monkeypatch.setattr(profile, "unsupported", lambda *_: frozenset({"conv_1", "relu_1"}))
    (found,) = profile_devices(model, HOST[:1], core)
    named = {name for names, _ in found.kernels for name in names}
    assert {"conv_0", "conv_2", "conv_3"} <= named
    assert not named & {"conv_1", "relu_1"}
    assert found.unsupported == {"conv_1", "relu_1"}
    assert found.latency_s == pytest.approx(sum(seconds for _, seconds in found.kernels))


@pytest.mark.alone
def test_times_of_submodels_sum_up():
    model = small.convolutions(channels=32, size=28, length=6)
    with local.LocalMeasurer(model, HOST) as measurer:
        split = Candidate(small.everywhere(model, A, conv_2=B, relu_2=B), HOST)
        (measured,) = measurer.ask(Measure([split], min_rounds=20, time_limit_s=0.0))
        found = measurer.ask(SubmodelTimes(split))
        alone = measurer.ask(SubmodelTimes(Candidate(None, HOST[:1])))
    convolutions = {f"conv_{i}" for i in range(6)}
    assert [convolutions.intersection(names) for names, _ in found] == [
        *({"conv_0", "conv_1"}, {"conv_2"}, {"conv_3", "conv_4", "conv_5"}),
    ]
    seconds = np.array([taken_s for _, taken_s in found])
    assert (seconds > 0).all()
    assert 0.4 * measured.latency.median < seconds.sum() < 1.3 * measured.latency.median
    assert len(alone) == 1
    assert convolutions <= set(alone[0][0])


def test_counters_leave_out_warm_up():
    mean_s = (2 * 9.0 + 10 * 3.0) / 12
    assert inference.mean_after_warm_up(mean_s, 9.0, 10) == pytest.approx(3.0)
    assert inference.mean_after_warm_up(1.0, 9.0, 10) == 0.0  # counters are rounded


def test_unnamed_nodes_join_their_reader():
    node = profile.Node
    model = small.convolutions(length=2)
    nodes = [
        node(("x",), 0.0, ()),
        node((), 1.0, (0,)),  # a Reorder before the first convolution
        node(("conv_0", "relu_0"), 10.0, (1,)),
        node(("conv_1",), 20.0, (2,)),
        node(("conv_1", "relu_1"), 5.0, (3,)),  # shares an operation with the one before
        node((), 2.0, (4,)),  # a Convert at the end
    ]
    whole = dict(profile.attribute_nodes(model, nodes, frozenset()))
    assert whole == {("x",): 0.0, ("conv_0", "relu_0"): 11.0, ("conv_1", "relu_1"): 27.0}
    without = dict(profile.attribute_nodes(model, nodes, frozenset({"conv_1"})))
    assert ("conv_1", "relu_1") not in without


def test_names_with_commas_are_found():
    assert profile.split_names("a,b,c,d,e", {"a", "b,c", "e"}) == ("a", "b,c", "e")
