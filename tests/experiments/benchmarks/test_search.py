import numpy as np
import pytest

from experiments.benchmarks import search
from placement.errors import UserError
from tests import helpers


def test_seconds_are_of_both_or_of_each():
    assert search._seconds("5") == (5, 5)
    assert search._seconds("0.5:60") == (0.5, 60)
    for text in ("", "five", "0", "-1", "1:-2", "nan"):
        with pytest.raises(UserError, match="give seconds"):
            search._seconds(text)


def test_a_cell_has_latencies_that_placements_can_have(monkeypatch):
    problem = helpers.random_problem()
    cell = search._cell("some", "roofline:cpu", problem, 0.2, 0.2)
    total_s = np.asarray(problem.costs.compute_s).sum()
    assert 0 < cell.search_s < total_s
    assert 0 < cell.compiling_s < total_s
    assert cell.ratio == cell.search_s / cell.lns_s
    assert cell.evaluations_per_s > 0
    monkeypatch.setattr(search, "_cell", lambda *_: cell)
    monkeypatch.setattr(search, "_problems", lambda: [("some", "roofline:cpu", problem)])
    search.run("1")


def test_large_members_are_large():
    text = next(search._large_members("layered"))
    assert search.loading.without_weights(text).graph.num_ops >= 1_000
