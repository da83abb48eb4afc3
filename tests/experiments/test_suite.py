"""The command line of the suite."""

import numpy as np
import pytest

from experiments import suite as command
from placement import methods, suite
from placement.suite import archive
from placement.types import Solution

NAME = "layered_50-makespan"


def run(*words: str) -> None:
    command.main(["suite", *words])


@pytest.fixture
def one_problem(monkeypatch, tmp_path):
    """The suite with one problem, and with an archive in a temporary folder."""
    (entry,) = [entry for entry in suite.list_entries() if entry.name == NAME]
    known = {NAME: archive.read()[NAME]}
    archive.write(known, tmp_path / "best")
    monkeypatch.setattr(suite, "list_entries", lambda split="": [entry])
    read, write = archive.read, archive.write
    monkeypatch.setattr(archive, "read", lambda: read(tmp_path / "best"))
    monkeypatch.setattr(archive, "write", lambda known: write(known, tmp_path / "best"))
    return known


def test_solve_improves_the_archive(one_problem, capsys, monkeypatch):
    run("solve", "heft", "training", "5")
    assert f"{NAME}: " in capsys.readouterr().out
    assert archive.read()[NAME].method != "heft"  # HEFT improves nothing
    archive.write({NAME: one_problem[NAME]._replace(value_s=1.0, method="old")})
    run("solve", "heft")
    assert archive.read()[NAME].method == "heft"
    best = archive.read()[NAME]
    assert suite.load(NAME).value_s(best.placement) == pytest.approx(best.value_s)
    run("solve", "graph_cut")  # is for another objective
    assert f"{NAME}: left out: " in capsys.readouterr().err


def test_bounds_rise_until_proven(one_problem, capsys, monkeypatch):
    run("bound", "5")
    best = archive.read()[NAME]
    assert 0 < best.bound_s <= best.value_s
    for method in ("cpsat", "heft"):  # proves bounds of one order alone, and none
        run("bound", "1", method)
        assert archive.read()[NAME].bound_s == best.bound_s
    archive.write({NAME: best._replace(bound_s=0.5 * best.value_s)})
    proven = Solution(None, bound_s=best.value_s)
    monkeypatch.setattr(methods, "solve", lambda problem, method, **_: proven)
    run("bound", "1", "cpsat_free")
    assert archive.read()[NAME].bound_s == best.value_s
    capsys.readouterr()
    run("bound", "1", "cpsat_free")
    assert NAME not in capsys.readouterr().out  # nothing is left to prove
    run("list")
    assert NAME.partition("-")[0] in capsys.readouterr().out


def test_mistakes_are_one_line(capsys):
    for words, said in (
        ((), "pass one of: list"),
        (("solve",), "solve METHOD"),
        (("solve", "helt"), "did you mean 'heft'"),
        (("bound", "5", "helt"), "did you mean 'heft'"),
        (("list", "final"), "unknown split"),
        (("bound", "soon"), "as the seconds of a search"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(*words)
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_rebuilt_problems_are_equal(monkeypatch, tmp_path):
    stored = suite.load(NAME)
    (entry,) = [entry for entry in suite.list_entries() if entry.name == NAME]
    with monkeypatch.context() as patch:
        patch.setattr(suite, "list_entries", lambda: [entry])
        patch.setattr(command.problem_file, "FOLDER", tmp_path)
        command.build("unused")
    monkeypatch.setattr(command.problem_file, "FOLDER", tmp_path)
    assert suite.list_entries() == [entry]
    built = suite.load(NAME)
    np.testing.assert_array_equal(built.costs.compute_s, stored.costs.compute_s)
    np.testing.assert_array_equal(built.graph.senders, stored.graph.senders)
