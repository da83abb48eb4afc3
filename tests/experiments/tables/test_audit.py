"""The audit: its tables on made-up runs, and its runs on one small problem."""

import math

import pytest

from experiments.tables import audit, audit_runs
from experiments.tables.audit import Point, Run
from placement import methods, suite

_PROBLEM = "fork_join_100-makespan"


def _run(method, seed, value_s, budget=0, compile_s=0.0):
    points = (Point(1.0, 100, 2 * value_s), Point(4.0, 400, value_s))
    return Run(_PROBLEM, method, seed, budget, 10, compile_s, points)


def _cell(method, *values_s, **fields):
    return [
        _run(method, seed, value_s, budget, **fields)
        for seed, value_s in enumerate(values_s)
        for budget in (0, audit.EVALUATIONS)
    ]


@pytest.fixture
def store(monkeypatch):
    """Returns a function that puts runs in place of the stored ones."""

    def replace(runs):
        monkeypatch.setattr(audit, "read_stored", lambda: runs)
        audit.evaluate.cache_clear()
        audit.read_summary.cache_clear()

    yield replace
    audit.evaluate.cache_clear()
    audit.read_summary.cache_clear()


def test_runs_are_read_as_written(tmp_path):
    written = [*_cell("search", 1.0, 2.0), *_cell("heft", math.inf)]
    for name in ("a.csv.gz", "b.csv.gz"):
        audit.write(written, tmp_path / name)
        assert audit.read(tmp_path / name) == written
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_scores_are_over_best_known(store):
    best_s = suite.best_known(_PROBLEM, audit.VERSION).value_s
    store(
        [
            *_cell("single", 4 * best_s),
            *_cell("search", best_s, compile_s=audit.COLD_S - 2),  # 2 s of its curve count as cold
            *_cell("hsdag", best_s, compile_s=audit.COLD_S + 1),  # still compiles when cold
            *_cell("lns", best_s, compile_s=audit.COLD_S + 1),
            _run("lns", 0, 3 * best_s, audit.COLD),  # replaces the warm run when cold
            *_cell("heft", math.inf),
        ]
    )
    scores = audit.evaluate((_PROBLEM,)).scores
    points = {m: [seeds.tolist() for (seeds,) in by_point] for m, by_point in scores.items()}
    assert points["search"] == [[1], [1], [2]]
    assert points["hsdag"] == [[1], [1], [4]]
    assert points["lns"] == [[1], [1], [3]]
    assert points["heft"] == [[4], [4], [4]]


def test_curves_keep_improvements_and_end():
    problem = suite.load(_PROBLEM, audit.VERSION)
    points, _ = audit_runs.run_curve(
        "lns", methods.find("lns", "makespan"), problem, 0, 10.0, budget=300, stop_after=200
    )
    values_s = [point.best_s for point in points[:-1]]
    assert values_s == sorted({*values_s}, reverse=True)
    assert points[-1].best_s <= values_s[-1]
    assert 200 <= points[-1].evaluations <= 300
