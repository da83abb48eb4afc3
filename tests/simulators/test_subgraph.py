import jax
import numpy as np
import pytest

from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs


def _evaluate(
    graph: OpGraph, costs: CostModel, accelerator: list[int], placements: list[list[int]]
) -> list[float]:
    costs = costs._replace(accelerator=np.array(accelerator, np.int32))
    problem = helpers.as_problem(graph, costs, "subgraph")
    return np.asarray(problem.evaluate(np.array(placements))).tolist()


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 3),  # the host runs both branches at once
        # Parts 1-243 and 1-254, then op3.
        ([0, 1, 2, 0], 1 + (110 + 3 + 140) + 1),
        # One part: it takes op0's tensor once, and both results leave it at its end.
        ([0, 1, 1, 0], 1 + (110 + 4 + 130 + 140) + 1),
        # The part ends at 4 + 110 + 130; though op0 was done long before, op2 starts only then.
        ([1, 1, 0, 0], 244 + 1 + 1),
        # op3's part waits for op2 at 2 on the host, and takes both results.
        ([0, 0, 0, 1], 2 + (130 + 140 + 2)),
        ([1, 2, 2, 2], (2 + 110) + (110 + 9)),
        ([1, 1, 2, 1], np.inf),
        ([1, 2, 0, 1], np.inf),
        ([1, 2, 1, 2], (4 + 110 + 140) + (110 + 140 + 6)),
        ([1, 2, 0, 2], (2 + 110) + 1 + (110 + 140 + 6)),  # op1 waits for op2, as its part does
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    assert _evaluate(graph, unit_costs(graph, 3), [-1, 0, 1], [placement]) == [seconds]


def test_parts_run_in_order():
    graph = helpers.build("apart", 3, [])
    costs = unit_costs(graph, 4)
    placements = [[1, 2, 3], [3, 2, 1], [1, 3, 3], [2, 2, 2], [0, 0, 3]]
    assert _evaluate(graph, costs, [-1, 0, 0, 0], placements) == [9, 9, 10, 9, 4]
    assert _evaluate(graph, costs, [-1, 0, 1, 0], placements) == [6, 6, 10, 9, 4]
    assert _evaluate(graph, costs, [-1, 0, 1, 2], placements) == [4, 4, 8, 9, 4]


@pytest.mark.parametrize(
    ("accelerator", "placement"),
    [
        ([-1, 0, 1], [1, 0, 1]),  # a part feeds the host, which feeds it
        ([-1, 0, 1], [1, 2, 1]),  # two parts feed each other
        ([-1, 0, 0], [2, 1, 1]),  # the later part feeds the earlier
        ([-1, 0, 0], [2, 0, 1]),
        ([0, 0], [1, 0, 0]),
    ],
)
def test_cyclic_parts_are_infeasible(accelerator, placement):
    graph = helpers.chain(3)
    costs = unit_costs(graph, len(accelerator))
    free = jax.tree.map(np.zeros_like, costs)._replace(capacity_bytes=costs.capacity_bytes)
    assert _evaluate(graph, free, accelerator, [placement, sorted(placement)]) == [np.inf, 0]
