"""A problem and what follows from it: each computed once, shared, and read-only."""

import numpy as np
import pytest

from placement.instance import Instance
from placement.types import Problem
from tests import helpers


def test_an_instance_is_made_once_of_a_problem():
    instance = helpers.random_problem()
    assert Instance.from_problem(instance) is instance
    made = Instance.from_problem(Problem(*instance))
    assert isinstance(made, Problem)
    assert made.graph is instance.graph


def test_derivations_are_computed_once_and_read_only():
    instance = helpers.random_problem()
    order = instance.topological_order
    assert instance.topological_order is order
    with pytest.raises(ValueError, match="read-only"):
        order[0] = 1


def test_a_replaced_instance_has_derivations_of_its_own():
    chain = helpers.as_problem(helpers.chain(3), helpers.unit_costs(helpers.chain(3)), "serial")
    assert chain.topological_order.tolist() == [0, 1, 2]
    graph = helpers.build("reversed", 3, [(2, 1), (1, 0)])
    reversed_ = chain._replace(graph=graph)
    assert isinstance(reversed_, Instance)
    assert reversed_.topological_order.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(chain.topological_order, [0, 1, 2])
