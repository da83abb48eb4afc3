"""Answers requests about one model as long as the worker lasts."""

import collections
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement.runtime.devices import register_devices
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement import conditions
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.request import (
    MIN_SAMPLES,
    HeteroChoice,
    OutputErrors,
    PlacementError,
    Profile,
    Reasons,
    Request,
    SubmodelTimes,
    Timeline,
    Transfers,
    TransferShapes,
    median_interval,
)
from placement.runtime.measurement.worker import chains, inference, profile
from placement.runtime.measurement.worker.channel import Heartbeat
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.loaded import CompileDeadlineError, LoadedModel
from placement.runtime.measurement.worker.trials import Rounds, Trials
from placement.runtime.models import support
from placement.runtime.models.outputs import OutputCheck


class _Result(NamedTuple):
    """The content of a 'done' message."""

    content: Any  # `Request.parse` converts it to the answer
    conditions: Conditions = Conditions()  # widths of intervals, and what the limit left out


class Session:
    """The state that lasts from request to request."""

    def __init__(self, send: Callable[[Any], None], directory: Path):
        """Loads the model in `directory` with its inputs; `send` sends messages to the parent.

        Raises:
          UnusableError: the reference device cannot run it.
          RuntimeError: OpenVINO's own.
        """
        self._send = send
        self._heartbeat = Heartbeat(directory)
        self._heartbeat.set(-1, "open")
        self._loaded = LoadedModel(directory, self._heartbeat)
        self._trials = Trials(self._loaded, self._heartbeat, send)
        self._request_time_s = 0.0  # on the monotonic clock; `limit_s` counts from here
        self._answers: dict[type, Callable[[Any], _Result]] = {
            Rounds: lambda rounds: _Result(self._trials.run(rounds)),
            Profile: self._profile,
            Reasons: self._reasons,
            OutputErrors: self._output_errors,
            PlacementError: self._placement_error,
            Transfers: self._transfers,
            TransferShapes: self._transfer_shapes,
            Timeline: self._timeline,
            SubmodelTimes: self._submodel_times,
            HeteroChoice: self._own_choice,
        }

    def answer(self, request: Request[Any] | Rounds, request_time_s: float) -> None:
        """Sends the answer to a request: ('done', content, conditions).

        Args:
          request: one of the types above.
          request_time_s: when it was sent, on the monotonic clock.

        Raises:
          RuntimeError: OpenVINO's own.
          UserError: a placement does not fit the model.
          MemoryError: too little memory is left to continue.
        """
        self._request_time_s = request_time_s
        register_devices(self._loaded.core, getattr(request, "devices", ()))
        self._send(("done", *self._answers[type(request)](request)))

    def _profile(self, request: Profile) -> _Result:
        """Profiles the devices; the content is a list of `profile.RawProfile`s."""
        profiles, latencies_s = profile.profile_devices(
            self._loaded.core,
            self._loaded.model,
            self._loaded.inputs,
            request.devices,
            request.seconds,
            self._request_time_s + request.limit_s,
            self._heartbeat.keep_alive,
        )
        intervals = [median_interval(s) for s in latencies_s if len(s) >= MIN_SAMPLES]
        width = conditions.median_width([(i.low, i.high) for i in intervals])
        rounds = min(map(len, latencies_s))
        cut = f"operations timed {max(1, rounds)} times, not {profile.MIN_ROUNDS}"
        left_out = (cut,) if rounds < profile.MIN_ROUNDS else ()
        return _Result(profiles, Conditions(interval_width=width, left_out=left_out))

    def _reasons(self, request: Reasons) -> _Result:
        self._heartbeat.keep_alive()
        loaded = self._loaded
        register_devices(loaded.core, [request.device])
        explained = support.explain(loaded.core, loaded.model, request.device.name, request.names)
        return _Result(explained)

    def _output_errors(self, request: OutputErrors) -> _Result:
        loaded, errors = self._loaded, list[OutputCheck]()
        for device in request.devices:
            checks = []
            for part in profile.divide(loaded.core, loaded.model, device):
                self._heartbeat.keep_alive()
                compiled = loaded.compiled(part.affinity, part.devices)
                infer_request = inference.create_request(compiled, loaded.inputs)
                checks.append(loaded.compare(infer_request, [device]))
                del compiled, infer_request  # the device may hold only one part at a time
            errors.append(max(checks, key=lambda check: (not check.is_correct, check.error)))
        return _Result(errors)

    def _placement_error(self, request: PlacementError) -> _Result:
        candidate = request.candidate
        self._heartbeat.keep_alive()
        register_devices(self._loaded.core, candidate.devices)
        compiled = self._loaded.compiled(candidate.affinity, candidate.devices)
        infer_request = inference.create_request(compiled, self._loaded.inputs)
        return _Result(self._loaded.compare(infer_request, candidate.used_devices()))

    def _transfers(self, request: Transfers) -> _Result:
        """Measures transfers under HETERO; the content is a `chains.RawTransfers`."""
        raw_transfers = chains.measure_transfers(
            self._loaded.core,
            self._loaded.model,
            request.devices,
            self._request_time_s + request.limit_s,
            self._heartbeat.keep_alive,
        )
        cut = f"the {raw_transfers.left_out} largest of the tensors handed over"
        left_out = (cut,) if raw_transfers.left_out else ()
        return _Result(raw_transfers, Conditions(left_out=left_out))

    def _transfer_shapes(self, _: TransferShapes) -> _Result:
        self._heartbeat.keep_alive()
        return _Result((chains.chain_shapes(self._loaded.model), chains.copy_s_per_byte()))

    def _timeline(self, request: Timeline) -> _Result:
        """Runs segments; the content is float64 [inferences, P, 2], see `Timeline`."""
        deadline_s = self._request_time_s + request.limit_s
        timelines_s: list[np.ndarray] = []
        with contextlib.suppress(CompileDeadlineError):
            executor = self._loaded.executor(
                request.segments, request.devices, shape=request.shape, deadline_s=deadline_s
            )
            duration_s = 0.0
            while (
                len(timelines_s) < request.inferences + WARM_UP_INFERENCES
                and time.monotonic() + duration_s < deadline_s
            ):
                self._heartbeat.keep_alive()
                begin_s = time.monotonic()
                executor.infer()
                duration_s = time.monotonic() - begin_s
                timeline_s = np.full((len(executor.split.parts), 2), np.nan)
                for span in executor.spans:
                    timeline_s[span.part] = span.begin_s, span.end_s
                timelines_s.append(timeline_s - timeline_s.min())
        # Without time for more, the last inference of the warm-up counts.
        warm = timelines_s[WARM_UP_INFERENCES:] or timelines_s[-1:]
        ran = "the model in parts" if request.shape is None else "some of the tensors handed over"
        cut = f"fewer than {request.inferences} inferences of {ran}"
        left_out = (cut,) if len(warm) < request.inferences else ()
        content = np.array(warm) if warm else np.empty((0, 0, 2))
        return _Result(content, Conditions(left_out=left_out))

    def _submodel_times(self, request: SubmodelTimes) -> _Result:
        loaded, candidate = self._loaded, request.candidate
        if time.monotonic() + loaded.compile_s > self._request_time_s + request.limit_s:
            return _Result([])
        register_devices(loaded.core, candidate.devices)
        self._heartbeat.keep_alive()
        compiled = compile_placement(
            loaded.core,
            loaded.model,
            candidate.affinity,
            inference.with_counters(candidate.devices),
        )
        infer_request = inference.create_request(compiled, loaded.inputs)

        def infer_and_count(count: int) -> dict[int, dict[str, float]]:
            """Runs inferences; returns each submodel's nodes with their mean seconds so far."""
            for _ in range(count):
                self._heartbeat.keep_alive()
                infer_request.infer()
            nodes: dict[int, dict[str, float]] = collections.defaultdict(dict)
            for info in infer_request.get_profiling_info():
                # HETERO puts the submodel first, as in 'subgraph2: conv_1', but not before the
                # nodes of a single submodel.
                prefix, colon, name = info.node_name.partition(": ")
                if not (colon and prefix.startswith("subgraph")):
                    prefix, name = "subgraph0", info.node_name
                submodel = int(prefix.removeprefix("subgraph"))
                nodes[submodel][name] = info.real_time.total_seconds()
            return nodes

        warm_up_nodes, nodes = map(infer_and_count, (WARM_UP_INFERENCES, request.inferences))
        means_s = {
            submodel: inference.mean_after_warm_up(
                sum(nodes[submodel].values()),
                sum(warm_up_nodes[submodel].values()),
                request.inferences,
            )
            for submodel in nodes
        }
        return _Result([(tuple(nodes[submodel]), means_s[submodel]) for submodel in sorted(nodes)])

    def _own_choice(self, request: HeteroChoice) -> _Result:
        names = ",".join(device.name for device in request.devices)
        policy = (
            {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"} if request.split_by_memory else {}
        )
        placement = self._loaded.core.query_model(self._loaded.model, f"HETERO:{names}", policy)
        return _Result(dict(placement))
