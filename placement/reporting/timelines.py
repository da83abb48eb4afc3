"""Helpers of drawings and traces of a schedule: lanes, names, busy times."""

from collections.abc import Sequence

import numpy as np

from placement.reporting.details import Details, Timeline
from placement.types import Span

_ROUNDING = 1e-9  # share of the latency by which successive spans may overlap


def latency_s(timeline: Timeline) -> float:
    """Returns when the last span ends; the first one begins at 0 or later."""
    return max((span.finish_s for span in timeline.spans), default=0.0)


def heading(kind: str, timeline: Timeline) -> str:
    """Returns a heading such as 'predicted (simulated)'; `kind` is 'predicted' or 'measured'."""
    return timeline.source if timeline.source.startswith(kind) else f"{kind} ({timeline.source})"


def lanes(timeline: Timeline) -> list[int]:
    """Assigns every span a lane of its device, counted from 0; spans of a lane do not overlap.

    Each span takes the first free lane, which needs the fewest lanes.
    """
    slack_s = _ROUNDING * latency_s(timeline)
    free_s: dict[int, list[float]] = {}  # by device, when each lane is free
    assigned = [0] * len(timeline.spans)
    for number in sorted(range(len(assigned)), key=lambda n: timeline.spans[n].start_s):
        span = timeline.spans[number]
        ends = free_s.setdefault(span.device, [])
        free = (lane for lane, end in enumerate(ends) if end <= span.start_s + slack_s)
        assigned[number] = next(free, len(ends))
        ends[assigned[number] : assigned[number] + 1] = [span.finish_s]
    return assigned


def busy_s(spans: Sequence[Span], num_devices: int) -> np.ndarray:
    """Returns the time for which each device is busy, float64 [D]."""
    busy, busy_until_s = np.zeros(num_devices), np.full(num_devices, -np.inf)
    for span in sorted(spans, key=lambda span: span.start_s):
        busy[span.device] += max(0.0, span.finish_s - max(span.start_s, busy_until_s[span.device]))
        busy_until_s[span.device] = max(busy_until_s[span.device], span.finish_s)
    return busy


def name(details: Details, span: Span) -> str:
    """Returns the name of a span: 'conv1', or 'conv1 … fc (12)' for twelve coarse operations."""
    first, last = (details.coarse.op_names[span.ops[end]] for end in (0, -1))
    return first if len(span.ops) == 1 else f"{first} … {last} ({len(span.ops)})"
