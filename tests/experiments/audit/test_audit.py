"""The audit: its runs, its tables and what they say, on made-up runs and on one small problem."""

import gzip
import math
import time
from collections import Counter

import numpy as np
import pytest

from experiments.audit import __main__ as audit
from experiments.audit import curves, runs, tables
from experiments.audit.curves import Point
from experiments.audit.runs import Run
from placement import methods, suite
from placement.errors import UserError
from placement.types import Solution

_PROBLEM = "fork_join_100-makespan"


def _run(method, seed, value_s, budget=0, compile_s=0.0, problem=_PROBLEM):
    points = (Point(1.0, 100, 2 * value_s), Point(4.0, 400, value_s))
    return Run(problem, method, seed, budget, 10, compile_s, points)


def _cell(method, *values_s, **fields):
    return [
        _run(method, seed, value_s, budget, **fields)
        for seed, value_s in enumerate(values_s)
        for budget in (0, tables.EVALUATIONS)
    ]


def test_runs_are_read_as_written(tmp_path):
    written = [*_cell("search", 1.0, 2.0), *_cell("heft", math.inf)]
    runs.append(written[:2], tmp_path / "runs.csv")
    runs.append(written[2:], tmp_path / "runs.csv")
    runs.store(written, tmp_path / "runs.csv.gz")
    for name in ("runs.csv", "runs.csv.gz"):
        assert runs.read(tmp_path / name) == written


def test_equal_runs_make_equal_files(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        runs.store(_cell("search", 1.0), tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize("damage", ["columns", "cut", "text", "numbers"])
def test_another_or_a_damaged_table_is_refused(damage, tmp_path):
    runs.store(_cell("search", 1.0), tmp_path / "runs.csv.gz")
    whole = (tmp_path / "runs.csv.gz").read_bytes()
    contents = {
        "columns": gzip.compress(b"a,b\n1,2\n"),
        "cut": whole[:-20],
        "text": b"problem",
        "numbers": gzip.compress(gzip.decompress(whole).replace(b"400", b"many")),
    }
    (tmp_path / "runs.csv.gz").write_bytes(contents[damage])
    with pytest.raises(UserError, match="is no table of runs"):
        runs.read(tmp_path / "runs.csv.gz")


def test_a_curve_is_the_best_so_far():
    points = Point(1.0, 10, 3.0), Point(2.0, 20, 2.0), Point(9.0, 90, 2.0)
    assert curves.best_until(points) == 2.0
    assert curves.best_until(points, 1.5) == 3.0
    assert curves.best_until(points, 0.5) == math.inf


def test_a_curve_keeps_improvements_and_the_end():
    problem = suite.load(_PROBLEM)
    curve = curves.run(
        "lns", methods.get_find("lns"), problem, 0, seconds=10.0, budget=300, stop_after=200
    )
    values_s = [point.best_s for point in curve.points[:-1]]
    assert values_s == sorted(values_s, reverse=True)
    assert len(set(values_s)) == len(values_s)
    assert curve.points[-1].best_s == pytest.approx(curve.solution.value_s)
    assert curve.points[-1].evaluations >= curve.solution.evaluations


def test_scores_are_over_the_best_known_value_at_each_point():
    best_s = suite.best_known(_PROBLEM).value_s
    stored = [
        *_cell("single", 4 * best_s),
        *_cell("search", best_s, compile_s=tables.COLD_S - 2),  # 2 s of its curve count when cold
        *_cell("hsdag", best_s, compile_s=tables.COLD_S + 1),  # still compiles when cold
    ]
    results = tables.evaluate(stored, [_PROBLEM])
    np.testing.assert_allclose(results.scores["search", _PROBLEM], [[1], [1], [2]])
    np.testing.assert_allclose(results.scores["hsdag", _PROBLEM], [[1], [1], [4]])


def test_runs_beyond_the_budget_are_named():
    over = _run("cpsat", 0, 1.0, tables.EVALUATIONS)._replace(points=(Point(1.0, 5_543, 1.0),))
    stored = [*_cell("single", 1.0), *_cell("lns", 1.0), over]
    (sentence,) = tables.describe_excess(stored)
    assert sentence.endswith("exceed the budget of 1,000 evaluations: `cpsat` (5,543 to 5,543).")
    assert tables.describe_excess(stored[:-1]) == []


def test_a_run_without_compiled_programs_is_the_cold_score():
    best_s = suite.best_known(_PROBLEM).value_s
    stored = [
        *_cell("single", 4 * best_s),
        *_cell("search", best_s, compile_s=tables.COLD_S + 1),
        _run("search", 0, 3 * best_s, runs.COLD),
    ]
    results = tables.evaluate(stored, [_PROBLEM])
    np.testing.assert_allclose(results.scores["search", _PROBLEM], [[1], [1], [3]])
    stored += [*_cell("hsdag", 2 * best_s), *_cell("lns", 2 * best_s)]
    header, rows = tables.make_tables(stored)["audit"]
    assert rows[0][0] == "`search`"
    assert float(rows[0][header.index("s to compile")]) == tables.COLD_S + 1


def test_more_seeds_may_have_a_budget_than_a_time_limit():
    best_s = suite.best_known(_PROBLEM).value_s
    more = [_run("giph", seed, best_s, tables.EVALUATIONS) for seed in range(5, 10)]
    stored = [
        *_cell("single", 4 * best_s),
        *_cell("hsdag", *[2 * best_s] * 5),
        *(*_cell("giph", *[3 * best_s] * 5), *more),
        *_cell("lns", best_s),
    ]
    results = tables.evaluate(stored, [_PROBLEM])
    assert [len(results.at("giph", point)[0]) for point in range(3)] == [10, 5, 5]
    assert "`hsdag` is undecided against `giph`" in tables.make_sentences(stored)[1]
    header, rows = tables.make_tables(stored)["audit"]
    seeds = {row[0]: row[header.index("seeds")] for row in rows}
    assert (seeds["`giph`"], seeds["`hsdag`"], seeds["`lns`"]) == ("10, 5, 5", "5", "1")


def test_stored_runs_of_a_method_have_equally_many_seeds_on_each_problem():
    """The interquartile mean weights every run alike."""
    seeds = Counter((run.method, run.budget, run.problem) for run in tables.read_stored())
    counts: dict[tuple[str, int], set[int]] = {}
    for (method, budget, _), count in seeds.items():
        counts.setdefault((method, budget), set()).add(count)
    assert all(len(different) == 1 for different in counts.values())


def test_a_method_without_a_solution_counts_as_the_best_single_device():
    best_s = suite.best_known(_PROBLEM).value_s
    stored = [*_cell("single", 4 * best_s), *_cell("heft", math.inf)]
    results = tables.evaluate(stored, [_PROBLEM])
    np.testing.assert_allclose(results.scores["heft", _PROBLEM], [[4], [4], [4]])


def test_sentences_follow_from_the_runs():
    best_s = suite.best_known(_PROBLEM).value_s
    spread = np.linspace(1.0, 1.1, 5)
    stored = [
        *_cell("single", 4 * best_s),
        *_cell("search", *best_s * spread),
        *_cell("hsdag", *2 * best_s * spread),
        *_cell("giph", *3 * best_s * spread),
        *_cell("doppler", *best_s * spread),
        *_cell("placeto", *2 * best_s * spread[::-1]),
        *_cell("lns", *3.5 * best_s * spread),
    ]
    covered, *sentences, slow, conclusions = tables.make_sentences(stored)
    assert covered.startswith("The runs cover 1 of ")
    assert len(sentences) == 3
    for sentence in sentences:
        assert "lowest means are `search` 1.049" in sentence
        assert (
            "`hsdag` is better than `giph`. `hsdag` is worse than `doppler`. `hsdag` is undecided "
            "against `placeto`." in sentence
        )
    assert slow == "All learned methods make 1,000 evaluations within 20 s."
    # GiPH is worse than Placeto. The problem is none of those on which DOPPLER's are judged.
    assert conclusions.endswith("that hold: 0 of 1; that do not hold: 1; inconclusive: 0.")
    header, rows = tables.make_tables(stored)["audit"]
    assert rows[0][:2] == ["`search`", "5"]
    assert rows[-1][:2] == ["`single`", "1"]
    gains = {row[0]: row[header.index(tables.GAIN)] for row in rows}
    assert gains["`giph`"].startswith("0.787")
    assert gains["`single`"] == "1.000"


def test_parts_are_named_if_the_interval_of_their_ratio_excludes_one():
    best_s = suite.best_known(_PROBLEM).value_s
    spread = np.linspace(1.0, 1.1, 5)
    factors = {"learning_rate=0": 1.5, "scores=prior": 1.0, "uniform=1": 0.5}
    stored = [
        *_cell("single", 4 * best_s),
        *_cell("hsdag", *best_s * spread),
        *_cell("hsdag:variant=untrained", *best_s * spread[::-1]),
    ]
    for part, factor in factors.items():
        stored += _cell(f"hsdag:{part}", *factor * best_s * spread)
    (sentence,) = tables.make_parts_sentences(stored)
    point = (
        "{}, worse: `hsdag:learning_rate=0` 1.500 [1.500, 1.500]. "
        "Better: `hsdag:uniform=1` 0.500 [0.500, 0.500]."
    )
    assert sentence == " ".join(
        ["**Others (problems: 1).**", *(point.format(name) for name in tables.POINTS[:2])]
    )
    header, rows = tables.make_tables(stored)["audit_parts"]
    assert header[2:] == [f"others, {name}" for name in tables.POINTS[:2]]
    assert rows[0][:3] == [
        *("`hsdag:learning_rate=0`", "no learning on the graph", "1.500 [1.500, 1.500]")
    ]


@pytest.mark.parametrize("is_short", [False, True])
def test_what_a_search_compiles_late_or_under_a_short_limit_counts_as_compilation(is_short):
    problem = suite.load(_PROBLEM)
    limits_s = []

    def find(problem, seed, limits):
        del seed
        is_first = limits.remaining_s() < 10 and 5 not in limits_s if is_short else not limits_s
        limits_s.append(round(limits.remaining_s()))
        for step in (1, 2, 3):
            end_s = time.process_time() + (0.3 if step == 2 and is_first else 0.01)
            while time.process_time() < end_s:  # as compiling for this step would
                pass
            limits.report(1_000 * step, 1.0, problem.single_devices[0])
        return Solution(problem.single_devices[0], evaluations=3_000)

    assert 0.25 < curves.measure_compilation("search", find, problem) < 1.0


@pytest.mark.slow
def test_a_run_continues_and_its_improvement_is_kept(tmp_path, monkeypatch, capsys):
    problem = min(tables.list_problems(), key=lambda entry: entry.num_ops).name
    monkeypatch.setattr(audit, "FOLDER", tmp_path)
    monkeypatch.setattr(audit, "METHODS", ("single", "heft", "search"))
    monkeypatch.setattr(audit, "_UNDECIDED", ("search",))
    monkeypatch.setattr(tables, "EVALUATIONS", 100)
    monkeypatch.setattr(tables, "COLD_S", 0.1)
    monkeypatch.setattr(tables, "WARM_S", 0.1)
    monkeypatch.setattr(curves, "_LIMITS_S", (0.1, 0.1))
    best = suite.best_known(problem)
    monkeypatch.setattr(suite, "best_known", lambda _: best._replace(value_s=1e3))
    audit.main(["audit", "run", problem])
    first = runs.read(tmp_path / problem / "runs.csv")
    assert {(run.method, run.seed, run.budget) for run in first} == {
        *(("single", 0, budget) for budget in (0, 100)),
        *(("heft", 0, budget) for budget in (0, 100)),
        *(("search", seed, budget) for seed in range(5) for budget in (0, runs.COLD)),
        *(("search", seed, 100) for seed in range(10)),
    }
    assert (tmp_path / problem / "search.npz").exists()
    capsys.readouterr()
    audit.main(["audit", "run", problem])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(runs, "STORED", tmp_path / "stored.csv.gz")
    audit.store()
    assert len(runs.read(tmp_path / "stored.csv.gz")) == len(first)


@pytest.mark.parametrize("arguments", [["print"], ["store", "x"], ["run", "no_problem"]])
def test_a_wrong_command_is_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as exit_info:
        audit.main(["audit", *arguments])
    assert exit_info.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
