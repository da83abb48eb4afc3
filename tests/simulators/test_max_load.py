import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference

SEEDS = st.integers(0, 2**32 - 1)
SIZE = (8, 12, 6, 3)
few = hypothesis.settings(max_examples=25, deadline=None)


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


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0, 0], 5),
        ([1, 1, 1, 1, 1], 10),
        # The host receives nothing at a cost; the accelerator takes op0's tensor and sends two.
        ([0, 1, 1, 0, 0], 4 + 110 + 110 + 110),
        # Three tensors come back to the accelerator and one leaves it.
        ([1, 0, 0, 0, 1], 4 + 110 + 110 + 110 + 110),
        # op0's tensor is read on both sides, so the accelerator sends it once.
        ([1, 1, 1, 1, 0], 8 + 110 + 110 + 110),
    ],
)
def test_fork_join_with_a_host(placement, seconds):
    graph = helpers.fork_join(branches=3)
    costs = unit_costs(graph, accelerator=np.array([-1, 0], np.int32))
    assert _evaluate(graph, costs, [placement]) == [seconds]


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


def test_fixed_transfers_count_at_ends():
    graph = helpers.diamond()
    costs = unit_costs(
        graph,
        transfer_fixed_s=np.array([1000, 1000, 2000, 4000], np.float32),
        fusion_loss_s=np.full(4, 50000, np.float32),
    )
    # Device 1 receives op0's tensor and computes 6; then computes 4 and sends two back.
    assert _evaluate(graph, costs, [[0, 1, 1, 1], [0, 1, 1, 0]]) == [
        6 + 1110,
        4 + 1110 + 2130 + 4140,
    ]


def test_unlinked_accelerators_meet_at_host():
    graph = helpers.chain(2)
    latency_s = np.array([[0, 1, 1], [1, 0, np.inf], [1, np.inf, 0]], np.float32)
    costs = unit_costs(graph, 3, transfer_latency_s=latency_s)
    hosted = costs._replace(accelerator=np.array([-1, 0, 1], np.int32))
    assert _evaluate(graph, hosted, [[1, 2], [2, 1]]) == [3 + 11, 3 + 11]
    assert _evaluate(graph, costs, [[1, 2], [1, 1]]) == [np.inf, 4]


@few
@hypothesis.given(SEEDS)
def test_hosts_alone_only_compute(seed):
    problem, placements = reference.random_problem(np.random.default_rng(seed), "max_load", SIZE)
    hosts = problem.costs._replace(accelerator=np.full(3, -1, np.int32))
    chosen = placements[:, :, None] == np.arange(3)
    expected = np.where(chosen, problem.costs.compute_s, 0).sum(axis=1).max(axis=1)
    value = problem._replace(costs=hosts).evaluate(placements)
    np.testing.assert_array_equal(value, expected)
