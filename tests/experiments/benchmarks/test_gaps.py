"""The benchmark of what is proven, on one small graph."""

import functools

import pytest

from experiments.benchmarks import gaps
from placement import methods
from placement.errors import UserError
from placement.zoo import families


def test_a_cell_says_what_is_found_and_what_is_proven(monkeypatch, capsys):
    monkeypatch.setattr(gaps, "_MEMBERS", 1)
    monkeypatch.setattr(gaps, "DEVICES", ("roofline:cpu,gpu,gpu",))
    # The searches end by their budget or by a proof, and not by the clock.
    monkeypatch.setattr(gaps, "_TIME_LIMIT_S", 600.0)
    monkeypatch.setattr(methods, "solve", functools.partial(methods.solve, budget=1_000))
    small = "synthetic:family=fork_join,ops=20,seed=0,width=3"
    monkeypatch.setattr(families, "draw", lambda *_: small)
    (cell,) = gaps.measure(["fork_join"])
    assert cell.graph == small
    assert 0 < cell.schedules_s <= cell.bound_s <= cell.best_s * 1.00001
    before, now = cell.gaps
    assert 0 <= now < 1e-4 <= before
    assert f"{small}, roofline:cpu,gpu,gpu: {before:.1%}, 0.0%" in capsys.readouterr().err


def test_rows_are_of_families_and_of_all():
    one = gaps.Cell("a", "a0", "roofline:cpu", 9, 1.0, 2.0, 2.0, 2.5, 0.1)
    other = gaps.Cell("b", "b0", "roofline:cpu", 9, 1.0, 1.0, 2.0, 1.5, 0.3)
    assert gaps.by_family([one, other]) == [
        ["`a`", "100.0%", "0.0%", "1 of 1", "1.250", "0.1"],
        ["`b`", "50.0%", "50.0%", "0 of 1", "0.750", "0.3"],
        ["all", "75.0%", "25.0%", "1 of 2", "0.968", "0.2"],
    ]


def test_an_unknown_family_is_answered_with_those_there_are():
    with pytest.raises(UserError, match="fork_join"):
        gaps.run("cake")
