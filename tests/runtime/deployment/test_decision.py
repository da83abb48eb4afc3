"""A placement against single devices, on the real CPU plug-in."""

import dataclasses

import openvino as ov
import pytest

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact, decision, preflight
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import local
from tests.runtime import small

pytestmark = pytest.mark.alone

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
HAS_BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def placed(model: ov.Model, segments=(), **others: str) -> preflight.PlacementFile:
    affinity = small.everywhere(model, A, **others)
    return preflight.PlacementFile("by hand", affinity, segments, (A, B), "", "model", None)


@pytest.fixture(scope="module")
def model() -> ov.Model:
    return small.diamond()


@pytest.fixture(scope="module")
def measurer(model):
    with local.LocalMeasurer(model, HOST) as opened:
        yield opened


def test_a_placement_that_cuts_a_small_model_falls_back(measurer, model):
    segments = Segment(A, ("top",)), Segment(B, ("left",)), Segment(A, ("right", "bottom"))
    cut = placed(model, segments, left=B)
    rows = decision.measure(cut, measurer, seconds=0.0)
    assert {row.name for row in rows[:2]} == {f"single:{A}", f"single:{B}"}
    assert [row.form for row in rows[2:4]] == [artifact.HETERO, artifact.CONCURRENT]
    assert {row.form for row in rows[4:]} == {decision.REFERENCE}
    for row in rows:
        assert row.status == "ok"
        assert row.output_error <= row.tolerance
        assert row.latency.n >= decision.MIN_ROUNDS
    assert rows[0].ratio.median == 1
    assert all(row.ratio.low > 1 for row in rows[2:4])  # three submodels for one
    found = decision.decide(cut, decision.deployable_rows(cut, rows), rows[0].name, "why")
    assert found.is_fallback
    assert f"single:{found.single_device}" == rows[0].name


@pytest.mark.skipif(not HAS_BF16, reason="needs a processor that computes in bf16")
@pytest.mark.parametrize("concurrent", [False, True])
def test_wrong_outputs_are_refused(concurrent):
    """One device computes in bf16 and says that it is f32."""
    model = small.convolutions(length=2)
    properties = {**HOST[1].properties, "INFERENCE_PRECISION_HINT": "bf16"}
    liar = dataclasses.replace(HOST[1], precision="f32", properties=properties)
    segments = (
        (Segment(A, ("conv_0", "relu_0")), Segment(B, ("conv_1", "relu_1"))) if concurrent else ()
    )
    candidate = placed(model, segments, conv_1=B, relu_1=B)
    with (
        local.LocalMeasurer(model, (HOST[0], liar)) as opened,
        pytest.raises(UserError, match=r"outputs differ by 0\.0.* over 0\.001") as caught,
    ):
        decision.measure(candidate, opened, seconds=0.0)
    assert ("placement, concurrent: wrong output" in str(caught.value)) == concurrent


def test_segments_that_do_not_fit_are_refused(measurer, model):
    candidate = placed(model, (Segment(A, ("top",)), Segment(B, ("left",))), left=B)
    with pytest.raises(UserError, match="compile: the segments do not have each") as caught:
        decision.measure(candidate, measurer, seconds=0.0)
    assert "\n" not in str(caught.value)
