"""A schedule as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing.

The file is JSON in the Trace Event Format,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Predicted and
measured are a process each; a device is a thread, with further threads where its spans overlap. A
span is a complete event (`X`); a tensor that crosses is a flow (`s`, `f`) from its producer to the
first operation that reads it on the other device. Times are microseconds.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from placement.reporting.details import Details, Timeline

_US = 1e6


def trace(details: Details) -> dict[str, Any]:
    """Returns the trace as JSON objects."""
    events = list(_process(details, details.predicted, "predicted", 1))
    if details.measured is not None:
        events += _process(details, details.measured, "measured", 2)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process(details: Details, schedule: Timeline, kind: str, pid: int) -> Iterator[dict[str, Any]]:
    coarse, device, spans = details.coarse, details.placement, schedule.spans
    keys = [(span.device, lane) for span, lane in zip(spans, schedule.lanes(), strict=True)]
    names: dict[str, list[tuple[int, str]]] = {
        "process_name": [(0, schedule.heading(kind))],
        "thread_name": [],
    }
    threads = {key: tid for tid, key in enumerate(sorted(set(keys)), 1)}
    for (number, lane), tid in threads.items():
        label = details.devices[number] + (f" ({lane + 1})" if lane else "")
        names["thread_name"].append((tid, label))
    for metadata, entries in names.items():
        for tid, name in entries:
            yield {"ph": "M", "name": metadata, "pid": pid, "tid": tid, "args": {"name": name}}
    places = [{"pid": pid, "tid": threads[key]} for key in keys]
    for span, place in zip(spans, places, strict=True):
        times = {"ts": span.start_s * _US, "dur": (span.finish_s - span.start_s) * _US}
        ops = {"operations": [coarse.op_names[op] for op in span.ops[:50]]}
        yield {"ph": "X", "name": details.span_name(span), **place, **times, "args": ops}
    runs_in = {op: number for number, span in enumerate(spans) for op in span.ops}
    first: dict[tuple[int, int], tuple[int, int]] = {}  # edge, and index of the span that reads it
    for edge in np.flatnonzero(device[coarse.senders] != device[coarse.receivers]).tolist():
        sender, receiver = int(coarse.senders[edge]), int(coarse.receivers[edge])
        if sender in runs_in and receiver in runs_in:
            key, reader = (int(coarse.tensors[edge]), int(device[receiver])), runs_in[receiver]
            if key not in first or spans[reader].start_s < spans[first[key][1]].start_s:
                first[key] = edge, reader
    for number, (edge, reader) in enumerate(first.values()):
        writer = runs_in[int(coarse.senders[edge])]
        start_s, finish_s = spans[writer].start_s, spans[writer].finish_s
        name = coarse.op_names[coarse.senders[edge]]
        flow = {"cat": "crossing", "name": name, "id": f"{pid}.{number}"}
        size = {"args": {"bytes": int(coarse.edge_bytes[edge])}}
        # Viewers do not attach a flow to the end itself.
        leaves_s = finish_s - 0.01 * (finish_s - start_s)
        yield {"ph": "s", **flow, **places[writer], "ts": leaves_s * _US, **size}
        yield {"ph": "f", **flow, **places[reader], "ts": spans[reader].start_s * _US, "bp": "e"}
