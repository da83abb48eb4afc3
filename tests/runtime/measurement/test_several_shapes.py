"""Weighted sums over input shapes, on answers given by hand and on the real CPU plug-in."""

import math

import numpy as np
import pytest

from placement.costs import tables, transfers
from placement.costs.tables import DeviceProfile
from placement.costs.transfers import TransferFit
from placement.runtime import devices
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    HeteroChoice,
    Interval,
    Measure,
    Measurement,
    OutputErrors,
    Profile,
    Reasons,
    SubmodelTimes,
    Transfers,
)
from placement.runtime.measurement.several_shapes import ShapesMeasurer
from placement.runtime.models import frontend
from placement.runtime.models.outputs import OutputCheck
from placement.runtime.models.support import UnsupportedOp
from placement.runtime.models.variants import WeightedShapes
from tests.runtime.deployment.test_shapes import dynamic
from tests.runtime.small import everywhere

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
SHAPES = WeightedShapes("x:2,8", 9), WeightedShapes("x:16,8", 1)


class Scripted:
    """A measurer that gives one answer and keeps the request."""

    devices, computed_ops = HOST, frozenset()

    def __init__(self, answer, fingerprint="f"):
        self.answer, self.fingerprint, self.request = answer, fingerprint, None

    def ask(self, request):
        self.request = request
        return self.answer


def ask(request, *answers):
    measurers = [Scripted(answer) for answer in answers]
    return ShapesMeasurer(measurers, SHAPES).ask(request), [m.request for m in measurers]


def timed(seconds, *baselines_s, error=0.0):
    ratios = tuple(Interval(seconds / b, 0.9 * seconds / b, seconds / b, 20) for b in baselines_s)
    latency = Interval(seconds, 0.9 * seconds, 1.1 * seconds, 20)
    return Measurement(latency, ratios[0], 1, 0.0, 1, True, (), 1.0, error, 0.0, 1.0, 0.1, ratios)


def test_latencies_and_ratios_are_those_of_the_weighted_sum():
    small = [timed(1.0, 1.0, 2.0), timed(2.0, 1.0, 2.0), timed(0.5, 1.0, 2.0, error=0.3)]
    large = [timed(10.0, 10.0, 5.0), timed(5.0, 10.0, 5.0), timed(6.0, 10.0, 5.0, error=0.1)]
    request = Measure([Candidate(None, HOST)] * 3, 6, 8.0, compile_s=20.0, num_baselines=2)
    outcomes, requests = ask(request, small, large)
    first, second, third = outcomes
    assert first.latency.median == pytest.approx(9 * 1.0 + 10.0)
    assert second.latency.median == pytest.approx(9 * 2.0 + 5.0)
    assert third.latency[:3] == pytest.approx((10.5, 9.45, 11.55))
    assert [r.median for r in third.ratios] == pytest.approx([10.5 / 19, 10.5 / 23])
    assert third.ratio == third.ratios[0]
    assert third.ratio.low == pytest.approx(0.9 * 10.5 / 19)
    assert third.output_error == 0.3
    assert [interval.median for interval in third.shape_latencies] == [0.5, 6.0]
    # Each shape gets half of the time.
    assert [(r.time_limit_s, r.compile_s, r.min_rounds) for r in requests] == [(4.0, 10.0, 6)] * 2


def test_a_candidate_that_fails_with_one_shape_fails():
    small = [timed(1.0, 1.0), timed(2.0, 1.0)]
    large = [timed(1.0, 1.0), Failure("compile", "no memory")]
    outcomes, _ = ask(Measure([Candidate(None, HOST)] * 2, 6, 1.0), small, large)
    assert outcomes[1] == Failure("compile", "with x:16,8: no memory")


def test_ratios_to_a_baseline_that_failed_with_a_shape_are_unknown():
    small = [timed(1.0, 1.0), timed(2.0, 1.0)]
    large = [Failure("compile", "no memory"), timed(2.0, math.nan)]
    outcomes, _ = ask(Measure([Candidate(None, HOST)] * 2, 6, 1.0), small, large)
    assert outcomes[1].latency.median == pytest.approx(20.0)
    assert math.isnan(outcomes[1].ratio.median)


def test_profiles_sum_to_the_weighted_latency():
    """Each shape's kernels are scaled to its latency; kernels that fuse differently both count."""
    small = (DeviceProfile("A", 2.0, ((("a",), 1.0), (("b", "c"), 3.0)), frozenset("z"), 30),)
    large = (DeviceProfile("A", 8.0, ((("a",), 2.0), (("b",), 2.0)), frozenset("y"), 12),)
    ((profile,), requests) = ask(Profile(HOST[:1], 6.0, 60.0), small, large)
    assert profile.latency_s == 9 * 2.0 + 8.0
    kernels = dict(profile.kernels)
    assert kernels == pytest.approx({("a",): 9 * 0.5 + 4.0, ("b", "c"): 9 * 1.5, ("b",): 4.0})
    assert sum(kernels.values()) == pytest.approx(profile.latency_s)
    assert profile.unsupported == {"y", "z"}
    assert profile.overhead_bytes == 42  # each shape has a compiled model
    unknown = (large[0]._replace(overhead_bytes=None),)
    assert ask(Profile(HOST[:1]), small, unknown)[0][0].overhead_bytes is None
    assert [(r.seconds, r.limit_s) for r in requests] == [(3.0, 30.0)] * 2


def test_transfers_cost_the_weighted_sum():
    small = (TransferFit((0, 1), 1e-6, 2e-9, np.array([999.0]), np.array([1e-6])),)
    large = (TransferFit((0, 1), 2e-6, 1e-9, np.array([8999.0]), np.array([1e-5])),)
    fits, _ = ask(Transfers(HOST), small, large)
    matrices = transfers.make_matrices(fits, 2, num_inferences=10)
    assert matrices.latency_s[0, 1] == pytest.approx(9 * 1e-6 + 2e-6)
    # 9 x 1 kB and 1 x 9 kB weigh the same.
    assert matrices.s_per_byte[0, 1] == pytest.approx(1.5e-9)
    assert fits[0].num_bytes.tolist() == [999.0, 8999.0]


def test_the_worst_shape_decides_about_outputs():
    good, bad = OutputCheck(0.1, 0.0, 0.2), OutputCheck(math.nan, 0.5, 0.2)
    checks, _ = ask(OutputErrors(HOST), [good, bad], [bad, good])
    assert [math.isnan(check.error) for check in checks] == [True, True]


def test_reasons_are_merged_by_operation():
    ops = [UnsupportedOp("A", name, "Add", f"f32[{i}]", "why") for i, name in enumerate("abb")]
    reasons, _ = ask(Reasons(HOST[0], frozenset("ab")), ops[:2], ops[2:])
    assert {op.name: op.inputs for op in reasons} == {"a": "f32[0]", "b": "f32[1]"}


def test_submodel_times_are_summed_where_all_shapes_have_the_same_submodels():
    request = SubmodelTimes(Candidate(None, HOST), 5, 10.0)
    small, large = [(("a",), 1.0), (("b",), 2.0)], [(("a",), 10.0), (("b",), 20.0)]
    assert ask(request, small, large)[0] == [(("a",), 19.0), (("b",), 38.0)]
    assert ask(request, small, large[:1])[0] == []


def test_hetero_chooses_for_the_first_shape():
    assert ask(HeteroChoice(HOST), {"a": A}, {"a": B})[0] == {"a": A}


def test_weights_are_part_of_the_fingerprint():
    def fingerprint(weight):
        measurers = [Scripted(None, "f"), Scripted(None, "g")]
        shapes = [SHAPES[0], WeightedShapes("x:16,8", weight)]
        return ShapesMeasurer(measurers, shapes).fingerprint

    assert len({fingerprint(1), fingerprint(2), fingerprint(1)}) == 2


@pytest.fixture(scope="module")
def measurer():
    named = frontend.name_operations(dynamic())
    models = [frontend.prepare(named, shapes.input_shapes) for shapes in SHAPES]
    with ShapesMeasurer([LocalMeasurer(model, HOST) for model in models], SHAPES) as opened:
        opened.model = models[0]
        yield opened


def test_real_placements_run_with_every_shape(measurer):
    single = Candidate(everywhere(measurer.model, A), HOST)
    mixed = Candidate(everywhere(measurer.model, A, right=B), HOST)
    unknown = Candidate(everywhere(measurer.model, A, nonsense=B), HOST)
    (outcomes,) = measurer.measure_chunks(Measure([single, mixed, unknown], 6, 0.0))
    for index in (0, 1):
        small, large = outcomes[index].shape_latencies
        assert outcomes[index].latency.median == pytest.approx(9 * small.median + large.median)
    assert outcomes[0].ratio.median == pytest.approx(1.0)
    assert outcomes[1].submodels > 1
    assert outcomes[2].cause.startswith("with x:2,8: the placement names 'nonsense'")
    assert measurer.conditions()["measure"].seconds > 0


def test_real_profiles_become_a_cost_model_of_the_sum(measurer):
    profiles = measurer.ask(Profile(HOST, 0.2))
    for profile in profiles:
        total_s = sum(seconds for _, seconds in profile.kernels)
        assert total_s == pytest.approx(profile.latency_s)
    assert {"left", "right"} <= {name for names, _ in profiles[0].kernels for name in names}
    assert isinstance(profiles[0], tables.DeviceProfile)
