import numpy as np
import pytest

from placement.costs import tables
from placement.graphs import coarsen
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference


def _evaluate(graph: OpGraph, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    return np.asarray(helpers.as_problem(graph, costs, "serial").evaluate(placements))


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 4),
        ([1, 1, 1, 1], 8),
        ([0, 1, 0, 0], 5 + 110 + 130),  # op0's tensor goes over, op1's comes back
        ([0, 1, 1, 0], 6 + 110 + 130 + 140),  # both branches read one copy of op0's tensor
        ([0, 0, 0, 1], 5 + 130 + 140),
        ([1, 0, 0, 0], 5 + 110),
        ([0, 1, 2, 0], 7 + 110 + 110 + 130 + 140),  # two devices read it: two transfers
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    value = _evaluate(graph, unit_costs(graph, num_devices=3), np.array([placement]))
    assert value.tolist() == [seconds]


def test_coarse_equals_lifted():
    rng = np.random.default_rng(0)
    merged = 0
    for _ in range(6):
        graph = helpers.random_dag(rng, 20, edge_probability=0.08, colocated=0.2)
        costs = helpers.random_costs(rng, graph, 3, unsupported=0.02)
        coarse = coarsen.coarsen(graph)
        coarse_costs = tables.coarse_costs(costs, coarse.assignment, coarse.edges)
        merged += graph.num_ops - coarse.graph.num_ops
        placements = rng.integers(0, 3, (8, coarse.graph.num_ops))
        problem = helpers.as_problem(graph, costs, "serial")
        lifted = placements[:, coarse.assignment[problem.decisions.first_ops]]
        expected = reference.latencies(problem, lifted)
        np.testing.assert_array_equal(_evaluate(coarse.graph, coarse_costs, placements), expected)
    assert merged > 20
