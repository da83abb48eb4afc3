"""Measures a model with several input shapes as one: all its costs are weighted sums.

Each shape has a static model (`placement.runtime.models.variants`) and a measurer of its own. A
placement takes

    latency = sum over the shapes s of weight_s * latency_s

where every latency_s is a median. The ratio of two placements a and b is then a mean of the ratios
that were paired by rounds with each shape,

    latency(a) / latency(b) = sum of share_s * ratio_s
    share_s = weight_s * latency_s(b) / latency(b)

The ends of an interval are the same sums of the ends with each shape. The shapes are measured one
after another, so that their errors partly cancel, and the interval is wider than necessary.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.process import Progress
from placement.runtime.measurement.request import (
    Answer,
    Failure,
    HeteroChoice,
    Interval,
    Measure,
    Measurement,
    OutputErrors,
    PlacementError,
    Profile,
    Reasons,
    Request,
    SubmodelTimes,
    Transfers,
)
from placement.runtime.models.outputs import OutputCheck
from placement.runtime.models.support import UnsupportedOp
from placement.runtime.models.variants import WeightedShapes

if TYPE_CHECKING:
    from placement.costs.tables import DeviceProfile
    from placement.costs.transfers import TransferFit

_Outcome = Measurement | Failure


class ShapesMeasurer(contextlib.AbstractContextManager["ShapesMeasurer"]):
    """The `measurer.Measurer` of a model with several input shapes; owns one for each shape.

    It answers all requests about placements that HETERO runs.
    """

    def __init__(self, measurers: Sequence[LocalMeasurer], shapes: Sequence[WeightedShapes]):
        """Combines measurers, which are closed with this one.

        Args:
          measurers: one for each shape, on the same devices.
          shapes: the shapes and their weights.
        """
        self._measurers, self._shapes = tuple(measurers), tuple(shapes)
        self._active = self._measurers[0]
        self.devices = self._active.devices
        self.computed_ops = self._active.computed_ops
        content = [[m.fingerprint, s.weight] for m, s in zip(measurers, shapes, strict=True)]
        self.fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        self._combine: dict[type, Callable[[list[Any]], Any]] = {
            Measure: self._add_outcomes,
            Profile: self._add_profiles,
            Transfers: self._average_transfers,
            OutputErrors: lambda answers: [_worst(checks) for checks in zip(*answers, strict=True)],
            PlacementError: _worst,
            Reasons: _merge_reasons,
            SubmodelTimes: self._add_submodels,
            HeteroChoice: lambda answers: answers[0],
        }

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers and removes their files."""
        for measurer in self._measurers:
            measurer.close()

    def progress(self) -> Progress | None:
        """Returns the state of the worker that runs; other threads may call this."""
        return self._active.progress()

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request with one shape after another; see `Measurer`.

        Raises:
          ChildProcessError: a measuring process does not start, or cannot run the request.
        """
        share = _divide_time(request, len(self._measurers))
        answers: list[Any] = []
        for measurer in self._measurers:
            self._active = measurer
            answers.append(measurer.ask(share))
        combine: Callable[[list[Any]], Answer] = self._combine[type(request)]
        return combine(answers)

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures all candidates with each shape, and yields them in one chunk."""
        yield dict(enumerate(self.ask(request)))

    def conditions(self) -> dict[str, Conditions]:
        """Returns the conditions of all measurements so far, with all shapes, by kind."""
        total: dict[str, Conditions] = {}
        for measurer in self._measurers:
            for kind, conditions in measurer.conditions().items():
                total[kind] = total.get(kind, Conditions()) + conditions
        return total

    def _add_outcomes(self, answers: Sequence[Sequence[_Outcome]]) -> list[_Outcome]:
        """Adds up the outcomes of candidates; `answers` has those of all candidates by shape."""
        outcomes: list[_Outcome] = []
        for shape_outcomes in zip(*answers, strict=True):
            measured: list[Measurement] = []
            for shapes, outcome in zip(self._shapes, shape_outcomes, strict=True):
                if isinstance(outcome, Failure):
                    cause = f"with {shapes.input_shapes}: {outcome.cause}"
                    outcomes.append(Failure(outcome.stage, cause))
                    break
                measured.append(outcome)
            else:
                outcomes.append(self._add_measurements(measured, answers))
        return outcomes

    def _add_measurements(
        self, measured: Sequence[Measurement], answers: Sequence[Sequence[_Outcome]]
    ) -> Measurement:
        """Adds up the measurements of one candidate with each shape.

        Args:
          measured: the candidate's measurement with each shape.
          answers: the outcomes of all candidates by shape, the baselines first.
        """
        weights = [float(shapes.weight) for shapes in self._shapes]
        ratios = []
        for number in range(len(measured[0].ratios)):
            baseline = [answer[number] for answer in answers]
            costs_s = [
                weight * (outcome.latency.median if isinstance(outcome, Measurement) else math.nan)
                for weight, outcome in zip(weights, baseline, strict=True)
            ]
            shares = [cost_s / sum(costs_s) for cost_s in costs_s]
            ratios.append(_sum_intervals([m.ratios[number] for m in measured], shares))
        worst = _worst([OutputCheck(m.output_error, m.nan_share, m.tolerance) for m in measured])
        return measured[0]._replace(
            latency=_sum_intervals([m.latency for m in measured], weights),
            ratio=ratios[0],
            ratios=tuple(ratios),
            submodels=max(m.submodels for m in measured),
            thread_share=max(m.thread_share for m in measured),
            output_error=worst.error,
            nan_share=max(m.nan_share for m in measured),
            compile_s=sum(m.compile_s for m in measured),
            shape_latencies=tuple(m.latency for m in measured),
        )

    def _add_profiles(
        self, answers: Sequence[tuple["DeviceProfile", ...]]
    ) -> tuple["DeviceProfile", ...]:
        """Adds up profiles, each kernel scaled so that those of a shape sum to its latency.

        Each shape has a compiled model of its own, so that the overheads add up, too.
        """
        sums = []
        for profiles in zip(*answers, strict=True):
            kernels: dict[tuple[str, ...], float] = {}
            for shapes, profile in zip(self._shapes, profiles, strict=True):
                kernels_s = sum(seconds for _, seconds in profile.kernels)
                scale = shapes.weight * (profile.latency_s / kernels_s if kernels_s > 0 else 1.0)
                for names, seconds in profile.kernels:
                    kernels[names] = kernels.get(names, 0.0) + scale * seconds
            overheads_bytes = [profile.overhead_bytes for profile in profiles]
            measured_bytes = [num_bytes for num_bytes in overheads_bytes if num_bytes is not None]
            is_known = len(measured_bytes) == len(profiles)
            sums.append(
                profiles[0]._replace(
                    overhead_bytes=sum(measured_bytes) if is_known else None,
                    latency_s=sum(
                        shapes.weight * profile.latency_s
                        for shapes, profile in zip(self._shapes, profiles, strict=True)
                    ),
                    kernels=tuple(kernels.items()),
                    unsupported=frozenset().union(*(p.unsupported for p in profiles)),
                )
            )
        return tuple(sums)

    def _average_transfers(
        self, answers: Sequence[tuple["TransferFit", ...]]
    ) -> tuple["TransferFit", ...]:
        """Averages the lines of each pair of devices.

        The latency is the weighted mean over the shapes. The time of a byte is the mean weighted
        with the bytes that each shape hands over, so that the sum over all bytes stays the same.
        """
        weights = np.array([shapes.weight for shapes in self._shapes], float)
        averages = []
        for fits in zip(*answers, strict=True):
            num_bytes = weights * [1.0 + fit.num_bytes.sum() for fit in fits]
            averages.append(
                fits[0]._replace(
                    latency_s=float(np.average([fit.latency_s for fit in fits], weights=weights)),
                    s_per_byte=float(
                        np.average([fit.s_per_byte for fit in fits], weights=num_bytes)
                    ),
                    num_bytes=np.concatenate([fit.num_bytes for fit in fits]),
                    seconds=np.concatenate([fit.seconds for fit in fits]),
                )
            )
        return tuple(averages)

    def _add_submodels(
        self, answers: Sequence[list[tuple[tuple[str, ...], float]]]
    ) -> list[tuple[tuple[str, ...], float]]:
        """Adds up the submodels' times; none if a shape has other submodels or left them out."""
        if len({len(answer) for answer in answers}) > 1:
            return []
        return [
            (
                submodels[0][0],
                sum(
                    shapes.weight * seconds
                    for shapes, (_, seconds) in zip(self._shapes, submodels, strict=True)
                ),
            )
            for submodels in zip(*answers, strict=True)
        ]


def _divide_time(request: Request[Answer], num_shapes: int) -> Request[Answer]:
    """Returns the request with an equal share of its time limits for each shape."""
    limits = {
        field.name: getattr(request, field.name) / num_shapes
        for field in dataclasses.fields(request)  # type: ignore[arg-type]
        if field.name in ("seconds", "limit_s", "time_limit_s", "compile_s")
    }
    return dataclasses.replace(request, **limits)  # type: ignore[type-var]


def _sum_intervals(intervals: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """Returns the weighted sum of intervals, with the least number of samples."""
    median, low, high = (
        sum(w * end for w, end in zip(weights, ends, strict=True))
        for ends in zip(*(interval[:3] for interval in intervals), strict=True)
    )
    return Interval(median, low, high, min(interval.n for interval in intervals))


def _worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    """Returns the check with the largest error; NaN is larger than any number."""
    return max(checks, key=lambda check: math.inf if math.isnan(check.error) else check.error)


def _merge_reasons(answers: Sequence[list[UnsupportedOp]]) -> list[UnsupportedOp]:
    """Returns one entry for each operation, that of the first shape which has one."""
    return list({op.name: op for answer in reversed(answers) for op in answer}.values())
