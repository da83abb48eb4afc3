"""A problem and what follows from it: each computed once, shared, and read-only."""

import dataclasses
import gc
import weakref

import jax
import numpy as np
import pytest

from placement import simulators
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


def test_dependencies_are_the_distinct_pairs_with_their_longest_delays():
    # op0 -> op1 twice, by tensors of 10 and 20 bytes, and op1 -> op2.
    graph = helpers.build("parallel", 3, [(1, 2), (0, 1), (0, 1)], edge_bytes=[5, 10, 10])
    tensors = {"tensors": np.arange(3, dtype=np.int32), "edge_bytes": np.array([5, 10, 20])}
    graph = dataclasses.replace(graph, **tensors)
    instance = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    pairs = instance.dependencies
    assert (pairs.senders.tolist(), pairs.receivers.tolist()) == ([0, 1], [1, 2])
    assert pairs.delay_s[:, 0, 1].tolist() == [120, 105]
    assert pairs.pair.tolist() == [1, 0, 0]


@pytest.mark.parametrize("objective", simulators.OBJECTIVES)
def test_instances_of_equal_shapes_share_a_compiled_evaluation(objective):
    instance = helpers.random_problem()._replace(objective=objective)
    placements = np.zeros((3, instance.graph.num_ops), np.int32)
    instance.evaluate(placements)
    slower = instance.costs._replace(compute_s=2 * np.asarray(instance.costs.compute_s))
    with helpers.count_compilations() as compiled:
        instance.evaluate(placements)
        instance._replace(costs=slower).evaluate(placements)
    assert compiled == []


def test_an_evaluation_that_is_traced_first_leaves_no_tracer_behind():
    instance = helpers.random_problem()
    placements = np.zeros((2, instance.graph.num_ops), np.int32)
    traced = jax.jit(instance.evaluate)(placements)
    np.testing.assert_array_equal(instance.evaluate(placements), traced)


def test_an_instance_that_nobody_holds_is_freed():
    instance = helpers.random_problem()
    instance.evaluate(np.zeros((1, instance.graph.num_ops), np.int32))
    freed = weakref.ref(instance.graph)
    del instance
    gc.collect()
    assert freed() is None
