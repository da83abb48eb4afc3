"""The audit: its tables on made-up results, and its runs on one small problem."""

import math

import numpy as np
import pytest

from experiments.tables import audit, audit_runs
from experiments.tables.audit import COLD, CONCLUSION_LIMIT, SHORT, Limit, Result
from placement import suite

_LIMIT = "1,000 evaluations"


@pytest.fixture
def store(monkeypatch):
    """Returns a function that puts results in place of the stored ones."""
    readers = audit.read_known, audit.read_scores

    def replace(results):
        monkeypatch.setattr(audit, "read_stored", lambda: results)
        for reader in readers:
            reader.cache_clear()

    yield replace
    for reader in readers:
        reader.cache_clear()


def make_results(method, factor, own_factor=None, limit=_LIMIT, seeds=2):
    """Returns results that are a factor above the best known values, with some noise."""
    rng = np.random.default_rng(0)
    results = []
    for problem in audit.list_problems():
        best_s = suite.best_known(problem).value_s
        for seed in range(seeds):
            noise = math.exp(0.01 * rng.normal())
            values_s = best_s * factor * noise, best_s * (own_factor or factor) * noise
            results.append(Result(problem, method, seed, limit, 1.0, 100, *values_s))
    return results


def test_means_count_starts_and_absences(store):
    absent = make_results("doppler", 1.5, math.inf)
    store(
        [
            *make_results("search", 2.0, limit=SHORT),
            *make_results("hsdag", 1.5, 3.0, limit=SHORT),
            *make_results("search", 1.2),
            *make_results("hsdag", 1.5, 3.0)[1:],  # one seed lacks a problem
            *absent[:-1],
            absent[-1]._replace(own_best_s=1.0),
        ]
    )
    header, rows = audit.read_means((_LIMIT, COLD))
    assert header == ["method", "seeds", _LIMIT, COLD]
    assert [row[:2] for row in rows[1:]] == [["`hsdag`", "1"], ["`search`", "2"]]
    assert float(rows[1][2].split()[0]) == pytest.approx(1.5, rel=0.01)
    assert rows[1][3] == "-"
    assert 1.48 < float(rows[0][2].split()[0]) < 1.52  # the floor is of `hsdag`'s starts
    assert audit._write_mean(audit.read_scores(_LIMIT)["doppler"]) == "no result: 96%"


def test_conclusions_ignore_starts(store):
    names = {name for _, method, others in audit.CONCLUSIONS for name in (method, *others)}
    factors = dict.fromkeys(names, 2.0) | {"hsdag": 1.8, "hierarchical": 2.5}
    factors["hsdag:variant=released"] = math.inf
    results = [make_results(m, 1.0, factor, CONCLUSION_LIMIT) for m, factor in factors.items()]
    first = next(iter(audit.list_problems()))
    absent = {"best_s": math.inf, "own_best_s": math.inf}
    results = [r for some in results for r in some]
    store(
        [r._replace(**absent) if (r.problem, r.method) == (first, "single") else r for r in results]
    )
    rows = {row[1]: row[2:] for row in audit.read_conclusions()[1]}
    verdicts = {conclusion: row[-1] for conclusion, row in rows.items()}
    num_problems = len(audit.list_problems())
    assert rows["`hsdag` is better than `single`"][::3] == [str(num_problems - 1), "holds"]
    assert rows["`hsdag:variant=released` is better than `placeto`"] == ["0", "-", "-", "undecided"]
    assert verdicts["`hsdag` is better than `placeto`"] == "holds"
    assert verdicts["`hierarchical` is better than `scotch`"] == "does not"
    assert verdicts["`placeto` is better than `colocrl`"] == "undecided"


def test_runs_resume_and_are_stored(store, monkeypatch, tmp_path):
    problem, family = next(iter(audit.list_problems().items()))
    monkeypatch.setattr(audit, "METHODS", ("heft", "lns"))
    monkeypatch.setattr(audit, "list_problems", lambda: {problem: family})
    monkeypatch.setattr(audit, "STORED", tmp_path / "stored.csv.gz")
    monkeypatch.setattr(audit_runs, "_PHASES", (((0, 1), ("200 evaluations", COLD)), ((), ())))
    monkeypatch.setitem(audit.LIMITS, COLD, Limit(COLD, 0.5))
    store([])
    audit_runs.run(tmp_path, 0, 2)
    audit_runs.run(tmp_path, 1, 2)
    parts = [tmp_path / f"{part}.csv" for part in range(2)]
    heft, lns = (audit.read(path.read_text().splitlines()) for path in parts)
    assert {result.limit for result in heft} == {*audit.LIMITS}  # one run serves all limits
    assert {result[2:4] for result in lns} == {
        (s, x) for s in (0, 1) for x in (COLD, "200 evaluations")
    }
    assert all(result.evaluations <= 200 for result in lns if result.limit == "200 evaluations")
    assert min(lns, key=lambda r: r.best_s).best_s < heft[0].best_s
    # A process that was killed has left half a line.
    parts[1].write_text(parts[1].read_text()[:-5])
    audit_runs.run(tmp_path, 1, 2)
    audit_runs.store(tmp_path)
    assert len(audit_runs._read_all(tmp_path)) == len(heft) + len(lns)


@pytest.mark.nightly
def test_learned_runs_have_every_step():
    problem = suite.load(next(iter(audit.list_problems())))
    points = audit_runs.run_curve("hsdag", problem, 0, Limit("", 60.0, 500))
    assert points[-1].evaluations == 500
    assert points[-1].best_s <= points[-1].own_best_s < math.inf
    assert math.isinf(points[1].own_best_s)  # the starts
    steps = np.diff([point.evaluations for point in points if np.isfinite(point.own_best_s)])
    assert steps.max() == 160  # an update of HSDAG
    assert (np.diff([point.best_s for point in points[1:]]) <= 0).all()
