"""A problem and what follows from it: each computed once, shared, and read-only."""

import dataclasses
import gc
import weakref

import jax
import numpy as np
import pytest

from placement import simulators
from placement.problem import Problem
from tests import helpers


def test_derivations_are_cached():
    problem = helpers.random_problem()
    order = problem.topological_order
    assert problem.topological_order is order
    with pytest.raises(ValueError, match="read-only"):
        order[0] = 1


def test_replaced_problem_derives_anew():
    chain = helpers.as_problem(helpers.chain(3), helpers.unit_costs(helpers.chain(3)), "serial")
    assert chain.topological_order.tolist() == [0, 1, 2]
    graph = helpers.build("reversed", 3, [(2, 1), (1, 0)])
    reversed_ = chain._replace(graph=graph)
    assert isinstance(reversed_, Problem)
    assert reversed_.topological_order.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(chain.topological_order, [0, 1, 2])


def test_other_orders_keep_derivations():
    # op0 -> op1 and op2 alone; on one device op2 runs before or after the other two.
    graph = helpers.build("two", 3, [(0, 1)])
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    placement = np.int32([0, 1, 0])
    assert problem.priority_order.tolist() == [0, 1, 2]
    before_s, dependencies = problem.value_s(placement), problem.dependencies
    other = problem.with_order(np.int32([2, 0, 1]))
    assert other.priority_order.tolist() == [2, 0, 1]
    assert other.dependencies is dependencies
    assert other.value_s(placement) == before_s + 1  # op0 waits for op2, and op1 for op0
    assert problem.with_order(None) is problem
    assert problem.value_s(placement) == before_s


def test_dependencies_have_longest_delays():
    # op0 -> op1 twice, by tensors of 10 and 20 bytes, and op1 -> op2.
    graph = helpers.build("parallel", 3, [(1, 2), (0, 1), (0, 1)], edge_bytes=[5, 10, 10])
    tensors = {"tensors": np.arange(3, dtype=np.int32), "edge_bytes": np.array([5, 10, 20])}
    graph = dataclasses.replace(graph, **tensors)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    pairs = problem.dependencies
    assert (pairs.senders.tolist(), pairs.receivers.tolist()) == ([0, 1], [1, 2])
    assert pairs.delay_s[:, 0, 1].tolist() == [120, 105]
    assert pairs.pair.tolist() == [1, 0, 0]


def test_decisions_by_hand():
    graph = dataclasses.replace(helpers.chain(4), colocation=np.array([7, 3, 7, 1], np.int32))
    compute_s = np.array([[1, 2, 4], [8, np.inf, 9], [16, 3, np.inf], [1, 1, 1]], np.float32)
    costs = helpers.unit_costs(graph, 3, compute_s=compute_s, memory_bytes=2 ** np.arange(4))
    problem = helpers.as_problem(graph, costs, "serial")
    assert problem.decision.tolist() == problem.tables.decision.tolist() == [0, 1, 0, 2]
    first_ops, compute_s, allowed, memory_bytes = problem.decisions
    assert first_ops.tolist() == [0, 1, 3]
    assert compute_s.tolist() == [[17, 5, np.inf], [8, np.inf, 9], [1, 1, 1]]
    np.testing.assert_array_equal(allowed, np.isfinite(compute_s))
    assert memory_bytes.tolist() == [5, 2, 8]
    assert problem.order_decisions(np.array([3, 2, 1, 0])).tolist() == [2, 0, 1]
    assert problem.expand(np.array([[4, 5, 6]])).tolist() == [[4, 5, 4, 6]]
    both = [True, True, False]
    assert problem.allowed.tolist() == [both, [True, False, True], both, [True] * 3]
    np.testing.assert_array_equal(problem.allowed, np.isfinite(problem.allowed_compute_s))
    assert problem.single_devices.tolist() == [[0] * 3, [1, 0, 1], [1, 2, 2]]


def test_accelerator_parts_share_memory():
    graph = helpers.chain(2)
    costs = helpers.unit_costs(
        graph,
        4,
        accelerator=np.array([0, -1, 0, 1], np.int32),
        capacity_bytes=np.array([10, np.inf, 10, 20], np.float32),
    )
    limits = helpers.as_problem(graph, costs, "subgraph").memory_limits
    assert limits.devices.tolist() == [[True, False, True, False], [False, False, False, True]]
    assert limits.capacity_bytes.tolist() == [10, 20]


def test_interchangeable_devices():
    graph = helpers.chain(3)
    equal = helpers.unit_costs(graph, 4, compute_s=np.ones((3, 4), np.float32))
    capacity_bytes = np.array([np.inf, np.inf, np.inf, 10], np.float32)
    latency_s = np.array(equal.transfer_latency_s)
    latency_s[1, 3] += 1

    def first(**changes: np.ndarray) -> list[int]:
        costs = equal._replace(**changes)
        return helpers.as_problem(graph, costs, "makespan").interchangeable_devices.tolist()

    assert first() == [0, 0, 0, 0]
    assert first(compute_s=np.array([[1, 1, 2, 1]] * 3, np.float32)) == [0, 0, 2, 0]
    assert first(capacity_bytes=capacity_bytes) == [0, 0, 0, 3]
    assert first(transfer_latency_s=latency_s) == [0, 1, 0, 3]


@pytest.mark.parametrize("objective", simulators.OBJECTIVES)
def test_equal_shapes_share_compilation(objective):
    problem = helpers.random_problem()._replace(objective=objective)
    placements = np.zeros((3, problem.graph.num_ops), np.int32)
    problem.evaluate(placements)
    slower = problem.costs._replace(compute_s=2 * np.asarray(problem.costs.compute_s))
    with helpers.count_compilations() as compiled:
        problem.evaluate(placements)
        problem._replace(costs=slower).evaluate(placements)
    assert compiled == []


def test_traced_evaluation_leaves_no_tracer():
    problem = helpers.random_problem()
    placements = np.zeros((2, problem.graph.num_ops), np.int32)
    traced = jax.jit(problem.evaluate)(placements)
    np.testing.assert_array_equal(problem.evaluate(placements), traced)


def test_unused_problem_is_freed():
    problem = helpers.random_problem()
    problem.evaluate(np.zeros((1, problem.graph.num_ops), np.int32))
    freed = weakref.ref(problem.graph)
    del problem
    gc.collect()
    assert freed() is None
