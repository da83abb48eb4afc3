import numpy as np
import pytest

from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs


def _evaluate(graph: OpGraph, costs: CostModel, placements: list[list[int]]) -> list[float]:
    problem = helpers.as_problem(graph, costs, "max_load")
    return np.asarray(problem.evaluate(np.array(placements))).tolist()


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        # Device 0 sends op0's tensor once, though two devices read it, and receives two.
        ([0, 1, 2, 0], 2 + 110 + 130 + 140),
        # Device 1 receives op0's tensor once, though two operations read it: 6 + 110.
        ([0, 1, 1, 1], 6 + 110),
        # Device 2 receives three tensors and sends none: 3 + 130 + 140.
        ([0, 0, 1, 2], 3 + 130 + 140),
        # Device 1 receives and sends: 2 + 110 + 130, device 0 3 + 110 + 130.
        ([0, 1, 0, 0], 3 + 110 + 130),
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    assert _evaluate(graph, unit_costs(graph, 3), [placement]) == [seconds]
