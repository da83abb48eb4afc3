import sys

import numpy as np
import pytest

from placement import methods
from placement.errors import UserError
from tests import helpers
from tests.solvers import exhaustive


@pytest.mark.slow
def test_equals_enumeration():
    for problem in exhaustive.problems("max_load", 18, seed=3):
        exhaustive.check(problem, methods.solve(problem, "cpsat"), exhaustive.optimum(problem))


@pytest.mark.slow
def test_equals_enumeration_of_four_devices():
    for problem in exhaustive.problems("max_load", 8, seed=4, num_devices=4):
        exhaustive.check(problem, methods.solve(problem, "cpsat"), exhaustive.optimum(problem))


def test_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    graph = helpers.chain(4)
    costs = helpers.unit_costs(graph, 2, accelerator=np.array([0, -1], np.int32))
    with pytest.raises(UserError, match=r"ortools is not installed.*-e '\.\[solvers\]"):
        methods.solve(helpers.as_problem(graph, costs, "max_load"), "cpsat")


def test_infeasible_is_proven():
    graph = helpers.chain(3)
    costs = helpers.unit_costs(
        graph,
        2,
        memory_bytes=np.full(3, 10, np.float32),
        capacity_bytes=np.array([15, 15], np.float32),  # 30 bytes in all, but each holds one
    )
    found = methods.solve(helpers.as_problem(graph, costs, "max_load"), "cpsat")
    assert found.status == "infeasible"
    assert found.value_s == np.inf
