import pytest

from placement.reporting import details
from tests.reporting import drawn


def find_events(trace, phase, pid=None):
    events = [event for event in trace["traceEvents"] if event["ph"] == phase]
    return [event for event in events if pid in (None, event["pid"])]


def test_devices_are_threads():
    trace = details.trace(drawn.diamond())
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in find_events(trace, "M")}
    cpu, gpu = "CPU [f32, 1 thread, host]", "GPU.0 [f16]"
    assert names == {
        **{(1, 0): "predicted (simulated)", (1, 1): cpu, (1, 2): gpu},
        **{(2, 0): "measured, the median of 9 inferences", (2, 1): cpu, (2, 2): f"{cpu} (2)"},
        (2, 3): gpu,
    }


def test_spans_and_flows():
    """Times are in microseconds; a flow leads to the first reader on another device."""
    trace = details.trace(drawn.diamond())
    first, second, *_ = find_events(trace, "X", 1)
    assert first["name"] == "op0"
    assert (first["ts"], first["dur"], first["tid"]) == (0, pytest.approx(1000), 1)
    assert (second["ts"], second["dur"], second["tid"]) == (1500, pytest.approx(2000), 2)
    assert second["args"] == {"operations": ["op1"]}
    starts, ends = find_events(trace, "s", 1), find_events(trace, "f", 1)
    assert [(e["name"], e["args"]["bytes"]) for e in starts] == [("op0", 10), ("op1", 30)]
    assert [event["tid"] for event in starts] == [1, 2]
    assert [event["tid"] for event in ends] == [2, 1]
    assert [event["ts"] for event in ends] == pytest.approx([1500, 4000])
