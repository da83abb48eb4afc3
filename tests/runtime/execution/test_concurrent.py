"""Placements whose devices work at the same time, as they are measured."""

import dataclasses
import math
import os

import numpy as np
import pytest

from placement.runtime import devices
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import evaluate, local, transfer_costs
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    Measure,
    Measurement,
    Timeline,
)
from placement.runtime.models import extract, outputs
from tests.runtime import small

HOST = devices.resolve("host:f32,f32")
A, B = (device.name for device in HOST)
LENGTH = 4
TWO_CORES = len(os.sched_getaffinity(0)) > 1
two_cores = pytest.mark.skipif(not TWO_CORES, reason="needs two cores")
ROUNDS = {"min_rounds": 6, "time_limit_s": 0.0}
CUT = small.in_two(LENGTH, A, B)


@pytest.fixture(scope="module")
def model():
    return small.branches(size=256, length=LENGTH)


@pytest.fixture(scope="module")
def measurer(model):
    with local.LocalMeasurer(model, HOST) as opened:
        yield opened


def at_once(model, cut=CUT, host=HOST) -> Candidate:
    where = {name: segment.device for segment in cut for name in segment.ops}
    return Candidate(small.everywhere(model, A, **where), host, tuple(cut))


def alone(model) -> Candidate:
    return Candidate(small.everywhere(model, A), HOST)


@pytest.mark.alone
@two_cores
def test_branches_are_measured_together(measurer, model):
    outcomes = measurer.ask(Measure([alone(model), at_once(model)], **ROUNDS))
    assert all(isinstance(outcome, Measurement) for outcome in outcomes), outcomes
    _, both = outcomes
    assert both.submodels == 3
    assert both.output_error <= both.tolerance == outputs.TOLERANCES["f32"]
    assert 0 < both.latency.low <= both.latency.median <= both.latency.high
    assert both.ratio.n == both.latency.n == 6
    assert both.compile_s > 0


def test_one_device_may_be_cut(measurer, model):
    cut = tuple(Segment(B, ops) for _, ops in CUT)
    (outcome,) = measurer.ask(Measure([at_once(model, cut)], **ROUNDS))
    assert isinstance(outcome, Measurement), outcome
    assert outcome.submodels == 3


def test_concurrent_outputs_are_checked(measurer, model):
    """Compared with what the reference computes: of a device that claims f32 and has bf16."""
    if devices.resolve("host")[1].precision != "bf16":
        pytest.skip("needs a processor that computes in bf16")
    liar = dataclasses.replace(
        HOST[1], properties={**HOST[1].properties, "INFERENCE_PRECISION_HINT": "bf16"}
    )
    candidates = [alone(model), at_once(model, host=(HOST[0], liar))]
    outcomes = measurer.ask(Measure(candidates, **ROUNDS))
    assert isinstance(outcomes[0], Measurement), outcomes
    assert isinstance(outcomes[1], Failure), outcomes
    assert outcomes[1].stage == "wrong output"


def test_wrong_cuts_fail_alone(measurer, model):
    wrong = {
        CUT[:2]: "'sum'",
        CUT[::-1]: "reads from segment",
        (*CUT, Segment(A, ("nonsense",))): "'nonsense'",
        (*CUT, Segment(A, ("left_0", "right_0"))): "once, such as",
    }
    candidates = [at_once(model)._replace(segments=cut) for cut in wrong]
    first, *failures, last = measurer.ask(
        Measure([at_once(model), *candidates, alone(model)], **ROUNDS)
    )
    assert isinstance(first, Measurement), first
    assert isinstance(last, Measurement), last
    for failure, said in zip(failures, wrong.values(), strict=True):
        assert isinstance(failure, Failure), failure
        assert failure.stage == "compile"
        assert said in failure.cause
        assert "\n" not in failure.cause


@pytest.mark.alone
@two_cores
def test_threads_on_other_cores_fail(measurer, model):
    """The threads of the first candidate serve all: to the second they are on each other's core."""
    swapped = tuple(
        dataclasses.replace(device, core=other.core)
        for device, other in zip(HOST, HOST[::-1], strict=True)
    )
    outcomes = measurer.ask(Measure([at_once(model), at_once(model, host=swapped)], **ROUNDS))
    assert isinstance(outcomes[0], Measurement), outcomes
    assert isinstance(outcomes[1], Failure), outcomes
    assert outcomes[1].stage == "threads"
    assert f"the thread of {A} may run on cores {HOST[0].core}, not" in outcomes[1].cause


def test_missing_cores_are_named(measurer, model):
    nowhere = (dataclasses.replace(HOST[0], name="CPU_F32_9", core=4095), HOST[1])
    cut = small.in_two(LENGTH, "CPU_F32_9", B)
    outcomes = measurer.ask(Measure([at_once(model), at_once(model, cut, nowhere)], **ROUNDS))
    assert isinstance(outcomes[0], Measurement), outcomes
    assert isinstance(outcomes[1], Failure), outcomes
    assert outcomes[1].stage == "compile"
    assert "core 4095" in outcomes[1].cause


@pytest.mark.alone
@two_cores
def test_too_many_threads_fail():
    """A device of a core computes on its thread alone, whatever it is told; one without may not."""
    model = small.branches(size=512, length=1)
    more = {**HOST[0].properties, "INFERENCE_NUM_THREADS": 2}
    free_threads = {**more, "NUM_STREAMS": 1}  # else the calling thread computes alone
    bound, free = (
        (dataclasses.replace(HOST[0], **how), HOST[1])
        for how in ({"properties": more}, {"properties": free_threads, "core": None})
    )
    cut = [Segment(A, segment.ops) for segment in small.in_two(1, A, B)]
    candidates = [at_once(model, cut, host) for host in (bound, free)]
    with local.LocalMeasurer(model, HOST) as opened:
        outcomes = opened.ask(Measure(candidates, **ROUNDS))
    assert isinstance(outcomes[0], Measurement), outcomes
    assert isinstance(outcomes[1], Failure), outcomes
    assert outcomes[1].stage == "threads"
    assert "other threads compute at once" in outcomes[1].cause


def test_variables_carry_over():
    model = small.counter()
    here = (Segment(B, ("read", "sum", "write")),)
    apart = (Segment(A, ("read",)), Segment(B, ("sum", "write")))
    where = small.everywhere(model, B)
    with local.LocalMeasurer(model, HOST) as opened:
        outcomes = opened.ask(
            Measure([Candidate(where, HOST, cut) for cut in (here, apart)], **ROUNDS)
        )
    assert isinstance(outcomes[0], Measurement), outcomes
    assert outcomes[0].output_error <= 1e-6  # of four inferences, of which each adds its input
    assert isinstance(outcomes[1], Failure)
    assert outcomes[1].stage == "compile"
    assert "variable 'state'" in outcomes[1].cause


def test_the_key_depends_on_the_segments(measurer, model):
    finer = (*(Segment(A, (op,)) for op in CUT[0].ops), *CUT[1:])
    candidates = [
        at_once(model)._replace(segments=None),
        at_once(model),
        at_once(model, (CUT[1], CUT[0], CUT[2])),  # another priority
        at_once(model, finer),
    ]
    assert len({evaluate.cache_key(measurer, candidate) for candidate in candidates}) == 4
    assert evaluate.cache_key(measurer, at_once(model)) == evaluate.cache_key(
        measurer, candidates[1]
    )


def test_evaluate_measures_segments(measurer, model):
    def candidate(placement: np.ndarray) -> Candidate:
        left, right = (HOST[device].name for device in placement)
        first, second, total = small.in_two(LENGTH, left, right)
        return at_once(model, (first, second, total))

    run = evaluate.MeasuredEvaluate(
        measurer, np.zeros(2, np.int32), candidate, evaluate.MeasurementCache(), min_rounds=6
    )
    seconds = run(np.array([[0, 0], [0, 1], [1, 0], [0, 1]]))
    assert np.isfinite(seconds).all()
    assert seconds[1] == seconds[3]
    assert run.num_measurements == 2


def test_timelines_time_parts(measurer):
    spans = measurer.ask(Timeline(measurer.devices, CUT, inferences=9))
    assert spans.shape == (9, 3, 2)
    assert spans.dtype == np.float64
    begin_s, end_s = spans[..., 0], spans[..., 1]
    np.testing.assert_array_equal(spans.min(axis=(1, 2)), np.zeros(9))
    assert (begin_s < end_s).all()
    assert (begin_s[:, 2] >= end_s[:, :2].max(axis=1)).all()  # the sum is the last of the cut
    assert (begin_s[:, :2].min(axis=1) == 0).all()
    assert end_s.max() < 10
    in_turn = measurer.ask(
        Timeline(measurer.devices, tuple([Segment(B, ops) for _, ops in CUT]), inferences=2)
    )
    assert (in_turn[:, 1:, 0] >= in_turn[:, :-1, 1]).all()  # of one device, in the cut's order
    others = measurer.ask(
        Timeline(measurer.devices, tuple([Segment(B, ("x",)), *CUT]), inferences=1)
    )
    assert others.shape == (1, 3, 2)  # an input is no part


def test_wrong_timelines_are_refused(measurer):
    with pytest.raises(ChildProcessError, match="'sum'") as caught:
        measurer.ask(Timeline(measurer.devices, CUT[:2], inferences=1))
    assert "\n" not in str(caught.value)
    assert measurer.ask(Timeline(measurer.devices, CUT, inferences=1)).shape == (1, 3, 2)


def test_transfers_are_measured_on_models(measurer, model, monkeypatch):
    monkeypatch.setattr(transfer_costs, "_INFERENCES", 4)
    graph = extract.op_graph(model, name="branches", constants=False).graph
    groups = [[name] for name in graph.op_names]
    able = np.ones((graph.num_ops, 2), bool)
    able[graph.op_names.index("sum"), 1] = False
    found, (transfer,) = transfer_costs.measure(measurer, graph, groups, able)
    computing = [name for name in graph.op_names if name not in ("x", "y")]
    assert found.groups == tuple((name,) for name in computing)
    assert found.alone_s.shape == (len(computing), 2)
    missing = np.isnan(found.alone_s)
    assert missing.sum() == 1
    assert missing[computing.index("sum"), 1]
    assert (found.alone_s[~missing] > 0).all()
    assert np.nanmax(found.alone_s) < 1
    for matrix in found.transfers:
        assert matrix.shape == (2, 2)
        assert (np.diag(matrix) == 0).all()
        assert (matrix >= 0).all()
        assert matrix[0, 1] == matrix[1, 0] < math.inf
    assert found.transfers.latency_s[0, 1] == transfer.latency_s
    assert {2.0**12, 2.0**16, 2.0**20} < set(transfer.num_bytes)
    assert 1e-6 < transfer.latency_s + transfer.s_per_byte * 2**20 < 0.1


def test_short_limits_leave_out_transfers(measurer, model):
    graph = extract.op_graph(model, name="branches", constants=False).graph
    groups = [[name] for name in graph.op_names]
    able = np.ones((graph.num_ops, 2), bool)
    found, (transfer,) = transfer_costs.measure(measurer, graph, groups, able, limit_s=0.0)
    left_out = measurer.conditions()["profile"].left_out
    assert measurer.ask(Timeline(measurer.devices, CUT, inferences=1)).shape == (1, 3, 2)
    assert found.groups == ()
    assert found.alone_s.shape == (0, 2)
    assert set(transfer.num_bytes) == {4096}
    assert "fewer than 20 inferences of the model in parts" in left_out
    assert "fewer than 20 inferences of some of the tensors handed over" in left_out
