"""The benchmark of optimality gaps, on one small graph."""

import functools

import pytest

from experiments.benchmarks import cells, gaps
from experiments.benchmarks.cells import Cell
from placement import methods
from placement.errors import UserError
from placement.zoo import families


def test_a_cell_has_latencies_between_the_bounds(monkeypatch, capsys):
    monkeypatch.setattr(cells, "NUM_MEMBERS", 1)
    monkeypatch.setattr(cells, "DEVICE_SETS", ("roofline:cpu,gpu,gpu",))
    # The searches end by their budget or by a proof, and not by the clock.
    monkeypatch.setattr(gaps, "_TIME_LIMIT_S", 600.0)
    monkeypatch.setattr(methods, "solve", functools.partial(methods.solve, budget=1_000))
    small = "synthetic:family=fork_join,ops=20,seed=0,width=3"
    monkeypatch.setattr(families, "draw", lambda *_: small)
    (cell,) = gaps.measure(["fork_join"])
    assert cell.graph == small
    best_s = min(cell.values["lns_s"], cell.values["diagram_s"])
    assert 0 < cell.values["schedules_bound_s"] <= cell.values["bound_s"] <= best_s * 1.00001
    schedules_gap, best_gap = gaps.compute_gaps(cell)
    assert 0 <= best_gap < 1e-4 <= schedules_gap
    assert f"1 of 1: {small}, roofline:cpu,gpu,gpu: " in capsys.readouterr().err


def test_rows_are_of_families_and_of_all():
    names = ("schedules_bound_s", "bound_s", "lns_s", "diagram_s", "diagram_search_s")
    first = dict(zip(names, (1.0, 2.0, 2.0, 2.5, 0.1), strict=True))
    second = dict(zip(names, (1.0, 1.0, 2.0, 1.5, 0.3), strict=True))
    rows = gaps.make_family_rows(
        [Cell("a", "a0", "roofline:cpu", 9, first), Cell("b", "b0", "roofline:cpu", 9, second)]
    )
    assert rows == [
        ["`a`", "100.0%", "0.0%", "1 of 1", "1.250", "0.1"],
        ["`b`", "50.0%", "50.0%", "0 of 1", "0.750", "0.3"],
        ["all", "75.0%", "25.0%", "1 of 2", "0.968", "0.2"],
    ]


def test_an_unknown_family_is_answered_with_the_valid_ones():
    with pytest.raises(UserError, match="fork_join"):
        gaps.run("cake")
