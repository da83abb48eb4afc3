"""The command line of the suite."""

import json
import shutil

import chex
import numpy as np
import pytest

from experiments import suite as command
from placement import methods, suite
from placement.suite import archive, problem_file
from placement.types import Solution

NAME = "layered_50-makespan"


def run(*words: str) -> None:
    command.main(["suite", *words])


def only(name: str, monkeypatch, tmp_path) -> suite.Entry:
    """Makes a suite with one problem in a temporary folder."""
    (entry,) = [entry for entry in suite.list_entries() if entry.name == name]
    known = {name: suite.best_known(name)}
    file = problem_file.locate(name, suite.VERSION)
    folder = tmp_path / f"version_{suite.VERSION}"
    folder.mkdir()
    shutil.copy(file, folder)
    (folder / problem_file.INDEX).write_text(json.dumps([entry._asdict()]))
    monkeypatch.setattr(problem_file, "FOLDER", tmp_path)
    write(known)
    return entry


def read() -> archive.Best:
    return suite.best_known(NAME)


def write(known: dict[str, archive.Best]) -> None:
    archive.write(known, suite.VERSION)


def test_solve_improves_the_archive(capsys, monkeypatch, tmp_path):
    only(NAME, monkeypatch, tmp_path)
    run("solve", "heft", "training", "5")
    assert f"{NAME}: " in capsys.readouterr().out
    assert read().method != "heft"  # HEFT improves nothing
    write({NAME: read()._replace(value_s=1.0, method="old")})
    run("solve", "heft")
    assert read().method == "heft"
    best = read()
    assert suite.load(NAME).value_s(best.placement) == pytest.approx(best.value_s)
    run("solve", "graph_cut")  # is for another objective
    assert f"{NAME}: left out: " in capsys.readouterr().err


def test_bounds_rise_until_proven(capsys, monkeypatch, tmp_path):
    only(NAME, monkeypatch, tmp_path)
    run("bound", "5")
    best = read()
    assert 0 < best.bound_s <= best.value_s
    for method in ("cpsat", "heft"):  # proves bounds of one order alone, and none
        run("solve", method, "training", "1")
        assert read().bound_s == best.bound_s
    write({NAME: best._replace(bound_s=0.5 * best.value_s)})
    proven = Solution(best.placement, best.value_s, bound_s=best.value_s)
    monkeypatch.setattr(methods, "solve", lambda problem, method, **_: proven)
    run("solve", "cpsat_free")
    assert read().bound_s == best.value_s
    capsys.readouterr()
    run("bound", "1")
    assert NAME not in capsys.readouterr().out  # nothing is left to prove
    run("list")
    out = capsys.readouterr().out
    assert NAME in out
    assert f"{read().method} 100%" in out


def test_mistakes_are_one_line(capsys):
    for words, said in (
        ((), "pass one of: list"),
        (("solve",), "solve METHOD"),
        (("solve", "helt"), "did you mean 'heft'"),
        (("bound", "5", "heft"), "pass one of: list"),
        (("list", "final"), "unknown split"),
        (("bound", "soon"), "as the seconds of a search"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(*words)
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("name", [NAME, "fft_95-makespan", "decoder_6_training-max_load"])
def test_rebuilt_problems_are_equal(name, monkeypatch, tmp_path):
    entry, frozen = only(name, monkeypatch, tmp_path), suite.load(name)
    problem_file.locate(name, suite.VERSION).unlink()
    command.build("unused")
    (rebuilt_entry,) = suite.list_entries()
    assert rebuilt_entry._replace(sha256=entry.sha256) == entry
    rebuilt = suite.load(name)
    # The last bit of a power depends on the processor.
    chex.assert_trees_all_close(rebuilt.costs, frozen.costs, rtol=1e-6)
    for field, value in vars(frozen.graph).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(getattr(rebuilt.graph, field), value, rtol=1e-6)
        else:
            assert getattr(rebuilt.graph, field) == value
