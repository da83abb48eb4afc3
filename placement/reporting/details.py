"""The details of a run's best placement: enough to draw it without model, device or simulator.

`details.json` holds columns, so that a graph of 100,000 operations stays a file of some megabytes.
An infinite cost (a device that does not support the operation) is null.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from placement import files
from placement.graphs import opgraph
from placement.reporting import printable, runs
from placement.types import OpGraph, Span

FILE = "details.json"
# No page or figure of a larger graph is readable, and writing the file takes longer than searching.
MOST_OPS = 200_000
_ROUNDING = 1e-9  # share of the latency by which successive spans of a lane may overlap
_GRAPH_COLUMNS = (
    *("name", "op_names", "op_types", "output_shapes", "senders", "receivers", "edge_bytes"),
    *("tensors", "flops", "weight_bytes", "colocation", "backward"),
)


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The times at which the devices work on one request."""

    spans: tuple[Span, ...]  # of coarse operations; those of one device may overlap under a host
    source: str  # how the times were obtained, such as 'simulated'

    @property
    def latency_s(self) -> float:
        """The end of the last span; the first one begins at 0 or later."""
        return max((span.finish_s for span in self.spans), default=0.0)

    def heading(self, kind: str) -> str:
        """Returns a heading such as 'predicted (simulated)'; `kind`: 'predicted' or 'measured'."""
        return self.source if self.source.startswith(kind) else f"{kind} ({self.source})"

    def lanes(self) -> list[int]:
        """Assigns every span a lane of its device, counted from 0; spans of a lane do not overlap.

        Each span takes the first free lane, which needs the fewest lanes.
        """
        slack_s = _ROUNDING * self.latency_s
        free_s: dict[int, list[float]] = {}  # by device, when each lane is free
        assigned = [0] * len(self.spans)
        for number in sorted(range(len(assigned)), key=lambda n: self.spans[n].start_s):
            span = self.spans[number]
            ends = free_s.setdefault(span.device, [])
            free = (lane for lane, end in enumerate(ends) if end <= span.start_s + slack_s)
            assigned[number] = next(free, len(ends))
            ends[assigned[number] : assigned[number] + 1] = [span.finish_s]
        return assigned

    def busy_s(self, num_devices: int) -> np.ndarray:
        """Returns the time for which each device is busy, float64 [D]."""
        busy, busy_until_s = np.zeros(num_devices), np.full(num_devices, -np.inf)
        for device, _, start_s, finish_s in sorted(self.spans, key=lambda span: span.start_s):
            busy[device] += max(0.0, finish_s - max(start_s, busy_until_s[device]))
            busy_until_s[device] = max(busy_until_s[device], finish_s)
        return busy


@dataclasses.dataclass(frozen=True, eq=False)
class Details:
    """A placement of N operations, merged into M coarse ones, on D devices.

    Where a method placed every operation by itself, the coarse graph is the graph (M = N).
    """

    method: str
    objective: str
    devices: tuple[str, ...]  # D labels
    graph: OpGraph  # N operations
    coarse: OpGraph  # M operations, each wholly on one device
    assignment: np.ndarray  # int32 [N]: the coarse operation of each operation
    placement: np.ndarray  # int32 [M]: the device of each coarse operation
    compute_s: np.ndarray  # float64 [N, D]; inf where the device does not support the operation
    memory_bytes: np.ndarray  # float64 [N]: memory of each operation on its device
    predicted: Timeline
    measured: Timeline | None  # None where nothing was measured

    @property
    def op_placement(self) -> np.ndarray:
        """Device of every operation, int32 [N]."""
        return self.placement[self.assignment]

    def span_name(self, span: Span) -> str:
        """Names a span: 'conv1', or 'conv1 … fc (12)' for twelve coarse operations."""
        first, last = (self.coarse.op_names[span.ops[end]] for end in (0, -1))
        return first if len(span.ops) == 1 else f"{first} … {last} ({len(span.ops)})"


def write(path: Path, details: Details) -> None:
    """Writes the details atomically, without the member types of merged operations."""
    data = vars(details).copy()
    for key in ("graph", "coarse"):
        data[key] = {column: getattr(data[key], column) for column in _GRAPH_COLUMNS}
    if details.coarse is details.graph:
        data["coarse"] = None
    for key in ("predicted", "measured"):
        data[key] = data[key] and {"how": data[key].source, "spans": data[key].spans}
    runs.write_json(path, data, indent=None)


def read(path: Path) -> Details | None:
    """Reads the file that `write` wrote, with printable names; None where there is none."""

    def timeline(data: Mapping[str, Any]) -> Timeline:
        spans = (Span(device, tuple(ops), *times) for device, ops, *times in data["spans"])
        return Timeline(tuple(spans), data["how"])

    def parse(data: Mapping[str, Any]) -> Details:
        data = printable.data(data, printable.text)
        graph = opgraph.make_graph(**data["graph"])
        compute_s = np.array(data["compute_s"], np.float64)  # null becomes nan
        return Details(
            method=data["method"],
            objective=data["objective"],
            devices=tuple(data["devices"]),
            graph=graph,
            coarse=opgraph.make_graph(**data["coarse"]) if data["coarse"] else graph,
            assignment=np.array(data["assignment"], np.int32),
            placement=np.array(data["placement"], np.int32),
            compute_s=np.where(np.isnan(compute_s), math.inf, compute_s),
            memory_bytes=np.array(data["memory_bytes"], np.float64),
            predicted=timeline(data["predicted"]),
            measured=data["measured"] and timeline(data["measured"]),
        )

    if not path.exists():
        return None
    return files.read_json(path, {str: object}, parse, remedy="place the model again")


def trace(details: Details) -> dict[str, Any]:
    """Returns a Chrome trace, for Perfetto (ui.perfetto.dev); times are in microseconds.

    The Trace Event Format is described at
    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Predicted and
    measured are a process each, a device is a thread or more, a span is a complete event (`X`), and
    a tensor that crosses is a flow (`s`, `f`) to its first reader on the other device.
    """
    coarse, device = details.coarse, details.placement
    edge_ends = list(zip(coarse.senders.tolist(), coarse.receivers.tolist(), strict=True))
    crossing = np.flatnonzero(device[coarse.senders] != device[coarse.receivers]).tolist()
    timelines = {"predicted": details.predicted, "measured": details.measured}
    events: list[dict[str, Any]] = []
    for pid, (kind, timeline) in enumerate(timelines.items(), 1):
        if timeline is None:
            continue
        spans = timeline.spans
        keys = [(span.device, lane) for span, lane in zip(spans, timeline.lanes(), strict=True)]
        threads = {key: tid for tid, key in enumerate(sorted(set(keys)), 1)}
        names = {("process_name", 0): timeline.heading(kind)}
        for (number, lane), tid in threads.items():
            names["thread_name", tid] = details.devices[number] + (f" ({lane + 1})" if lane else "")
        for (metadata, tid), name in names.items():
            event = {"ph": "M", "name": metadata, "pid": pid, "tid": tid}
            events.append({**event, "args": {"name": name}})
        places = [{"pid": pid, "tid": threads[key]} for key in keys]
        for span, place in zip(spans, places, strict=True):
            times = {"ts": 1e6 * span.start_s, "dur": 1e6 * (span.finish_s - span.start_s)}
            args = {"operations": [coarse.op_names[op] for op in span.ops[:50]]}
            events.append(
                {"ph": "X", "name": details.span_name(span), **place, **times, "args": args}
            )
        runs_in = {op: number for number, span in enumerate(spans) for op in span.ops}
        scheduled = [edge for edge in crossing if runs_in.keys() >= {*edge_ends[edge]}]
        first: dict[tuple[int, int], int] = {}  # by tensor and device: the edge to its first reader
        for edge in sorted(scheduled, key=lambda edge: spans[runs_in[edge_ends[edge][1]]].start_s):
            first.setdefault((int(coarse.tensors[edge]), int(device[edge_ends[edge][1]])), edge)
        for number, edge in enumerate(first.values()):
            writer, reader = (runs_in[end] for end in edge_ends[edge])
            # Viewers do not attach a flow to the end itself.
            leaves_s = 0.99 * spans[writer].finish_s + 0.01 * spans[writer].start_s
            name, size = coarse.op_names[edge_ends[edge][0]], int(coarse.edge_bytes[edge])
            flow = {"cat": "crossing", "name": name, "id": f"{pid}.{number}"}
            start = {"ts": 1e6 * leaves_s, "args": {"bytes": size}}
            events.append({"ph": "s", **flow, **places[writer], **start})
            end = {"ts": 1e6 * spans[reader].start_s, "bp": "e"}
            events.append({"ph": "f", **flow, **places[reader], **end})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
