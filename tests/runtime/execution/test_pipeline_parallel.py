"""OpenVINO's split by memory on devices of the CPU plug-in, as docs/MEMORY.md describes it."""

import numpy as np
import pytest

from placement.runtime import devices
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import HeteroChoice
from tests.runtime import small

POLICY = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}


def test_openvino_accepts_the_policy_and_splits_nothing_on_devices_of_the_cpu():
    model, host = small.residual(size=16), devices.resolve("host:f32,f32")
    names = [device.name for device in host]
    core = devices.open_core(host)
    properties = {device.name: dict(device.properties) for device in host}
    compiled = core.compile_model(
        model, f"HETERO:{','.join(names)}", {**POLICY, "DEVICE_PROPERTIES": properties}
    )
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 1
    assert list(compiled.get_property("EXECUTION_DEVICES")) == names[:1]
    x = np.ones((1, 16), np.float32)
    (output,) = compiled([x]).values()
    np.testing.assert_allclose(output, small.expected(model, [x])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("split_by_memory", [False, True])
def test_the_measurer_asks_for_the_choice_of_hetero(split_by_memory):
    host = devices.resolve("host:f32,f32")
    with LocalMeasurer(small.residual(size=16), host) as measurer:
        choice = measurer.ask(HeteroChoice(host, split_by_memory=split_by_memory))
    assert set(choice.values()) == {host[0].name}
    assert {f"product_{i}" for i in range(6)} <= choice.keys()
