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
from placement.reporting import printable as printable_lib
from placement.reporting import runs
from placement.types import OpGraph, Span

FILE = "details.json"
# No page or figure of a larger graph is readable, and writing the file takes longer than searching.
MOST_OPS = 200_000
_ROUNDING = 1e-9  # share of the latency by which successive spans of a lane may overlap
_GRAPH_ARRAYS = (
    *("senders", "receivers", "edge_bytes", "tensors"),
    *("flops", "weight_bytes", "colocation", "backward"),
)
_TIMELINE = {"how": str, "spans": [[object]]}
_GRAPH = {"name": str, "op_names": [str], "op_types": [str], "output_shapes": [[int]]}
_GRAPH |= {key: [object] for key in _GRAPH_ARRAYS}
_SCHEMA = {
    **dict.fromkeys(("method", "objective"), str),
    "devices": [str],
    "graph": _GRAPH,
    "coarse": (_GRAPH, None),
    **{key: [object] for key in ("assignment", "placement", "compute_s", "memory_bytes")},
    **{key: [files.NUMBER] for key in ("capacity_bytes", "compute_load_s", "transfer_load_s")},
    "predicted": _TIMELINE,
    "measured": (_TIMELINE, None),
}


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
    capacity_bytes: np.ndarray  # float64 [D]; inf where unlimited
    compute_load_s: np.ndarray  # float64 [D]: each device's computing time for one request
    transfer_load_s: np.ndarray  # float64 [D]: its transfers, as `max_load` counts them
    predicted: Timeline
    measured: Timeline | None  # None where nothing was measured

    @property
    def op_placement(self) -> np.ndarray:
        """Device of every operation, int32 [N]."""
        return self.placement[self.assignment]

    @property
    def op_compute_s(self) -> np.ndarray:
        """Computing time of every operation on its device, float64 [N]."""
        return self.compute_s[np.arange(self.graph.num_ops), self.op_placement]

    @property
    def num_crossings(self) -> int:
        """Number of transfers: one for each tensor and other device that reads it."""
        coarse = self.coarse
        sends, reads = self.placement[coarse.senders], self.placement[coarse.receivers]
        pairs = np.stack([coarse.tensors, reads])[:, sends != reads]
        return np.unique(pairs, axis=1).shape[1]

    @property
    def load_bytes(self) -> np.ndarray:
        """Memory that the operations of each device occupy, float64 [D]."""
        return np.bincount(self.op_placement, self.memory_bytes, minlength=len(self.devices))

    def span_name(self, span: Span) -> str:
        """Names a span: 'conv1', or 'conv1 … fc (12)' for twelve coarse operations."""
        first, last = (self.coarse.op_names[span.ops[end]] for end in (0, -1))
        return first if len(span.ops) == 1 else f"{first} … {last} ({len(span.ops)})"


def write(path: Path, details: Details) -> None:
    """Writes the details atomically, without the member types of merged operations.

    Raises:
      OSError: the file cannot be written; the error names it.
    """
    runs.write_json(path, _to_json(details), indent=None)


def read(path: Path) -> Details | None:
    """Reads the file that `write` wrote; returns None where there is none.

    Raises:
      UserError: the file is not a valid details.json.
    """
    if not path.exists():
        return None
    return files.read_json(path, _SCHEMA, _from_json, remedy="place the model again")


def printable(details: Details) -> Details:
    """Returns the details with printable names."""
    graph, coarse = map(_printable, (details.graph, details.coarse))
    return dataclasses.replace(
        details, graph=graph, coarse=coarse if details.coarse is not details.graph else graph
    )


def _printable(graph: OpGraph) -> OpGraph:
    return dataclasses.replace(
        graph,
        name=printable_lib.text(graph.name),
        op_names=tuple(map(printable_lib.text, graph.op_names)),
        op_types=tuple(map(printable_lib.text, graph.op_types)),
    )


def _to_json(details: Details) -> dict[str, Any]:
    data = {field.name: getattr(details, field.name) for field in dataclasses.fields(details)}
    merged = details.coarse is not details.graph
    return data | {
        "graph": _graph_to_json(details.graph),
        "coarse": _graph_to_json(details.coarse) if merged else None,
        "predicted": _timeline_to_json(details.predicted),
        "measured": details.measured and _timeline_to_json(details.measured),
    }


def _from_json(data: Mapping[str, Any]) -> Details:
    graph = opgraph.make_graph(**data["graph"])
    details = Details(
        method=data["method"],
        objective=data["objective"],
        devices=tuple(data["devices"]),
        graph=graph,
        coarse=opgraph.make_graph(**data["coarse"]) if data["coarse"] else graph,
        assignment=np.array(data["assignment"], np.int32),
        placement=np.array(data["placement"], np.int32),
        compute_s=_numbers(data["compute_s"]).reshape(-1, len(data["devices"])),
        memory_bytes=_numbers(data["memory_bytes"]),
        capacity_bytes=_numbers(data["capacity_bytes"]),
        compute_load_s=_numbers(data["compute_load_s"]),
        transfer_load_s=_numbers(data["transfer_load_s"]),
        predicted=_timeline_from_json(data["predicted"]),
        measured=data["measured"] and _timeline_from_json(data["measured"]),
    )
    _check_sizes(details)
    return details


def _check_sizes(details: Details) -> None:
    """Raises ValueError for arrays of wrong length and for indices that are out of range."""
    num_ops, num_coarse = details.graph.num_ops, details.coarse.num_ops
    num_devices = len(details.devices)
    for name, length in (
        *(("assignment", num_ops), ("compute_s", num_ops), ("memory_bytes", num_ops)),
        *(("placement", num_coarse), ("capacity_bytes", num_devices)),
        *(("compute_load_s", num_devices), ("transfer_load_s", num_devices)),
    ):
        if len(getattr(details, name)) != length:
            raise ValueError(f"{name} has {len(getattr(details, name))} entries, not {length}")
    timelines = filter(None, (details.predicted, details.measured))
    spans = [span for timeline in timelines for span in timeline.spans]
    for name, indices, count in (
        ("assignment", details.assignment, num_coarse),
        ("placement", details.placement, num_devices),
        ("device of a span", [span.device for span in spans], num_devices),
        ("operations of spans", [op for span in spans for op in span.ops], num_coarse),
    ):
        array = np.asarray(indices)
        if array.size and not (array.min() >= 0 and array.max() < count):
            raise ValueError(f"{name} has an index that is not from 0 to {count - 1}")


def _graph_to_json(graph: OpGraph) -> dict[str, Any]:
    columns = ("name", "op_names", "op_types", "member_types", "output_shapes", *_GRAPH_ARRAYS)
    return {column: getattr(graph, column) for column in columns}


def _timeline_to_json(timeline: Timeline) -> dict[str, Any]:
    return {"how": timeline.source, "spans": timeline.spans}


def _timeline_from_json(data: Mapping[str, Any]) -> Timeline:
    spans = (
        Span(device, tuple(ops), start, finish) for device, ops, start, finish in data["spans"]
    )
    return Timeline(tuple(spans), data["how"])


def _numbers(values: Any) -> np.ndarray:
    """Returns a float64 array, with inf for null."""
    array = np.array(values, np.float64)  # null becomes nan
    return np.where(np.isnan(array), math.inf, array)
