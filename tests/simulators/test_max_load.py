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


def test_tensors_pass_through_hosts():
    graph = helpers.chain(2)
    costs = unit_costs(
        graph,
        num_devices=4,
        compute_s=np.zeros((2, 4), np.float32),
        transfer_latency_s=np.array(
            [[0, 1, 2, 3], [40, 0, 50, 60], [700, 800, 0, 900], [1000, 1100, 1200, 0]], np.float32
        ),
        transfer_s_per_byte=np.zeros((4, 4), np.float32),
    )
    placements = [[0, 1], [1, 0], [2, 3], [3, 2], [0, 3], [3, 0]]

    def seconds(*accelerator: int) -> list[float]:
        numbers = np.array(accelerator, np.int32)
        return _evaluate(graph, costs._replace(accelerator=numbers), placements)

    # Sending costs at most 3, 60, 900, 1200 from each device; receiving 1000, 1100, 1200, 900.
    assert seconds(0, 1, 2, 3) == [1100, 1000, 900, 1200, 900, 1200]
    # Through device 1: sending 1, 0, 800, 1100; receiving 40, 0, 50, 60.
    assert seconds(7, -1, 0, 2) == [1, 40, 800, 1100, 60, 1100]
    # Device 3 is a host too: it pays nothing, but what passes by it still takes the first.
    assert seconds(7, -1, 0, -1) == [1, 40, 800, 50, 1, 40]
    assert seconds(-1, -1, -1, -1) == [0, 0, 0, 0, 0, 0]
