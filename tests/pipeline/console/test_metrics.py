"""The log of searches: several of them, repeated ones and continued ones."""

import numpy as np
import pytest

from placement.pipeline.console import metrics, progress
from placement.types import Solution, Status
from tests.reporting import events


@pytest.fixture(autouse=True)
def everything(monkeypatch):
    """Events are skipped by the clock, which these tests must not depend on."""
    monkeypatch.setattr(metrics, "_EVENT_INTERVAL_S", 0.0)


def record(step: int, **others: float) -> dict[str, float]:
    return {"step": step, "evaluations": 8 * step, "best_s": 1 / step} | others


def search(workdir, method="hsdag:variant=paper", *, first=1, last=3, **others) -> None:
    at = {"step": first - 1, "evaluations": 8 * (first - 1)}
    with metrics.Log(workdir, method, 0, **at) as log:
        for step in range(first, last + 1):
            log.add(record(step, **others), 0.1 * step, np.full(8, 1 / step))


def steps(workdir, method: str) -> list[int]:
    result = metrics.read_metrics(workdir)
    return [r["step"] for r in result if r["method"] == method]


def points(workdir, method: str, run: str) -> list[tuple[int, float]]:
    return events.scalars(workdir / metrics.EVENTS / run, f"{method}/best_s")


def test_records_and_events_agree(tmp_path):
    search(tmp_path, loss=0.5)
    first = metrics.read_metrics(tmp_path)[0]
    assert first == {"method": "hsdag:variant=paper", "seed": 0, "elapsed_s": 0.1} | record(
        1, loss=0.5
    )
    (run,) = (tmp_path / metrics.EVENTS).iterdir()
    assert run.name == "hsdag_variant=paper-seed-0"
    written = events.read(run)
    assert [event.step for event in written] == [8, 16, 24]
    tags = {value.tag.partition("/")[2] for value in written[0].summary.value}
    assert tags == {"elapsed_s", "best_s", "loss", "latency_s"}
    assert points(tmp_path, "hsdag:variant=paper", run.name)[1] == (16, 0.5)


def test_repeated_search_replaces_its_records(tmp_path):
    for method in ("lns", "genetic", "lns"):
        search(tmp_path, method)
    assert steps(tmp_path, "lns") == steps(tmp_path, "genetic") == [1, 2, 3]
    for method in ("lns", "genetic"):
        assert [step for step, _ in points(tmp_path, method, f"{method}-seed-0")] == [8, 16, 24]


def test_continued_search_repeats_no_step(tmp_path):
    search(tmp_path, last=5)
    search(tmp_path, first=4, last=6)
    assert steps(tmp_path, "hsdag:variant=paper") == [1, 2, 3, 4, 5, 6]
    result = points(tmp_path, "hsdag:variant=paper", "hsdag_variant=paper-seed-0")
    assert [step for step, _ in result] == [8, 16, 24, 32, 40, 48]


def test_solvers_log_at_intervals(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    with (
        progress.Display(progress.WARNING).phase("searching lns") as phase,
        metrics.Log(tmp_path, "lns", 0) as log,
    ):
        told = metrics.SolverMetrics(log, phase)
        for step in range(1, 101):
            now[0] += 0.01
            told.observe(64 * step, 1 / step)
        told.finish(Solution(np.zeros(1), 1 / 100, np.nan, Status.FINISHED, 1.0, 6400))
    result = metrics.read_metrics(tmp_path)
    assert 5 <= len(result) <= 7
    assert result[0] == {"method": "lns", "seed": 0, "elapsed_s": 0.01, **result[0]}
    assert (result[0]["step"], result[0]["evaluations"]) == (1, 64)
    assert (result[-1]["step"], result[-1]["evaluations"], result[-1]["best_s"]) == (
        101,
        6400,
        0.01,
    )


def test_silent_solvers_log_nothing(tmp_path):
    with (
        progress.Display(progress.WARNING).phase("searching heft") as phase,
        metrics.Log(tmp_path, "heft", 0) as log,
    ):
        metrics.SolverMetrics(log, phase).finish(
            Solution(np.zeros(1), 2e-3, np.nan, Status.FINISHED, 1.0, 1)
        )
        assert phase.line("ended") == "searching heft: best 2.000 ms; ended"
    assert not list(tmp_path.iterdir())
