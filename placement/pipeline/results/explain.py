"""Explains a run's best placement: details.json, and a file for Netron."""

from pathlib import Path

import numpy as np

from placement import files
from placement.analysis import timeline
from placement.pipeline import loading
from placement.pipeline import target as target_lib
from placement.pipeline.context import Context
from placement.pipeline.results.rows import Row
from placement.reporting import details
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    Candidate,
    Measurement,
    SubmodelTimes,
    Timeline,
)
from placement.runtime.models import serialization
from placement.types import Span

NETRON = "placed.xml"
_PREDICTED = {
    "serial": "predicted: submodels one after another, as under HETERO",
    "makespan": "predicted: operations as the objective schedules them",
    "max_load": "predicted: one request alone; of a stream, the busiest device sets the pace",
    "subgraph": "predicted: each accelerator's part at once, the host infinitely wide",
}
_IN_SEGMENTS = "predicted by segments of each device; the table predicts operation by operation"


def best(row: Row | None, context: Context) -> details.Details | None:
    """Returns the best placement with its predicted timeline, and the measured one if possible.

    None without a placement, and of a graph that is too large to look at it.
    """
    target, measurer, display = context.target, context.measurer, context.display
    net = target.net
    if row is None:
        return None
    if net.graph.num_ops > details.MOST_OPS:
        display.say(
            f"left out of more than {details.MOST_OPS:,} operations: {details.FILE}, trace.json, "
            f"{NETRON}, and what the page and the figures would show of each"
        )
        return None
    problem = context.problem.with_order(row.solution.order)
    placement, op_devices = row.placements[0], problem.expand(row.placements[0])
    candidate, measured = row.candidates[0], None
    in_segments = candidate.segments is not None
    predict = timeline.predict_segments if in_segments else timeline.predict
    source = _IN_SEGMENTS if in_segments else _PREDICTED[problem.objective]
    predicted = details.Timeline(predict(problem, placement), source)
    if measurer is not None and isinstance(row.outcome, Measurement):
        try:
            measured = _measured(measurer, candidate, net, op_devices)
        except (KeyboardInterrupt, ChildProcessError) as error:
            display.warn(f"no measured timeline: {str(error) or 'interrupted'}")
    assert target.costs is not None
    return details.Details(
        method=row.method,
        objective=problem.objective,
        devices=target.labels,
        graph=net.graph,
        coarse=problem.graph,
        assignment=net.coarsening.assignment,
        placement=op_devices,
        compute_s=np.asarray(target.costs.compute_s, np.float64),
        memory_bytes=np.asarray(target.costs.memory_bytes, np.float64),
        predicted=predicted,
        measured=measured,
    )


def write(workdir: Path, explained: details.Details | None, target: target_lib.Target) -> None:
    """Writes the details and, for a model, an IR for Netron that shows each operation's device.

    Without details it removes the files of an earlier run.
    """
    if explained is None:
        for name in (details.FILE, NETRON):
            (workdir / name).unlink(missing_ok=True)
        return
    details.write(workdir / details.FILE, explained)
    if target.net.model is not None:
        names = (target.names[device] for device in explained.op_placement)
        affinity = dict(zip(explained.graph.op_names, names, strict=True))
        files.write_bytes(workdir / NETRON, serialization.annotate(target.net.model, affinity))


def _measured(
    measurer: Measurer, candidate: Candidate, net: loading.Network, op_devices: np.ndarray
) -> details.Timeline:
    """Measures when the parts of a placement run; `op_devices`: of the problem's operations."""
    if candidate.segments is None:
        names, seconds = zip(*measurer.ask(SubmodelTimes(candidate)), strict=True)
        times_s = np.cumsum(seconds)[:, None] - np.stack([seconds, np.zeros(len(seconds))], axis=1)
        method = (
            "measured: kernels of each submodel, mean of a few inferences; what lies between "
            "submodels is not counted"
        )
    else:
        segments, computed = candidate.segments, measurer.computed_ops
        names = tuple(part.ops for part in segments if computed.intersection(part.ops))
        intervals_s = measurer.ask(Timeline(measurer.devices, segments))
        length_s = intervals_s[:, :, 1].max(axis=1)
        times_s = intervals_s[np.argsort(length_s)[len(intervals_s) // 2]]
        method = f"measured: the inference of median length, of {len(intervals_s)}"
    # Spans are of the problem's operations, each in the first part with one of its members.
    merged = dict(zip(net.graph.op_names, net.coarsening.assignment.tolist(), strict=True))
    assigned: set[int] = set()
    spans = []
    for ops, (start_s, finish_s) in zip(names, times_s.tolist(), strict=True):
        ran = dict.fromkeys(merged[op] for op in ops if op in merged)
        new = tuple(op for op in ran if op not in assigned)
        assigned.update(new)
        if new:
            spans.append(Span(int(op_devices[new[0]]), new, start_s, finish_s))
    return details.Timeline(tuple(spans), method)
