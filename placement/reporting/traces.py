"""A schedule as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing.

The file is JSON in the Trace Event Format,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Predicted and
measured are a process each; a device is a thread, with further threads where its spans overlap. A
span is a complete event (`X`); a tensor that crosses is a flow (`s`, `f`) from its producer to the
first operation that reads it on the other device. Times are microseconds.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from placement.reporting.details import Details, Timeline
from placement.types import Span

_US = 1e6

_Event = dict[str, Any]


def trace(details: Details) -> dict[str, Any]:
    """Returns the trace as JSON objects."""
    events = list(_process(details, details.predicted, "predicted", 1))
    if details.measured is not None:
        events += _process(details, details.measured, "measured", 2)
    properties = {
        "graph": details.graph.name,
        "method": details.method,
        "objective": details.objective,
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": properties}


def _process(details: Details, schedule: Timeline, kind: str, pid: int) -> Iterator[_Event]:
    lanes = schedule.lanes()
    keys = [(span.device, lane) for span, lane in zip(schedule.spans, lanes, strict=True)]
    idle = [(device, 0) for device in range(len(details.devices))]
    threads = {key: tid for tid, key in enumerate(sorted({*keys, *idle}), 1)}
    yield _metadata("process_name", pid, 0, name=schedule.heading(kind))
    yield _metadata("process_sort_index", pid, 0, sort_index=pid)
    for (device, lane), tid in threads.items():
        label = details.devices[device] + (f" ({lane + 1})" if lane else "")
        yield _metadata("thread_name", pid, tid, name=label)
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)
    places = [{"pid": pid, "tid": threads[key]} for key in keys]
    counts = np.bincount(details.assignment)
    compute_s = np.bincount(details.assignment, details.op_compute_s)
    for span, place in zip(schedule.spans, places, strict=True):
        ops = list(span.ops)
        arguments = {
            "operations": int(counts[ops].sum()),
            "names": [details.coarse.op_names[op] for op in ops[:50]],
            "compute_us": float(compute_s[ops].sum() * _US),
        }
        times = {"ts": span.start_s * _US, "dur": (span.finish_s - span.start_s) * _US}
        name = details.span_name(span)
        yield {"ph": "X", "cat": "compute", "name": name, **place, **times, "args": arguments}
    yield from _flows(details, schedule.spans, places, pid)


def _metadata(kind: str, pid: int, tid: int, **arguments: Any) -> _Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": arguments}


def _flows(
    details: Details, spans: Sequence[Span], places: Sequence[_Event], pid: int
) -> Iterator[_Event]:
    """Yields two events for each transfer between operations that both run."""
    coarse, device = details.coarse, details.placement
    runs_in = {op: number for number, span in enumerate(spans) for op in span.ops}
    first: dict[tuple[int, int], tuple[int, int]] = {}  # edge, and index of the span that reads it
    for edge in np.flatnonzero(device[coarse.senders] != device[coarse.receivers]).tolist():
        sender, receiver = int(coarse.senders[edge]), int(coarse.receivers[edge])
        if sender not in runs_in or receiver not in runs_in:
            continue
        key, reader = (int(coarse.tensors[edge]), int(device[receiver])), runs_in[receiver]
        if key not in first or spans[reader].start_s < spans[first[key][1]].start_s:
            first[key] = edge, reader
    for number, (edge, reader) in enumerate(first.values()):
        writer = runs_in[int(coarse.senders[edge])]
        start_s, finish_s = spans[writer].start_s, spans[writer].finish_s
        # Viewers do not attach a flow to the end itself.
        leaves_s = finish_s - 0.01 * (finish_s - start_s)
        name = coarse.op_names[coarse.senders[edge]]
        flow = {"cat": "crossing", "name": name, "id": f"{pid}.{number}"}
        size = {"args": {"bytes": int(coarse.edge_bytes[edge])}}
        yield {"ph": "s", **flow, **places[writer], "ts": leaves_s * _US, **size}
        enters = {"ts": spans[reader].start_s * _US, "bp": "e"}
        yield {"ph": "f", **flow, **places[reader], **enters}
