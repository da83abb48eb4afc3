"""Answers requests about one model, as long as the process lasts."""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement.runtime.devices import register
from placement.runtime.execution.executor import Executor, Span, infer_side_by_side
from placement.runtime.measurement import conditions
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.request import (
    MIN_SAMPLES,
    OutputErrors,
    OwnChoice,
    Profile,
    Request,
    SideBySide,
    Slowdown,
    SubmodelTimes,
    Timeline,
    Transfers,
    TransferShapes,
    interval,
)
from placement.runtime.measurement.worker import chains, profile, submodel_times
from placement.runtime.measurement.worker.heartbeat import Heartbeat
from placement.runtime.measurement.worker.loaded import LoadedModel, OverError
from placement.runtime.measurement.worker.trials import Rounds, Trials
from placement.runtime.models.outputs import Checked

_WARM_UP = 2
_AT_A_TIME = 4  # inferences of a device alone, and beside others, in turn


class _Found(NamedTuple):
    """What a request's `read` makes its answer of."""

    raw: Any
    conditions: Conditions = Conditions()  # how well it is known, and what was left out


class Session:
    """What lasts from request to request."""

    def __init__(self, connection: Connection, directory: Path):
        """Loads the model that is in `directory`, with its inputs.

        Raises:
          UnusableError: the reference device cannot run it.
          RuntimeError: OpenVINO's own.
        """
        self._connection = connection
        self._heartbeat = Heartbeat(directory)
        self._heartbeat.set(-1, "open")
        self._loaded = LoadedModel(directory, self._heartbeat)
        self._trials = Trials(self._loaded, self._heartbeat, connection.send)
        self._asked_s = 0.0  # on the monotonic clock; what `limit_s` counts from
        self._answers: dict[type, Callable[[Any], _Found]] = {
            Rounds: lambda rounds: _Found(self._trials.run(rounds)),
            Profile: self._profile,
            OutputErrors: self._output_errors,
            Transfers: self._transfers,
            TransferShapes: self._transfer_shapes,
            Timeline: self._timeline,
            SideBySide: self._side_by_side,
            SubmodelTimes: self._submodel_times,
            OwnChoice: self._own_choice,
        }

    def answer(self, request: Request[Any] | Rounds, asked_s: float) -> None:
        """Sends what answers a request: ('done', what it reads, conditions).

        Args:
          request: of one of the types above.
          asked_s: when, on the monotonic clock.

        Raises:
          RuntimeError: OpenVINO's own.
          UserError: a placement does not fit the model.
          MemoryError: there is too little to go on.
        """
        self._asked_s = asked_s
        self._connection.send(("done", *self._answers[type(request)](request)))

    def _profile(self, request: Profile) -> _Found:
        """Finds a `profile.RawProfile` of each device."""
        loaded = self._loaded
        register(loaded.core, request.devices)
        profiled = profile.profile_devices(
            loaded.core,
            loaded.model,
            loaded.inputs,
            request.devices,
            request.seconds,
            self._asked_s + request.limit_s,
            self._heartbeat.alive,
        )
        known = [interval(s) for s in profiled.latencies_s if len(s) >= MIN_SAMPLES]
        unsteady = conditions.width([(each.low, each.high) for each in known])
        few = f"operations timed {max(1, profiled.rounds)} times, not {profile.ROUNDS[0]}"
        left_out = (few,) if profiled.rounds < profile.ROUNDS[0] else ()
        return _Found(profiled.devices, Conditions(unsteady=unsteady, left_out=left_out))

    def _output_errors(self, request: OutputErrors) -> _Found:
        loaded, errors = self._loaded, list[Checked]()
        register(loaded.core, request.devices)
        for device in request.devices:
            self._heartbeat.alive()
            used, affinity = profile.alone(loaded.core, loaded.model, device)
            compiled = loaded.compiled(affinity, used)
            errors.append(loaded.compare(loaded.request(compiled), [device])[1])
        return _Found(errors)

    def _transfers(self, request: Transfers) -> _Found:
        """Finds a `chains.RawTransfers`."""
        loaded = self._loaded
        register(loaded.core, request.devices)
        until_s = self._asked_s + request.limit_s
        raw = chains.measure(
            loaded.core, loaded.model, request.devices, until_s, self._heartbeat.alive
        )
        largest = f"the {raw.left_out} largest of the tensors handed over"
        return _Found(raw, Conditions(left_out=(largest,) if raw.left_out else ()))

    def _transfer_shapes(self, _: TransferShapes) -> _Found:
        self._heartbeat.alive()
        return _Found((chains.shapes(self._loaded.model), chains.copy_s_per_byte()))

    def _timeline(self, request: Timeline) -> _Found:
        """Finds when each part ran; fewer inferences, or none, where time is over."""
        loaded, until_s = self._loaded, self._asked_s + request.limit_s
        register(loaded.core, request.devices)
        loaded.compile_until_s = until_s
        rows: list[np.ndarray] = []
        with contextlib.suppress(OverError):
            executor = loaded.executor(request.segments, request.devices, shape=request.shape)
            took_s = 0.0
            while len(rows) < request.inferences + _WARM_UP and time.monotonic() + took_s < until_s:
                self._heartbeat.alive()
                begin_s = time.monotonic()
                executor.infer()
                took_s = time.monotonic() - begin_s
                rows.append(_spans(executor))
        loaded.compile_until_s = math.inf
        warm = rows[_WARM_UP:] or rows[-1:]
        what = "the model in parts" if request.shape is None else "some of the tensors handed over"
        few = f"{len(warm)} inferences of {what}, not {request.inferences}"
        left_out = (few,) if len(warm) < request.inferences else ()
        spans = np.array(warm) if warm else np.empty((0, 0, 2))
        return _Found(spans, Conditions(left_out=left_out))

    def _side_by_side(self, request: SideBySide) -> _Found:
        """Finds a `Slowdown`: rounds of each device alone, then of all, as the machine drifts."""
        loaded, until_s = self._loaded, self._asked_s + request.limit_s
        register(loaded.core, request.devices)
        loaded.compile_until_s = until_s
        alone: list[list[list[Span]]] = [[] for _ in request.devices]
        together: list[list[list[Span]]] = [[] for _ in request.devices]
        with contextlib.suppress(OverError):
            executors = [loaded.executor(each, request.devices) for each in request.segments]
            how = _AT_A_TIME, until_s, self._heartbeat.alive
            for _ in range(0, request.inferences, _AT_A_TIME):
                if time.monotonic() > until_s:
                    break
                for found, executor in zip(alone, executors, strict=True):
                    found += infer_side_by_side([executor], *how)[0]
                both = infer_side_by_side(executors, *how)
                for found, more in zip(together, both, strict=True):
                    found += more
        loaded.compile_until_s = math.inf
        left_out = () if all(together) else ("how devices disturb each other",)
        slowdown = Slowdown(*(tuple(map(_taken, rows)) for rows in (alone, together)))
        return _Found(slowdown, Conditions(left_out=left_out))

    def _submodel_times(self, request: SubmodelTimes) -> _Found:
        loaded, candidate = self._loaded, request.candidate
        if time.monotonic() + loaded.compile_s > self._asked_s + request.limit_s:
            return _Found([])
        register(loaded.core, candidate.devices)
        times = submodel_times.measure(
            loaded.core,
            loaded.model,
            loaded.inputs,
            candidate.affinity,
            candidate.devices,
            request.inferences,
            self._heartbeat.alive,
        )
        return _Found(times)

    def _own_choice(self, request: OwnChoice) -> _Found:
        register(self._loaded.core, request.devices)
        names = ",".join(device.name for device in request.devices)
        return _Found(dict(self._loaded.core.query_model(self._loaded.model, f"HETERO:{names}")))


def _spans(executor: Executor) -> np.ndarray:
    """Begin and end of each part in the last inference, [P, 2], seconds from the first."""
    spans_s = np.full((len(executor.split.parts), 2), np.nan)
    for span in executor.spans:
        spans_s[span.part] = span.begin_s, span.end_s
    return spans_s - spans_s.min()


def _taken(inferences: Sequence[Sequence[Span]]) -> np.ndarray:
    """Seconds of each part in each inference, [inferences, P]; P is 0 where there are none."""
    ordered = [sorted(spans) for spans in inferences]
    taken_s = [[span.end_s - span.begin_s for span in spans] for spans in ordered]
    return np.array(taken_s) if taken_s else np.empty((0, 0))
