"""A user's own policy runs everywhere, under its name."""

import pytest

import placement
from placement import methods
from placement.errors import UserError
from tests import helpers

_SMALL = "mine:hidden_size=2,rounds=1"


@pytest.fixture
def registered():
    """Registers Placeto's recipe under another name for one test."""
    placement.register("mine", methods.entry("placeto").load())
    yield
    del methods.METHODS["mine"]


def test_registered_policy_solves(registered):
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "serial")
    mine = placement.solve(problem, _SMALL, budget=18)
    placeto = placement.solve(problem, _SMALL.replace("mine", "placeto"), budget=18)
    assert mine.value_s == placeto.value_s
    assert "mine" in placement.list_methods()


@pytest.mark.parametrize(
    ("name", "words"), [("heft", "'heft' already"), ("hsdag", "'hsdag' already"), ("a b", "'a b'")]
)
def test_invalid_names_are_refused(name, words):
    with pytest.raises(UserError, match=words):
        placement.register(name, methods.entry("placeto").load())


def test_package_exports_types():
    from placement import types

    assert placement.Solution is types.Solution
    assert placement.Status.FAILED.describe(types.OUT_OF_MEMORY) == "failed: out of memory"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = placement.nothing
