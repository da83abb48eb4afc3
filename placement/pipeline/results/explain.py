"""Explains a run's best placement: details.json, and a file for Netron."""

from pathlib import Path

import numpy as np

from placement import files
from placement.analysis import timeline
from placement.pipeline import loading
from placement.pipeline import target as target_lib
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.reporting import details
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, SubmodelTimes, Timeline
from placement.runtime.models import netron
from placement.types import OpGraph, Span

NETRON = "placed.xml"
_PREDICTED = {
    "serial": "predicted: submodels one after another, as under HETERO",
    "makespan": "predicted: operations as the objective schedules them",
    "max_load": "predicted: one request alone; of a stream, the busiest device sets the pace",
    "subgraph": "predicted: each accelerator's part at once, the host infinitely wide",
}
_IN_SEGMENTS = "predicted by segments of each device; the table predicts operation by operation"


def best(
    row: Row,
    target: target_lib.Target,
    full_problem: loading.SearchProblem,
    settings: Settings,
    measurer: Measurer | None,
) -> details.Details:
    """Returns a placement with its predicted timeline, and the measured one with a measurer.

    Raises:
      ChildProcessError: the placement cannot be run any more.
    """
    placed, placement = row.placed_problem(full_problem), row.placements[0]
    problem, assignment = placed.coarse, placed.assignment
    costs = full_problem.full.costs
    graph, candidate, measured = full_problem.full.graph, row.candidates[0], None
    in_segments = candidate.segments is not None
    predict = timeline.predict_segments if in_segments else timeline.predict
    source = _IN_SEGMENTS if in_segments else _PREDICTED[problem.objective]
    predicted = details.Timeline(predict(problem, placement), source)
    if measurer is not None:
        measured = _measured(measurer, candidate, graph, assignment, placement)
    return details.Details(
        method=row.method,
        objective=settings.objective,
        devices=target.labels,
        graph=graph,
        coarse=problem.graph,
        assignment=assignment,
        placement=placement,
        compute_s=np.asarray(costs.compute_s, np.float64),
        memory_bytes=np.asarray(costs.memory_bytes, np.float64),
        predicted=predicted,
        measured=measured,
    )


def write(workdir: Path, explained: details.Details | None, target: target_lib.Target) -> None:
    """Writes the details and, for a model, an IR for Netron that shows each operation's device.

    Without details it removes the files of an earlier run.

    Raises:
      OSError: they cannot be written.
    """
    if explained is None:
        for name in (details.FILE, NETRON):
            (workdir / name).unlink(missing_ok=True)
        return
    details.write(workdir / details.FILE, explained)
    if target.net.model is not None:
        names = (target.names[device] for device in explained.op_placement)
        affinity = dict(zip(explained.graph.op_names, names, strict=True))
        files.write_bytes(workdir / NETRON, netron.annotate(target.net.model, affinity))


def _measured(
    measurer: Measurer,
    candidate: Candidate,
    graph: OpGraph,
    assignment: np.ndarray,
    placement: np.ndarray,
) -> details.Timeline:
    """Measures when the parts of a placement run."""
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
    # Spans are of coarse operations, each in the first part with one of its members.
    number = {name: int(coarse) for name, coarse in zip(graph.op_names, assignment, strict=True)}
    assigned: set[int] = set()
    spans = []
    for ops, (start_s, finish_s) in zip(names, times_s.tolist(), strict=True):
        coarse = dict.fromkeys(number[op] for op in ops if op in number)
        new = tuple(op for op in coarse if op not in assigned)
        assigned.update(new)
        if new:
            spans.append(Span(int(placement[new[0]]), new, start_s, finish_s))
    return details.Timeline(tuple(spans), method)
