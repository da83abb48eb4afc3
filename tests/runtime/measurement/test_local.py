import dataclasses
import math
import os
import signal
import threading
import time

import numpy as np
import openvino as ov
import pytest

from placement.runtime import devices
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import evaluate, local
from placement.runtime.measurement.request import (
    TIME_LIMIT,
    Candidate,
    Failure,
    Measure,
    Measurement,
)
from placement.runtime.models import outputs
from tests.runtime import small

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
ROUNDS = {"min_rounds": 6, "time_limit_s": 0.0}


@pytest.fixture(scope="module")
def model():
    return small.convolutions()


@pytest.fixture(scope="module")
def measurer(model):
    with local.LocalMeasurer(model, HOST) as opened:
        yield opened


def on(model: ov.Model, device: str, **others: str) -> Candidate:
    return Candidate(small.everywhere(model, device, **others), HOST)


def changed(device: devices.Device, **properties) -> devices.Device:
    return dataclasses.replace(device, properties={**device.properties, **properties})


def test_error_is_relative_to_spread():
    spread, integers = np.array([10.0, 12.0], np.float32), np.array([1, 2, 3, 4])
    assert outputs.compare([spread], [spread + 1]).error == pytest.approx(0.5)
    # A constant counts by its magnitude.
    assert outputs.compare([np.full(3, 4.0)], [np.full(3, 5.0)]).error == pytest.approx(0.25)
    assert outputs.compare([np.zeros(2)], [np.zeros(2)]).error == 0.0
    assert outputs.compare([spread, integers], [spread, integers[::-1]]).error == 1.0
    reference = np.array([np.nan, np.inf, 0.0, 1.0])
    assert outputs.compare([reference], [reference]) == (0.0, 0.25)
    for position, value in ((0, 1.0), (1, -np.inf), (1, 5.0), (2, np.nan), (2, np.inf)):
        wrong = reference.copy()
        wrong[position] = value
        assert outputs.compare([reference], [wrong]).error == math.inf


def test_placements_are_compared(measurer, model):
    mixed = on(model, A, conv_2=B, relu_2=B)
    outcomes = measurer.ask(
        Measure(
            [on(model, A), on(model, B), mixed, Candidate(None, HOST[:1]), Candidate(None, HOST)],
            **ROUNDS,
        )
    )
    assert all(isinstance(outcome, Measurement) for outcome in outcomes), outcomes
    assert outcomes[0].ratio == (1.0, 1.0, 1.0, 6)
    assert [outcome.submodels for outcome in outcomes] == [1, 1, 3, 1, 1]
    for outcome in outcomes:
        assert 0 < outcome.latency.low <= outcome.latency.median <= outcome.latency.high < 1
        assert outcome.ratio.n == outcome.latency.n == 6
        assert outcome.output_error <= outcome.tolerance
        assert outcome.compile_s > 0
    assert outcomes[0].tolerance == outputs.TOLERANCES["f32"]
    assert outcomes[1].tolerance == outcomes[2].tolerance == outputs.TOLERANCES[HOST[1].precision]


def test_chunks_have_every_baseline(model, monkeypatch):
    monkeypatch.setattr(local, "MAX_CHUNK_SIZE", 2)  # two baselines and one other at a time
    candidates = [on(model, A), on(model, B), on(model, A, conv_2=B), on(model, B, conv_2=A)]
    with local.LocalMeasurer(model, HOST) as opened:
        outcomes = opened.ask(Measure(candidates, **ROUNDS, num_baselines=2))
    for outcome in outcomes:
        assert isinstance(outcome, Measurement)
        assert outcome.ratio == outcome.ratios[0]
        assert [ratio.n for ratio in outcome.ratios] == [6, 6]
    assert outcomes[0].ratios[0] == outcomes[1].ratios[1] == (1.0, 1.0, 1.0, 6)


def test_one_process_serves_many_calls(model):
    with local.LocalMeasurer(model, HOST) as opened:
        assert opened.worker is None
        opened.ask(Measure([on(model, A)], **ROUNDS))
        pid = opened.worker.process.pid
        assert os.getpgid(pid) == pid  # the terminal interrupts the caller's group only
        opened.ask(Measure([on(model, A), on(model, B)], **ROUNDS))
        assert opened.worker.process.pid == pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_race_drops_slow_candidates(measurer, model):
    scattered = on(model, A, **{f"{kind}_{i}": B for kind in ("conv", "relu") for i in (0, 2)})
    request = Measure(
        [on(model, A), Candidate(None, HOST[:1]), scattered], 2, time_limit_s=0.0, race=True
    )
    baseline, same, slow = (outcome.latency.n for outcome in measurer.ask(request))
    assert baseline >= same >= slow == 2


def stop(opened: local.LocalMeasurer, candidate: int) -> threading.Thread:
    """Stops the worker while it is at `candidate`, and leaves it hung."""

    def wait_and_stop():
        while True:
            time.sleep(0.002)
            task = small.current_task(opened)
            if task is None or task[1] != candidate:
                continue
            os.kill(task[0], signal.SIGSTOP)
            time.sleep(0.05)  # until it has stopped, so that what it is at cannot change
            if small.current_task(opened) == task:
                return
            os.kill(task[0], signal.SIGCONT)

    thread = threading.Thread(target=wait_and_stop, daemon=True)
    thread.start()
    return thread


def test_hanging_worker_costs_one_candidate(model, monkeypatch):
    monkeypatch.setattr(local, "_TIMEOUT_S", 3.0)
    candidates = [on(model, A), on(model, B), on(model, A, conv_2=B, relu_2=B)]
    with local.LocalMeasurer(model, HOST) as opened:
        thread = stop(opened, 1)
        outcomes = opened.ask(Measure(candidates, **ROUNDS))
        thread.join(60)
        again = opened.ask(Measure(candidates[:2], **ROUNDS))
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False, True, False], outcomes
    assert outcomes[1].stage == "timeout"
    assert "within 3 s" in outcomes[1].cause
    assert not any(isinstance(outcome, Failure) for outcome in again), again


def evaluator(
    opened: local.LocalMeasurer, names: list[str], cache: evaluate.MeasurementCache, **how: float
):
    """An `Evaluate` of placements of the operations `names`, under HETERO."""

    def candidate(placement: np.ndarray) -> Candidate:
        devices = [HOST[device].name for device in placement]
        return Candidate(dict(zip(names, devices, strict=True)), HOST)

    start = np.zeros(len(names), np.int32)
    return evaluate.MeasuredEvaluate(opened, start, candidate, cache, **how)


def test_placements_are_measured_once(measurer, model, tmp_path):
    names = list(small.everywhere(model, A))
    file = tmp_path / "measurements.jsonl"
    run = evaluator(measurer, names, evaluate.MeasurementCache(file))
    placements = np.zeros((4, len(names)), np.int32)
    placements[1] = 1
    placements[2, 3:] = 1
    placements[3] = placements[1]
    seconds = run(placements)
    assert seconds.dtype == np.float32
    assert np.all(np.isfinite(seconds))
    assert np.all(seconds > 0)
    assert seconds[1] == seconds[3]
    assert run.num_measurements == 2
    np.testing.assert_array_equal(run(placements), seconds)
    assert run.num_measurements == 2

    with open(file, "a") as torn:
        torn.write('{"key": "half')
    later = evaluator(measurer, names, evaluate.MeasurementCache(file))
    np.testing.assert_array_equal(later(placements), seconds)
    assert later.num_measurements == 0
    other = np.zeros((1, len(names)), np.int32)
    other[0, -1] = 1
    assert np.isfinite(later(other)).all()
    assert later.num_measurements == 1
    assert len(evaluate.MeasurementCache(file)) == 4


def test_keys_tell_measurements_apart(measurer, model):
    names = tuple(small.everywhere(model, A))
    cut = Candidate(None, HOST, (Segment(A, names[:3]), Segment(B, names[3:])))
    finer = (Segment(A, names[:1]), Segment(A, names[1:3]), Segment(B, names[3:]))
    keys = {
        evaluate.cache_key(measurer, candidate)
        for candidate in (
            on(model, A),
            on(model, B),
            Candidate(None, HOST),
            Candidate(None, HOST[:1]),
            Candidate(None, (changed(HOST[0], INFERENCE_NUM_THREADS=2),)),
            cut,
            cut._replace(segments=finer),
            cut._replace(segments=cut.segments[::-1]),  # another priority
        )
    }
    assert len(keys) == 8
    reordered = Candidate(dict(reversed(small.everywhere(model, A).items())), HOST)
    assert evaluate.cache_key(measurer, reordered) == evaluate.cache_key(measurer, on(model, A))
    with local.LocalMeasurer(small.convolutions(length=3), HOST) as other:
        assert other.fingerprint != measurer.fingerprint
    with local.LocalMeasurer(small.convolutions(), HOST) as same:
        assert same.fingerprint == measurer.fingerprint


def test_compile_time_leaves_the_first(model, measurer, monkeypatch):
    names = tuple(small.everywhere(model, A))
    cut = (Segment(A, names[:3]), Segment(B, names[3:]))
    candidates = [on(model, A), on(model, B), Candidate(None, HOST, cut)]
    outcomes = measurer.ask(Measure(candidates, **ROUNDS, compile_s=0.0))
    assert isinstance(outcomes[0], Measurement)
    assert [outcome.stage for outcome in outcomes[1:]] == [TIME_LIMIT] * 2
    assert all("longer time limit" in outcome.cause for outcome in outcomes[1:])
    timed = measurer.ask(Measure(candidates, **ROUNDS))
    assert all(isinstance(outcome, Measurement) for outcome in timed), timed
    # Placements that were not measured for lack of time are measured when there is some.
    monkeypatch.setattr(evaluate, "_MIN_COMPILE_S", 0.0)
    placement, cache = np.ones((1, len(names)), np.int32), evaluate.MeasurementCache()
    hurried = evaluator(measurer, list(names), cache, compile_s=0.0)
    assert np.isinf(hurried(placement)).all()
    assert np.isfinite(evaluator(measurer, list(names), cache)(placement)).all()
    assert np.isfinite(hurried(placement)).all()
