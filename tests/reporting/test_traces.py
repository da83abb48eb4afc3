import dataclasses
import json

import pytest

from placement.reporting import runs, traces
from tests.reporting import drawn


def _events(trace, phase, pid=None):
    found = [event for event in trace["traceEvents"] if event["ph"] == phase]
    return [event for event in found if pid in (None, event["pid"])]


def _names(trace, kind):
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in _events(trace, "M")
        if event["name"] == kind
    }


def test_processes_are_predicted_and_measured_and_threads_devices():
    trace = traces.trace(drawn.diamond())
    assert _names(trace, "process_name") == {
        (1, 0): "predicted (simulated)",
        (2, 0): "measured, the median of 9 inferences",
    }
    cpu, gpu = "CPU [f32, 1 thread, host]", "GPU.0 [f16]"
    threads = {(1, 1): cpu, (1, 2): gpu, (2, 1): cpu, (2, 2): f"{cpu} (2)", (2, 3): gpu}
    assert _names(trace, "thread_name") == threads


def test_spans_are_complete_events_in_microseconds():
    trace = traces.trace(drawn.diamond())
    first, second, *_ = _events(trace, "X", 1)
    assert first["name"] == "op0"
    assert (first["ts"], first["dur"], first["tid"]) == (0, pytest.approx(1000), 1)
    assert (second["ts"], second["dur"], second["tid"]) == (1500, pytest.approx(2000), 2)
    args = {"operations": 1, "names": ["op1"], "compute_us": pytest.approx(2000)}
    assert second["args"] == args
    assert len(_events(trace, "X", 2)) == 4


def test_flows_lead_from_the_producer_to_the_first_reader():
    trace = traces.trace(drawn.diamond())
    starts, ends = _events(trace, "s", 1), _events(trace, "f", 1)
    assert [(event["name"], event["args"]["bytes"]) for event in starts] == [
        ("op0", 10),
        ("op1", 30),
    ]
    assert [event["tid"] for event in starts] == [1, 2]
    assert [event["tid"] for event in ends] == [2, 1]
    assert [event["ts"] for event in ends] == pytest.approx([1500, 4000])
    assert all(event["bp"] == "e" for event in ends)


def test_a_large_trace_is_consistent(tmp_path):
    details = drawn.large(1_000)
    runs.write_json(tmp_path / "trace.json", traces.trace(details), indent=None)
    trace = json.loads((tmp_path / "trace.json").read_text())
    spans = _events(trace, "X")
    assert len(spans) == len(details.predicted.spans)
    starts, ends = ({event["id"]: event for event in _events(trace, ph)} for ph in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) == len(_events(trace, "s"))
    coarse, device = details.coarse, details.placement
    crossing = {
        (int(tensor), int(device[receiver]))
        for sender, receiver, tensor in zip(
            coarse.senders, coarse.receivers, coarse.tensors, strict=True
        )
        if device[sender] != device[receiver]
    }
    assert len(starts) == len(crossing)
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"]
        for event in (start, end):  # each belongs to a span of its thread
            around = [s for s in spans if s["tid"] == event["tid"] and s["ts"] <= event["ts"]]
            assert any(event["ts"] < s["ts"] + s["dur"] for s in around)


def test_what_was_not_scheduled_has_no_flow():
    details = drawn.diamond()
    partly = details.measured.spans[:1]
    measured = dataclasses.replace(details.measured, spans=partly)
    trace = traces.trace(dataclasses.replace(details, measured=measured))
    assert len(_events(trace, "X", 2)) == 1
    assert not _events(trace, "s", 2)
