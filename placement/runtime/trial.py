"""A placement against every single device, measured where it is to run; and what to make of it.

Rounds are interleaved and ratios paired, as `placement.runtime.measure` explains. The placement is
deployed only if it is faster than the best single device, that is, if the 95% interval of the ratio
lies below 1. Its concurrent form is measured in this process, beside the best single device.
"""

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement.runtime import deploy, devices, frontend, hetero, preflight, worker
from placement.runtime.devices import Device
from placement.runtime.executor import Executor, Submodels, Workers
from placement.runtime.measure import Candidate, Failure, Interval, Measurement, Measurer, interval
from placement.runtime.preflight import Placed

REFERENCE = "reference"  # the form of a row about a device that the placement cannot use
MIN_ROUNDS = 10


class Row(NamedTuple):
    """What was measured of one way to run the model."""

    name: str  # 'single:CPU', 'placement', 'placement, concurrent' or a reference's label
    form: str  # 'single', 'hetero', 'concurrent' or 'reference'
    latency: Interval | None  # seconds; None where it failed
    ratio: Interval | None  # to the best single device, paired; None where there is none
    output_error: float | None
    tolerance: float | None
    status: str  # 'ok', or what went wrong


class Decision(NamedTuple):
    """What is to be deployed."""

    form: str
    alone: str | None  # the device of what OpenVINO runs alone; None where that is 'hetero'
    fallback: bool  # whether a single device takes the placement's place
    reason: str


def measure(
    placed: Placed,
    model: ov.Model,
    devices_: Sequence[Device],
    *,
    seconds: float,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measures every device alone, the forms of the placement, and devices for reference.

    Args:
      placed: the placement.
      model: as placed.
      devices_: that could be used, among them those that are.
      seconds: of timing, compilation not included; half as much again where the placement has a
        concurrent form.
      seed: of the inputs.
      say: told what is being done.

    Returns:
      Rows: devices alone, the best first, then the placement's forms, then references.

    Raises:
      ValueError: the placement fails or computes wrong outputs.
    """
    used = tuple(device for device in devices_ if device.name in placed.used)
    alone = {f"single:{device.name}": Candidate(None, (device,)) for device in devices_}
    mixed = {"placement": Candidate(placed.affinity, used)} if len(used) > 1 else {}
    others = {d.label: Candidate(None, (d,)) for d in devices.all_threads(devices_)}
    with Measurer(model, devices_, seed=seed) as measurer:
        say("looking for the best single device")
        found = _outcomes(measurer, alone, seconds / 4)
        for _ in alone:  # until none turns out to be faster than the one taken for the best
            alone = dict(sorted(alone.items(), key=lambda item: _ratio(found[item[0]])))
            say("measuring the placement beside the single devices")
            found = _outcomes(measurer, alone | mixed | others, seconds)
            if not any(_beats_the_first(found[name]) for name in list(alone)[1:]):
                break
    forms = dict.fromkeys(alone, deploy.SINGLE) | dict.fromkeys(mixed, deploy.HETERO)
    rows = [_row(name, form, found[name]) for name, form in forms.items()]
    if mixed and rows[-1].latency is None and not placed.stretches:
        raise _refusal(placed, rows[-1].status)
    if mixed and placed.stretches:
        say("measuring the placement with its devices at the same time")
        best = next(iter(alone.values())).devices[0] if rows[0].latency else None
        rows.append(_measure_concurrent(placed, model, used, best, seconds / 2, seed))
    return rows + [_row(name, REFERENCE, found[name]) for name in others]


def decide(placed: Placed, rows: Sequence[Row]) -> Decision:
    """What to deploy: the fastest form of the placement if it is faster than every single device.

    A placement that gives one device everything is kept unless another device is faster.

    Raises:
      ValueError: nothing that OpenVINO could run alone works.
    """
    forms = [row for row in rows if row.form in (deploy.HETERO, deploy.CONCURRENT) and row.latency]
    if rows[0].latency is None:
        serial = [row for row in forms if row.form == deploy.HETERO]
        if not serial:
            raise _refusal(placed, rows[0].status)
        return Decision(deploy.HETERO, None, False, "no single device runs the model")
    best = rows[0].name.partition(":")[2]
    if len(placed.used) == 1:
        return _decide_single(placed, rows, best)
    faster = [(row.ratio.median, row) for row in forms if row.ratio and row.ratio.high < 1]
    if not faster:
        told = "; ".join(f"{row.name}: {said(row.ratio)}" for row in forms)
        reason = f"the placement is not faster than {best} alone ({told})"
        return Decision(deploy.SINGLE, best, True, f"{reason}, which is deployed instead")
    _, chosen = min(faster, key=lambda pair: pair[0])
    serial = [row for _, row in faster if row.form == deploy.HETERO]
    reason = f"{chosen.name}: {said(chosen.ratio)} of the time of {best}, the best single device"
    return Decision(chosen.form, None if serial else best, False, reason)


def said(ratio: Interval | None) -> str:
    """A ratio with its interval."""
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "-"


def _decide_single(placed: Placed, rows: Sequence[Row], best: str) -> Decision:
    """Of a placement that is all on one device, which OpenVINO then runs without HETERO."""
    (own,) = placed.used
    row = next(row for row in rows if row.name == f"single:{own}")
    reason = f"the placement gives {own} everything"
    if row.ratio is not None and row.ratio.low <= 1:
        reason += ", and no single device is faster"
        return Decision(deploy.SINGLE, own, False, reason)
    told = f"takes {said(row.ratio)} of its time" if row.ratio else f"failed: {row.status}"
    reason += f", but {own} {told}: {best} is deployed instead"
    return Decision(deploy.SINGLE, best, True, reason)


def _refusal(placed: Placed, cause: str) -> ValueError:
    return ValueError(
        f"the placement (of {placed.method}) cannot be deployed here: {cause}; "
        "place the model on this machine: --task=place"
    )


def _outcomes(
    measurer: Measurer, candidates: Mapping[str, Candidate], seconds: float
) -> dict[str, Measurement | Failure]:
    listed = list(candidates.values())
    found = measurer.measure(listed, min_rounds=MIN_ROUNDS, time_limit_s=seconds)
    return dict(zip(candidates, found, strict=True))


def _ratio(outcome: Measurement | Failure) -> float:
    """To the first candidate, paired; the latency where that failed, inf without a number."""
    if isinstance(outcome, Failure):
        return math.inf
    ratio = outcome.ratio.median
    return outcome.latency.median if math.isnan(ratio) else ratio


def _beats_the_first(outcome: Measurement | Failure) -> bool:
    """Also where the first failed, and no ratio to it is a number."""
    return isinstance(outcome, Measurement) and not outcome.ratio.high >= 1


def _row(name: str, form: str, outcome: Measurement | Failure) -> Row:
    if isinstance(outcome, Failure):
        return Row(name, form, None, None, None, None, f"{outcome.stage}: {outcome.cause}")
    ratio = None if math.isnan(outcome.ratio.median) else outcome.ratio
    return Row(name, form, outcome.latency, ratio, outcome.output_error, outcome.tolerance, "ok")


def _measure_concurrent(
    placed: Placed,
    model: ov.Model,
    used: Sequence[Device],
    best: Device | None,
    seconds: float,
    seed: int,
) -> Row:
    """The concurrent form beside the best single device.

    Raises:
      ValueError: it fails or computes wrong outputs.
    """
    inputs = frontend.example_inputs(model, seed)
    core = devices.open_core([*used, *([best] if best else [])])
    allowed, workers = worker.tolerance(used), Workers(used)
    try:
        executor = Executor(Submodels(core, model), placed.stretches, used, workers)
        runners: list[Any] = [executor]
        if best is not None:
            compiled = hetero.compile_placement(core, model, None, [best])
            runners.append(compiled.create_infer_request())
        for runner in runners:
            for index, array in enumerate(inputs):
                runner.set_input_tensor(index, ov.Tensor(array))
        executor.infer()
        outputs = [np.array(tensor.data) for tensor in executor.output_tensors]
        error = worker.compare(preflight.reference_outputs(model, inputs), outputs).error
        if not error <= allowed:
            raise RuntimeError(f"outputs differ by {error:.3g} of their spread, over {allowed:g}")
        times = _rounds(runners, seconds)
    except (RuntimeError, ValueError) as cause:
        said_ = f"with its devices at the same time: {worker.essence(cause)}"
        raise _refusal(placed, said_) from cause
    finally:
        workers.close()
    ratio = interval(times[0] / times[1]) if best is not None else None
    name = "placement, concurrent"
    return Row(name, deploy.CONCURRENT, interval(times[0]), ratio, error, allowed, "ok")


def _rounds(runners: Sequence[Any], seconds: float) -> list[np.ndarray]:
    """Seconds of every inference, one of each runner a round; each goes first in turn."""
    times: list[list[float]] = [[] for _ in runners]
    numbers = list(range(len(runners)))
    gc.collect()
    gc.disable()
    try:
        start, count = time.perf_counter(), -1  # round -1 warms up
        while count < MIN_ROUNDS or time.perf_counter() - start < seconds:
            for i in numbers if count % 2 else numbers[::-1]:
                runners[i].reset_state()
                begin = time.perf_counter()
                runners[i].infer()
                if count >= 0:
                    times[i].append(time.perf_counter() - begin)
            count += 1
    finally:
        gc.enable()
    return [np.array(found) for found in times]
