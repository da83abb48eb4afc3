"""Placements whose devices work at the same time, as they are measured."""

import dataclasses
import os

import numpy as np
import pytest

from placement.runtime import devices
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import local
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    Measure,
    Measurement,
    Timeline,
)
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


def test_timelines_time_parts(measurer):
    spans = measurer.ask(Timeline(measurer.devices, CUT))
    assert spans.shape[1:] == (3, 2)
    assert spans.dtype == np.float64
    begin_s, end_s = spans[..., 0], spans[..., 1]
    assert not spans.min(axis=(1, 2)).any()
    assert (begin_s < end_s).all()
    assert (begin_s[:, 2] >= end_s[:, :2].max(axis=1)).all()  # the sum is the last of the cut
    assert (begin_s[:, :2].min(axis=1) == 0).all()
    assert end_s.max() < 10
    in_turn = measurer.ask(Timeline(measurer.devices, tuple([Segment(B, ops) for _, ops in CUT])))
    assert (in_turn[:, 1:, 0] >= in_turn[:, :-1, 1]).all()  # of one device, in the cut's order
    others = measurer.ask(Timeline(measurer.devices, tuple([Segment(B, ("x",)), *CUT])))
    assert others.shape[1:] == (3, 2)  # an input is not a part
