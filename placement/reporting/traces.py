"""A schedule as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing.

The file is JSON in the Trace Event Format,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Predicted and
measured are a process each, a device is a thread or more, a span is a complete event (`X`), and a
tensor that crosses is a flow (`s`, `f`) from its producer to its first reader on the other device.
"""

from typing import Any

import numpy as np

from placement.reporting.details import Details


def trace(details: Details) -> dict[str, Any]:
    """Returns the trace as JSON objects; times are in microseconds."""
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
