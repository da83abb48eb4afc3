import numpy as np
import pytest

from placement.costs import tables
from placement.graphs import coarsen, opgraph
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


def test_cuts_cost_once_an_edge():
    graph = helpers.diamond()
    costs = unit_costs(graph, fusion_loss_s=np.array([1000, 2000, 4000, 8000], np.float32))
    value = _evaluate(graph, costs, np.array([[0, 1, 1, 1]]))
    assert value.tolist() == [7 + 110 + 1000 + 2000]


def test_fixed_transfers_count_per_reader():
    graph = helpers.diamond()
    costs = unit_costs(graph, 3, transfer_fixed_s=np.array([1000, 1000, 2000, 4000], np.float32))
    value = _evaluate(graph, costs, np.array([[0, 1, 1, 1], [0, 1, 2, 1], [2, 2, 2, 2]]))
    assert value.tolist() == [7 + 1110, 8 + 1110 + 1110 + 4140, 12]


def test_outputs_cross_separately():
    def graph(tensors):
        return opgraph.make_graph(
            name="two",
            op_names=["a", "b"],
            op_types=["Split", "Add"],
            senders=[0, 0],
            receivers=[1, 1],
            edge_bytes=[10, 10],
            tensors=tensors,
        )

    apart = np.array([[0, 1]])
    assert _evaluate(graph([0, 1]), unit_costs(graph([0, 1])), apart) == 3 + 110 + 110
    assert _evaluate(graph([0, 0]), unit_costs(graph([0, 0])), apart) == 3 + 110


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
        lifted = coarsen.lift(coarse.assignment, placements)
        expected = reference.latencies(helpers.as_problem(graph, costs, "serial"), lifted)
        np.testing.assert_array_equal(_evaluate(coarse.graph, coarse_costs, placements), expected)
    assert merged > 20
