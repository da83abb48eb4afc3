"""A user's own policy runs everywhere, under its name."""

import pytest

import placement
from placement import methods
from placement.errors import UserError
from placement.methods import learned
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import compare
from tests import helpers

_SMALL = "mine:hidden_size=2,rounds=1"


@pytest.fixture
def registered():
    """Registers Placeto's recipe under another name for one test."""
    placement.register("mine", learned.RECIPES["placeto"])
    yield
    for table in (learned.RECIPES, methods.METHODS):
        del table["mine"]


def test_a_registered_policy_solves_a_problem(registered):
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "serial")
    mine = placement.solve(problem, _SMALL, budget=18)
    placeto = placement.solve(problem, _SMALL.replace("mine", "placeto"), budget=18)
    assert mine.value_s == placeto.value_s
    assert "mine" in placement.list_methods()


def test_a_registered_policy_is_compared_with_baselines(registered, tmp_path):
    settings = Settings(
        graph="synthetic:family=layered,ops=12,seed=1",
        devices="roofline:cpu,gpu",
        objective="makespan",
        methods=f"{_SMALL},heft,random",
        evaluate="simulate",
        budget=18,
    )
    summary = compare.run(settings, tmp_path, progress.Display(progress.WARNING))
    rows = {row["method"]: row for row in summary["rows"]}
    assert {_SMALL, "heft", "random"} <= rows.keys()
    assert rows[_SMALL]["predicted_s"] > 0


def test_registering_the_same_recipe_again_changes_nothing(registered):
    placement.register("mine", learned.RECIPES["placeto"])


@pytest.mark.parametrize(
    ("name", "words"), [("heft", "'heft' already"), ("hsdag", "'hsdag' already"), ("a b", "'a b'")]
)
def test_a_name_that_is_taken_or_none_is_refused(name, words):
    with pytest.raises(UserError, match=words):
        placement.register(name, learned.RECIPES["placeto"])


def test_types_are_imported_from_the_package():
    from placement import types

    assert placement.Problem is types.Problem
    assert placement.Solution is types.Solution
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = placement.nothing
