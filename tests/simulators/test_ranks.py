"""Ranks of operations, by hand and compared with a plain reference."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from placement.simulators.ranks import optimistic_cost_s
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import plain_ranks, reference

SEEDS = st.integers(0, 2**32 - 1)
few = hypothesis.settings(max_examples=25, deadline=None)


def _graph(num_ops: int, edges: list[tuple[int, int]], num_bytes: int = 10) -> OpGraph:
    return helpers.build("drawn", num_ops, edges, edge_bytes=[num_bytes] * len(edges))


def _priority_order(graph: OpGraph, costs: CostModel) -> list[int]:
    return helpers.as_problem(graph, costs, "makespan").priority_order.tolist()


@pytest.mark.parametrize(
    ("graph", "order"),
    [
        (helpers.chain(4), [0, 1, 2, 3]),
        # op3 1.5; op1 1.5 + 130 + 1.5 = 133; op2 1.5 + 140 + 1.5 = 143; op0 1.5 + 110 + 143.
        (helpers.diamond(), [0, 2, 1, 3]),
        # Branches of equal rank keep the topological order, which takes the smallest index first.
        (helpers.fork_join(3), [0, 1, 2, 3, 4]),
        # op1 and op4 1.5; op0 and op2 1.5 + 110 + 1.5 = 113; op3 1.5 + 110 + 113. Ties go by the
        # topological order 2, 1, 3, 0, 4.
        (_graph(5, [(3, 0), (3, 0), (2, 1), (0, 4)]), [3, 2, 0, 1, 4]),
    ],
    ids=["chain", "diamond", "fork_join", "drawn"],
)
def test_priority_order_by_hand(graph, order):
    assert _priority_order(graph, unit_costs(graph)) == order


def test_infinite_costs_are_ignored():
    graph = _graph(4, [])
    compute_s = np.array([[4, 4], [6, 1], [5, np.inf], [np.inf, np.inf]], np.float32)
    # Means 4, 3.5, 5 and nothing.
    costs = unit_costs(graph, compute_s=compute_s)
    assert _priority_order(graph, costs) == [2, 0, 1, 3]
    # op0 -> op1 and op2 -> op3 with delays of 6 + 1 and 6 + 2: ranks 9, 1, 10, 1.
    graph = _graph(4, [(0, 1), (2, 3)], num_bytes=0)
    costs = unit_costs(
        graph,
        compute_s=np.ones((4, 2), np.float32),
        transfer_latency_s=np.array([[0, 8], [4, 0]], np.float32),
        transfer_fixed_s=np.array([1, 0], np.float32),
        fusion_loss_s=np.array([0, 2], np.float32),
    )
    assert _priority_order(graph, costs) == [2, 0, 1, 3]


@few
@hypothesis.given(SEEDS, st.sampled_from(reference.SIZES), st.sampled_from([1.0, 1 / 3]))
def test_ranks_equal_reference(seed, size, times):
    rng = np.random.default_rng(seed)
    problem, _ = reference.random_problem(rng, "makespan", size)
    costs = problem.costs
    costs = costs._replace(compute_s=np.asarray(costs.compute_s) * np.float32(times))
    problem = problem._replace(costs=costs)
    assert problem.upward_rank.tolist() == plain_ranks.upward_rank(problem)
    allowed = np.isfinite(costs.compute_s) & (rng.random(costs.compute_s.shape) < 0.9)
    compute_s = np.where(allowed, np.asarray(costs.compute_s, np.float64), np.inf)
    table = optimistic_cost_s(
        problem.graph, compute_s, problem.mean_edge_delay_s, problem.topological_order
    )
    np.testing.assert_array_equal(table, plain_ranks.optimistic_cost_s(problem, allowed))
