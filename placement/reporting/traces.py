"""A schedule as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing.

The file is JSON in the Trace Event Format,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Predicted and
measured are a process each, a device is a thread or more, a span is a complete event (`X`), and a
tensor that crosses is a flow (`s`, `f`) from its producer to its first reader on the other device.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from placement.reporting.details import Details


def trace(details: Details) -> dict[str, Any]:
    """Returns the trace as JSON objects."""
    kinds = ["predicted"] if details.measured is None else ["predicted", "measured"]
    events = [event for pid, kind in enumerate(kinds, 1) for event in _process(details, kind, pid)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process(details: Details, kind: str, pid: int) -> Iterator[dict[str, Any]]:
    coarse, device, timeline = details.coarse, details.placement, getattr(details, kind)
    spans = timeline.spans
    keys = [(span.device, lane) for span, lane in zip(spans, timeline.lanes(), strict=True)]
    threads = {key: tid for tid, key in enumerate(sorted(set(keys)), 1)}
    names = {("process_name", 0): timeline.heading(kind)}
    for (number, lane), tid in threads.items():
        names["thread_name", tid] = details.devices[number] + (f" ({lane + 1})" if lane else "")
    for (metadata, tid), name in names.items():
        yield {"ph": "M", "name": metadata, "pid": pid, "tid": tid, "args": {"name": name}}
    places = [{"pid": pid, "tid": threads[key]} for key in keys]  # times are in microseconds
    for span, place in zip(spans, places, strict=True):
        times = {"ts": 1e6 * span.start_s, "dur": 1e6 * (span.finish_s - span.start_s)}
        ops = {"operations": [coarse.op_names[op] for op in span.ops[:50]]}
        yield {"ph": "X", "name": details.span_name(span), **place, **times, "args": ops}
    runs_in = {op: number for number, span in enumerate(spans) for op in span.ops}
    ends = list(zip(coarse.senders.tolist(), coarse.receivers.tolist(), strict=True))
    crossing = np.flatnonzero(device[coarse.senders] != device[coarse.receivers]).tolist()
    scheduled = [edge for edge in crossing if runs_in.keys() >= {*ends[edge]}]
    first: dict[tuple[int, int], int] = {}  # by tensor and device: the edge to its first reader
    for edge in sorted(scheduled, key=lambda edge: spans[runs_in[ends[edge][1]]].start_s):
        first.setdefault((int(coarse.tensors[edge]), int(device[ends[edge][1]])), edge)
    for number, edge in enumerate(first.values()):
        writer, reader = (runs_in[end] for end in ends[edge])
        # Viewers do not attach a flow to the end itself.
        leaves_s = 0.99 * spans[writer].finish_s + 0.01 * spans[writer].start_s
        size = {"bytes": int(coarse.edge_bytes[edge])}
        flow = {"cat": "crossing", "name": coarse.op_names[ends[edge][0]], "id": f"{pid}.{number}"}
        yield {"ph": "s", **flow, **places[writer], "ts": 1e6 * leaves_s, "args": size}
        yield {"ph": "f", **flow, **places[reader], "ts": 1e6 * spans[reader].start_s, "bp": "e"}
