"""A measurer that runs nothing: its latencies are the simulator's, with seeded noise."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openvino as ov

from placement.costs import tables, transfers
from placement.problem import Problem
from placement.runtime.devices import Device
from placement.runtime.measurement import request as requests
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.request import Candidate, Measure, Measurement, median_interval
from placement.runtime.models import extract, operations
from placement.runtime.models.inputs import Inputs
from placement.runtime.models.outputs import OutputCheck

_LATENCY_S, _S_PER_BYTE = 10e-6, 1e-10  # of a transfer
_NOISE = 0.01  # relative standard deviation of a sample
_RIGHT = OutputCheck(error=0.0, tolerance=0.1)


class FakeMeasurer(contextlib.AbstractContextManager["FakeMeasurer"]):
    """Takes the place of a `LocalMeasurer`, so that a run needs no inference and no process.

    `install` lets the runs of a process use it. All
    outputs are right, and all devices support all operations. A device that is not in `devices`,
    such as the plain CPU, is as fast as the first of them.
    """

    def __init__(self, model: ov.Model, devices: Sequence[Device], *, inputs: Inputs | None = None):
        self.devices, names = tuple(devices), tuple(device.name for device in devices)
        self.computed_ops = frozenset(operations.computed_names(model))
        self._rng = np.random.default_rng(0)
        self._graph = graph = extract.op_graph(model, name="fake").graph
        self.fingerprint = hashlib.sha256("/".join(graph.op_names).encode()).hexdigest()
        # Every device is fast at other operations.
        slowness = self._rng.uniform(0.5, 2.0, (graph.num_ops, len(names)))
        is_computed = np.array([name in self.computed_ops for name in graph.op_names])
        self._seconds = slowness * (is_computed * (1e-5 + graph.flops / 1e9))[:, None]
        self._profiles = tuple(
            tables.DeviceProfile(
                device.label,
                float(column.sum()),
                tuple(((n,), float(s)) for n, s in zip(graph.op_names, column, strict=True) if s),
                frozenset(),
            )
            for device, column in zip(devices, self._seconds.T, strict=True)
        )
        samples = [(size, _LATENCY_S + size * _S_PER_BYTE) for size in (2**12, 2**16, 2**20)]
        self._fits = tuple(
            transfers.fit_line((i, j), samples, _S_PER_BYTE)
            for j in range(len(names))
            for i in range(j)
        )
        matrices = transfers.make_matrices(self._fits, len(names))
        costs = tables.cost_model(graph, self._profiles, matrices)
        self._problems = {
            objective: Problem(graph, costs, objective, names)
            for objective in ("serial", "makespan", "max_load")
        }

    def __exit__(self, *_: object) -> None:
        pass

    def conditions(self) -> dict[str, Conditions]:
        return {}

    def ask(self, request: Any) -> Any:
        answers = {
            requests.Measure: lambda: [*next(self.measure_chunks(request)).values()],
            requests.Profile: lambda: self._profiles,
            requests.Reasons: lambda: [],
            requests.OutputErrors: lambda: [_RIGHT] * len(request.devices),
            requests.PlacementError: lambda: _RIGHT,
            requests.Transfers: lambda: self._fits,
            requests.TransferShapes: lambda: ([], _S_PER_BYTE),
            requests.Timeline: lambda: self._timeline(request),
            requests.SubmodelTimes: lambda: [
                ((name,), self._seconds[i, self._placement(request.candidate)[i]])
                for i, name in enumerate(self._graph.op_names)
                if name in self.computed_ops
            ],
            requests.HeteroChoice: lambda: dict.fromkeys(
                self._graph.op_names, request.devices[0].name
            ),
        }
        return answers[type(request)]()

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement]]:
        samples_s = []
        for candidate in request.candidates:
            objective = "serial" if candidate.segments is None else "makespan"
            if candidate.num_requests != 1:
                objective = "max_load"
            latency_s = self._problems[objective].value_s(self._placement(candidate))
            noise = self._rng.normal(1.0, _NOISE, request.min_rounds)
            samples_s.append(latency_s * noise)
        yield {
            i: Measurement(
                latency=median_interval(seconds),
                ratio=median_interval(seconds / samples_s[0]),
                submodels=1,
                output_error=_RIGHT.error,
                tolerance=_RIGHT.tolerance,
                compile_s=0.0,
                ratios=tuple(
                    median_interval(seconds / baseline_s)
                    for baseline_s in samples_s[: request.num_baselines]
                ),
            )
            for i, seconds in enumerate(samples_s)
        }

    def _placement(self, candidate: Candidate) -> np.ndarray:
        """The index of each operation's device, int [N]."""
        index = {device.name: i for i, device in enumerate(self.devices)}
        affinity = candidate.affinity or dict.fromkeys(
            self._graph.op_names, candidate.devices[0].name
        )
        return np.array([index.get(affinity.get(n, ""), 0) for n in self._graph.op_names])

    def _timeline(self, request: requests.Timeline) -> np.ndarray:
        """The segments one after another, after a transfer where the device changes."""
        index = {device.name: i for i, device in enumerate(self.devices)}
        op_index = {name: i for i, name in enumerate(self._graph.op_names)}
        spans, clock_s, previous = [], 0.0, ""
        for segment in request.segments:
            ops = [op_index[name] for name in segment.ops if name in self.computed_ops]
            if ops:
                begin_s = clock_s + _LATENCY_S * (previous not in ("", segment.device))
                clock_s = begin_s + self._seconds[ops, index[segment.device]].sum()
                spans.append((begin_s, clock_s))
                previous = segment.device
        return np.array([spans] * 3)


def install() -> None:
    """Lets all runs of this process measure nothing."""
    from placement.pipeline import target

    target.LocalMeasurer = FakeMeasurer  # type: ignore[misc]
