"""The log of searches: several of them, repeated ones and continued ones."""

import numpy as np
import pytest

from placement.pipeline.console import metrics, progress
from placement.types import Solution, Status
from tests.reporting import events


@pytest.fixture(autouse=True)
def every_event(monkeypatch):
    """Events are skipped by the clock, which these tests must not depend on."""
    monkeypatch.setattr(metrics, "_EVENT_INTERVAL_S", 0.0)


def search(workdir, method, *, first=1, last=3) -> None:
    checkpoint = {"step": first - 1, "evaluations": 8 * (first - 1)}
    with metrics.Log(workdir, method, 0, **checkpoint) as log:
        for step in range(first, last + 1):
            record = {"step": step, "evaluations": 8 * step, "best_s": 1 / step, "loss": 0.5}
            log.add(record, 0.1 * step, np.full(8, 1 / step))


def read(workdir, method: str, run: str) -> tuple[list[int], list[tuple[int, float]]]:
    """Returns the steps of the records, and evaluations and latencies of the events."""
    steps = [r["step"] for r in metrics.read_metrics(workdir) if r["method"] == method]
    return steps, events.scalars(workdir / metrics.EVENTS / run, f"{method}/best_s")


def test_records_and_events_agree(tmp_path):
    search(tmp_path, "hsdag:variant=released")
    assert metrics.read_metrics(tmp_path)[0] == {
        **{"method": "hsdag:variant=released", "seed": 0, "step": 1, "evaluations": 8},
        **{"elapsed_s": 0.1, "best_s": 1.0, "loss": 0.5},
    }
    event = events.read(tmp_path / metrics.EVENTS / "hsdag_variant=released-seed-0")[0]
    tags = {value.tag.partition("/")[2] for value in event.summary.value}
    assert tags == {"elapsed_s", "best_s", "loss", "latency_s"}


def test_searches_repeat_and_continue(tmp_path):
    for method, first, last in (("lns", 1, 3), ("hsdag", 1, 5), ("lns", 1, 2), ("hsdag", 4, 6)):
        search(tmp_path, method, first=first, last=last)
    assert read(tmp_path, "lns", "lns-seed-0") == ([1, 2], [(8, 1.0), (16, 0.5)])
    steps, points = read(tmp_path, "hsdag", "hsdag-seed-0")
    assert steps == [1, 2, 3, 4, 5, 6]
    assert [evaluations for evaluations, _ in points] == [8, 16, 24, 32, 40, 48]


def test_solvers_log_at_intervals(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    with (
        progress.Display(progress.WARNING).phase("searching lns") as phase,
        metrics.Log(tmp_path, "lns", 0) as log,
    ):
        silent = metrics.SolverMetrics(log, phase)
        silent.finish(Solution(np.zeros(1), 2e-3, np.nan, Status.FINISHED, 1.0, 1))
        assert phase.line("ended") == "searching lns: best 2.000 ms; ended"
        solver = metrics.SolverMetrics(log, phase)
        for step in range(1, 101):
            now[0] += 0.01
            solver.observe(64 * step, 1 / step)
        solver.finish(Solution(np.zeros(1), 1 / 100, np.nan, Status.FINISHED, 1.0, 6400))
    records = metrics.read_metrics(tmp_path)
    assert 5 <= len(records) <= 7
    assert (records[0]["step"], records[0]["elapsed_s"]) == (1, 0.01)
    last = records[-1]
    assert (last["step"], last["evaluations"], last["best_s"]) == (101, 6400, 0.01)
