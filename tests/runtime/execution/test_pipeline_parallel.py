"""OpenVINO's split by memory on devices of the CPU plug-in, as docs/MEMORY.md describes it."""

import numpy as np

from placement.runtime import devices
from tests.runtime import small

POLICY = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}


def test_openvino_splits_nothing_by_memory():
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
