"""A measurer that runs nothing: it invents the times of operations, and adds seeded noise."""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.measurement import request as requests
from placement.runtime.models import extract, operations
from placement.runtime.models.outputs import OutputCheck

_LATENCY_S, _S_PER_BYTE = 10e-6, 1e-10  # of a transfer in the profile
_RIGHT = OutputCheck(error=0.0, tolerance=0.1)


class FakeMeasurer(contextlib.nullcontext):
    """Takes the place of a `LocalMeasurer`: a run needs no inference and no process.

    Devices compute one after another, and transfers take no time. All outputs are right, and all
    devices support all operations. The plain CPU is as fast as the first device.
    """

    def __init__(self, model: ov.Model, devices: Sequence[Device], **_: Any):
        self.devices = tuple(devices)
        self.computed_ops = frozenset(operations.computed_names(model))
        graph = extract.op_graph(model, name="fake").graph
        self.fingerprint = hashlib.sha256("/".join(graph.op_names).encode()).hexdigest()
        self._rng = np.random.default_rng(0)
        # Every device is fast at other operations.
        slowness = self._rng.uniform(0.5, 2.0, (graph.num_ops, len(devices)))
        rows = zip(graph.op_names, slowness * (1e-5 + graph.flops / 1e9)[:, None], strict=True)
        self._seconds = {name: row for name, row in rows if name in self.computed_ops}

    def __enter__(self) -> "FakeMeasurer":
        return self

    def conditions(self) -> dict[str, Any]:
        return {}

    def ask(self, request: Any) -> Any:
        answers = {
            requests.Measure: lambda: [*next(self.measure_chunks(request)).values()],
            requests.Profile: lambda: list(map(self._profile, range(len(self.devices)))),
            requests.Reasons: lambda: [],
            requests.OutputErrors: lambda: [_RIGHT] * len(request.devices),
            requests.PlacementError: lambda: _RIGHT,
            requests.Transfers: lambda: {
                pair: [(n, _LATENCY_S + n * _S_PER_BYTE) for n in (2**12, 2**20)]
                for pair in itertools.combinations(range(len(self.devices)), 2)
            },
            requests.CopyTime: lambda: _S_PER_BYTE,
            requests.Timeline: lambda: self._timeline(request),
            requests.SubmodelTimes: lambda: [
                ((op,), seconds) for op, seconds in self._op_seconds(request.candidate).items()
            ],
            requests.HeteroChoice: lambda: dict.fromkeys(
                self.computed_ops, request.devices[0].name
            ),
        }
        return answers[type(request)]()

    def measure_chunks(
        self, request: requests.Measure
    ) -> Iterator[dict[int, requests.Measurement | requests.Failure]]:
        samples_s = np.array(
            [
                sum(self._op_seconds(candidate).values())
                * self._rng.normal(1.0, 0.01, request.min_rounds)
                for candidate in request.candidates
            ]
        )
        yield {
            i: requests.Measurement(
                latency=requests.median_interval(row),
                ratio=requests.median_interval(row / samples_s[0]),
                submodels=1,
                output_error=_RIGHT.error,
                tolerance=_RIGHT.tolerance,
                compile_s=0.0,
                ratios=tuple(
                    requests.median_interval(row / baseline_s)
                    for baseline_s in samples_s[: request.num_baselines]
                ),
            )
            for i, row in enumerate(samples_s)
        }

    def _profile(self, device: int) -> requests.RawProfile:
        rows = tuple(((op,), float(seconds[device])) for op, seconds in self._seconds.items())
        total_s = sum(seconds for _, seconds in rows)
        return requests.RawProfile(total_s, rows, frozenset())

    def _op_seconds(self, candidate: requests.Candidate) -> dict[str, float]:
        index = {device.name: i for i, device in enumerate(self.devices)}
        affinity, default = candidate.affinity or {}, candidate.devices[0].name
        return {
            op: seconds[index.get(affinity.get(op, default), 0)]
            for op, seconds in self._seconds.items()
        }

    def _timeline(self, request: requests.Timeline) -> np.ndarray:
        index = {device.name: i for i, device in enumerate(self.devices)}
        each_s = [
            sum(
                self._seconds[op][index[segment.device]]
                for op in segment.ops
                if op in self._seconds
            )
            for segment in request.segments
        ]
        ends_s = np.cumsum([seconds for seconds in each_s if seconds])
        return np.array([np.stack([np.append(0.0, ends_s[:-1]), ends_s], axis=1)] * 3)


def install() -> None:
    """Lets all runs of this process measure nothing."""
    from placement.pipeline import target

    target.LocalMeasurer = FakeMeasurer  # type: ignore[misc,assignment]
