"""A placement against single devices, on the real CPU plug-in."""

import dataclasses
import math

import openvino as ov
import pytest

from placement.errors import UserError
from placement.runtime.deployment import preflight
from placement.runtime.deployment.manifest import CONCURRENT, HETERO
from placement.runtime.deployment.preflight import REFERENCE
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import local
from placement.runtime.measurement.request import Failure, Interval, Measurement
from tests.runtime import small
from tests.runtime.deployment.folders import HOST, A, B

pytestmark = pytest.mark.alone

HAS_BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def make_placed(model: ov.Model, segments=(), **others: str) -> preflight.PlacementFile:
    affinity = small.everywhere(model, A, **others)
    return preflight.PlacementFile("by hand", affinity, segments, HOST, "model", {}, {})


def test_all_forms_are_measured():
    model = small.diamond()
    segments = Segment(A, ("top",)), Segment(B, ("left",)), Segment(A, ("right", "bottom"))
    with local.LocalMeasurer(model, HOST) as measurer:
        rows = preflight.measure(make_placed(model, segments, left=B), measurer, seconds=0.0)
        misfit = make_placed(model, segments[:2], left=B)
        with pytest.raises(UserError, match="compile: the segments do not have each") as caught:
            preflight.measure(misfit, measurer, seconds=0.0)
    assert "\n" not in str(caught.value)
    assert {row.method for row in rows[:2]} == {f"single:{A}", f"single:{B}"}
    assert [row.form for row in rows[2:4]] == [HETERO, CONCURRENT]
    assert {row.form for row in rows[4:]} == {REFERENCE}
    for row in rows:
        assert row.to_json()["status"] == "ok"
        assert row.outcome.output_error <= row.outcome.tolerance
        assert row.outcome.latency.n >= preflight.MIN_ROUNDS
        assert (row.candidate.affinity is None) == (row.form not in (HETERO, CONCURRENT))
    assert rows[0].outcome.ratio.median == 1
    assert all(row.outcome.ratio.low > 1 for row in rows[2:4])  # three submodels for one


@pytest.mark.skipif(not HAS_BF16, reason="needs a processor that computes in bf16")
@pytest.mark.parametrize("concurrent", [False, True])
def test_wrong_outputs_are_refused(concurrent):
    """One device computes in bf16 and says that it is f32."""
    model = small.convolutions(length=2)
    properties = {**HOST[1].properties, "INFERENCE_PRECISION_HINT": "bf16"}
    liar = dataclasses.replace(HOST[1], precision="f32", properties=properties)
    segments = Segment(A, ("conv_0", "relu_0")), Segment(B, ("conv_1", "relu_1"))
    placed = make_placed(model, segments if concurrent else (), conv_1=B, relu_1=B)
    with (
        local.LocalMeasurer(model, (HOST[0], liar)) as measurer,
        pytest.raises(UserError, match=r"outputs differ by 0\.0.* over 0\.001") as caught,
    ):
        preflight.measure(placed, measurer, seconds=0.0)
    assert ("placement, concurrent: wrong output" in str(caught.value)) == concurrent


def measurement(seconds: float, ratio: float = math.nan) -> Measurement:
    latency, ratios = Interval(*[seconds] * 3, 20), Interval(*[ratio] * 3, 20)
    values = dict.fromkeys(Measurement._fields, 0.0) | {"tolerance": 0.1, "ratios": ()}
    return Measurement(**values | {"latency": latency, "ratio": ratios})


class Judge:
    """Measures nothing: all single devices fail, and the placement has these outcomes."""

    devices = HOST

    def __init__(self, *outcomes: Measurement | Failure):
        self.outcomes = outcomes

    def ask(self, request):
        failure = Failure("infer", "it broke")
        outcomes = [failure] * request.num_baselines + [*self.outcomes]
        return outcomes + [failure] * (len(request.candidates) - len(outcomes))


def test_every_form_must_be_right():
    segments = Segment(A, ("top",)), Segment(B, ("left",)), Segment(A, ("right", "bottom"))
    placed = make_placed(small.diamond(), segments, left=B)
    right = measurement(1.0)
    right = right._replace(ratios=(right.ratio,) * len(HOST))
    rows = preflight.measure(placed, Judge(right, right), seconds=0.0)
    assert [row.form for row in rows if row.is_right] == [HETERO, CONCURRENT]
    assert rows[2].to_json()["versus_interval"] is None
    # OpenVINO alone runs the concurrent form by HETERO, which has to be right, too.
    with pytest.raises(UserError, match=r"cannot be deployed here: placement: infer: it broke"):
        preflight.measure(placed, Judge(Failure("infer", "it broke"), right), seconds=0.0)
    alone = make_placed(small.diamond())
    with pytest.raises(UserError, match=r"cannot be deployed here: single:.*: infer: it broke"):
        preflight.measure(alone, Judge(), seconds=0.0)
