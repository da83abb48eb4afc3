"""Answers requests about one model as long as the worker lasts."""

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from placement.runtime.devices import register_devices
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement.request import (
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
)
from placement.runtime.measurement.worker import chains, inference, profile
from placement.runtime.measurement.worker.channel import Heartbeat
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.loaded import LoadedModel
from placement.runtime.measurement.worker.trials import Rounds, Trials
from placement.runtime.models import support
from placement.runtime.models.outputs import OutputCheck
from placement.runtime.models.support import UnsupportedOp


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
        self._answers: dict[type, Callable[[Any], Any]] = {
            Rounds: self._trials.run,
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

    def answer(self, request: Request[Any] | Rounds) -> None:
        """Sends ('done', content); `Request.parse` converts the content to the answer.

        Args:
          request: one of the types above.

        Raises:
          RuntimeError: OpenVINO's own.
          UserError: a placement does not fit the model.
          MemoryError: too little memory is left to continue.
        """
        register_devices(self._loaded.core, getattr(request, "devices", ()))
        self._send(("done", self._answers[type(request)](request)))

    def _profile(self, request: Profile) -> list[profile.RawProfile]:
        return profile.profile_devices(self._loaded, request.devices, self._heartbeat.keep_alive)

    def _reasons(self, request: Reasons) -> list[UnsupportedOp]:
        self._heartbeat.keep_alive()
        loaded = self._loaded
        register_devices(loaded.core, [request.device])
        return support.explain(loaded.core, loaded.model, request.device.name, request.names)

    def _output_errors(self, request: OutputErrors) -> list[OutputCheck]:
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
        return errors

    def _placement_error(self, request: PlacementError) -> OutputCheck:
        candidate = request.candidate
        self._heartbeat.keep_alive()
        register_devices(self._loaded.core, candidate.devices)
        compiled = self._loaded.compiled(candidate.affinity, candidate.devices)
        infer_request = inference.create_request(compiled, self._loaded.inputs)
        return self._loaded.compare(infer_request, candidate.used_devices())

    def _transfers(self, request: Transfers) -> chains.RawTransfers:
        """Measures transfers under HETERO."""
        return chains.measure_transfers(
            self._loaded.core, self._loaded.model, request.devices, self._heartbeat.keep_alive
        )

    def _transfer_shapes(self, _: TransferShapes) -> tuple[list[tuple[int, ...]], float]:
        self._heartbeat.keep_alive()
        return chains.chain_shapes(self._loaded.model), chains.copy_s_per_byte()

    def _timeline(self, request: Timeline) -> np.ndarray:
        """Runs segments; returns float64 [inferences, P, 2], see `Timeline`."""
        executor = self._loaded.executor(request.segments, request.devices, shape=request.shape)

        def infer() -> np.ndarray:
            self._heartbeat.keep_alive()
            executor.infer()
            timeline_s = np.full((len(executor.split.parts), 2), np.nan)
            for span in executor.spans:
                timeline_s[span.part] = span.begin_s, span.end_s
            return timeline_s - timeline_s.min()

        warm_up_s = [infer().max() for _ in range(WARM_UP_INFERENCES)]
        return np.array([infer() for _ in range(inference.num_repetitions(warm_up_s[-1]))])

    def _submodel_times(self, request: SubmodelTimes) -> list[tuple[tuple[str, ...], float]]:
        loaded, candidate = self._loaded, request.candidate
        register_devices(loaded.core, candidate.devices)
        self._heartbeat.keep_alive()
        compiled = compile_placement(
            loaded.core,
            loaded.model,
            candidate.affinity,
            inference.with_counters(candidate.devices),
        )
        infer_request = inference.create_request(compiled, loaded.inputs)

        def infer() -> float:
            self._heartbeat.keep_alive()
            return inference.infer_s(infer_request)

        def read_nodes() -> dict[int, dict[str, float]]:
            """Returns each submodel's nodes with their mean seconds so far."""
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

        warm_up_s = [infer() for _ in range(WARM_UP_INFERENCES)]
        warm_up_nodes, count = read_nodes(), inference.num_repetitions(warm_up_s[-1])
        for _ in range(count):
            infer()
        nodes = read_nodes()
        means_s = {
            submodel: inference.mean_after_warm_up(
                sum(nodes[submodel].values()), sum(warm_up_nodes[submodel].values()), count
            )
            for submodel in nodes
        }
        return [(tuple(nodes[submodel]), means_s[submodel]) for submodel in sorted(nodes)]

    def _own_choice(self, request: HeteroChoice) -> dict[str, str]:
        names = ",".join(device.name for device in request.devices)
        policy = (
            {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"} if request.split_by_memory else {}
        )
        placement = self._loaded.core.query_model(self._loaded.model, f"HETERO:{names}", policy)
        return dict(placement)
