"""A user's own policy runs everywhere, under its name."""

import pytest

import placement
from placement import methods
from placement.errors import UserError
from placement.methods import learned
from tests import helpers

_SMALL = "mine:hidden_size=2,rounds=1"


@pytest.fixture
def registered():
    """Registers Placeto's recipe under another name for one test."""
    placement.register("mine", learned.RECIPES["placeto"])
    yield
    for table in (learned.RECIPES, methods.METHODS):
        del table["mine"]


def test_registered_policy_solves(registered):
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "serial")
    mine = placement.solve(problem, _SMALL, budget=18)
    placeto = placement.solve(problem, _SMALL.replace("mine", "placeto"), budget=18)
    assert mine.value_s == placeto.value_s
    assert "mine" in placement.list_methods()


def test_registered_policy_is_compared(registered, tmp_path):
    graphs = [f"synthetic:family=layered,ops={ops},seed=1" for ops in (12, 14)]
    compared = placement.compare(
        graphs,
        [_SMALL, "heft", "random"],
        seeds=2,
        devices=["roofline:cpu", "gpu"],
        workdir=tmp_path,
        evaluate="simulate",
        budget=18,
    )
    seeds = {(row["graph"], row["method"]): set() for row in compared.rows}
    for row in compared.rows:
        seeds[row["graph"], row["method"]].add(row["seed"])
        assert row["predicted_s"] > 0
    for graph in graphs:
        assert seeds[graph, _SMALL] == seeds[graph, "random"] == {0, 1}
        assert seeds[graph, "heft"] == {0}  # which no seed changes
    assert len(
        {tuple(row[k] for k in ("graph", "method", "seed")) for row in compared.rows}
    ) == len(compared.rows)
    written = (tmp_path / "comparison.csv").read_text().splitlines()
    assert list(compared.rows[0]) == written[0].split(",")
    assert len(compared.rows) == len(written) - 1
    assert all(scope["interquartile_mean"] for scope in compared.statistics["scopes"].values())
    assert len(compared.plot().axes) == 2
    assert repr(compared) == f"Comparison(2 graphs, 5 methods, best={compared.summary['best']!r})"


@pytest.mark.parametrize(
    ("name", "words"), [("heft", "'heft' already"), ("hsdag", "'hsdag' already"), ("a b", "'a b'")]
)
def test_invalid_names_are_refused(name, words):
    with pytest.raises(UserError, match=words):
        placement.register(name, learned.RECIPES["placeto"])


def test_package_exports_types():
    from placement import types

    assert placement.Problem is types.Problem
    assert placement.Solution is types.Solution
    assert placement.Status.FAILED.describe(types.OUT_OF_MEMORY) == "failed: out of memory"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = placement.nothing
