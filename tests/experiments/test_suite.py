"""The command line of the suite."""

import numpy as np
import pytest

from experiments import suite as command
from placement import methods, suite
from placement.suite import archive, submission
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


def test_a_method_is_run_checked_and_updates_the_archive(
    one_problem, tmp_path, capsys, monkeypatch
):
    file = str(tmp_path / "heft.npz")
    run("solve", "heft", file, "training", "5")
    run("check", file)
    out = capsys.readouterr().out
    assert "1 of 1" in out
    assert "before" not in out  # HEFT improves nothing
    best = one_problem[NAME]
    archive.write({NAME: best._replace(value_s=1.0, method="old")})
    run("update", file)
    assert f"{NAME}: heft" in capsys.readouterr().out
    assert archive.read()[NAME].method == "heft"
    run("bound", "5")
    assert 0 < archive.read()[NAME].bound_s <= archive.read()[NAME].value_s
    for method in ("cpsat", "heft"):  # proves bounds of one order alone, and none
        before_s = archive.read()[NAME].bound_s
        run("bound", "1", method)
        assert archive.read()[NAME].bound_s == before_s
    value_s = archive.read()[NAME].value_s
    monkeypatch.setattr(
        methods, "solve", lambda problem, method, **_: Solution(None, bound_s=value_s)
    )
    run("bound", "1", "cpsat_free")
    assert archive.read()[NAME].bound_s == value_s
    capsys.readouterr()
    run("bound", "1", "cpsat_free")
    assert NAME not in capsys.readouterr().out  # nothing is left to prove
    run("list")
    assert "heft" in capsys.readouterr().out


def test_files_of_one_name_are_one_submission(one_problem, tmp_path, capsys):
    best = one_problem[NAME]
    other = tmp_path / "other" / "search.npz"
    other.parent.mkdir()
    submission.write({NAME: submission.Answer(best.placement, best.order)}, tmp_path / "search.npz")
    submission.write({}, other)
    run("check", str(tmp_path / "search.npz"), str(other))
    assert "1 of 1" in capsys.readouterr().out


def test_a_method_for_another_objective_leaves_problems_out(one_problem, tmp_path, capsys):
    run("solve", "graph_cut", str(tmp_path / "cut.npz"))
    assert f"{NAME}: left out: " in capsys.readouterr().err
    assert not (tmp_path / "cut.npz").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of: list"),
        (("solve", "heft"), "solve METHOD FILE"),
        (("solve", "helt", "helt.npz"), "did you mean 'heft'"),
        (("bound", "5", "helt"), "did you mean 'heft'"),
        (("list", "final"), "unknown split"),
        (("check", "nothing.npz"), "is no submission"),
        (("bound", "soon"), "as the seconds of a search"),
    ],
)
def test_mistakes_are_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        run(*words)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_recipes_describe_the_problems():
    recipes = command._list_recipes()
    names = [f"{recipe.name}-{o}" for recipe in recipes for o in recipe.objectives]
    assert names == [entry.name for entry in suite.list_entries()]


def test_a_problem_built_again_is_the_stored_one(monkeypatch, tmp_path):
    stored = suite.load(NAME)
    monkeypatch.setattr(command.problem_file, "FOLDER", tmp_path)
    (recipe,) = [r for r in command._list_recipes() if r.name == "layered_50"]
    monkeypatch.setattr(command, "_list_recipes", lambda: [recipe])
    command.build("unused")
    (entry,) = suite.list_entries()
    built = suite.load(entry.name)
    np.testing.assert_array_equal(built.costs.compute_s, stored.costs.compute_s)
    np.testing.assert_array_equal(built.graph.senders, stored.graph.senders)
