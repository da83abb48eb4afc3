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


@pytest.mark.slow
@pytest.mark.parametrize("size", reference.SIZES, ids=str)
def test_equals_the_reference_on_random_problems(size):
    for problem, placements in reference.random_problems("max_load", size):
        expected = reference.latencies(problem, placements)
        np.testing.assert_array_equal(problem.evaluate(placements), expected)


def test_random_problems_cover_what_the_objective_must_get_right():
    expected = {
        *("no host", "one device, no host", "several hosts", "hosts alone", "unsupported"),
        *("a host that is not the first", "unlinked", "a host is busiest", "communication"),
        "computing alone",
    }
    seen = set()
    for problem, placements in reference.problems_of_sizes("max_load", reference.SIZES):
        p = reference.plain(problem)
        hosts = [device for device, number in enumerate(p.accelerator) if number < 0]
        several = p.num_devices > 1
        seen |= {"no host"} if several and not hosts else set()
        seen |= {"one device, no host"} if not several and not hosts else set()
        seen |= {"several hosts"} if len(hosts) > 1 else set()
        seen |= {"hosts alone"} if several and len(hosts) == p.num_devices else set()
        seen |= {"a host that is not the first"} if hosts and hosts[0] > 0 else set()
        for placement in placements.tolist():
            loads = [reference.load(p, placement, device) for device in range(p.num_devices)]
            busiest = loads.index(max(loads))
            computing = sum(
                p.compute_s[op][busiest] for op in range(p.num_ops) if placement[op] == busiest
            )
            seen |= {"unsupported"} if computing == np.inf else set()
            seen |= {"unlinked"} if max(loads) == np.inf > computing else set()
            seen |= {"a host is busiest"} if busiest in hosts and several else set()
            seen |= {"communication"} if np.inf > max(loads) > computing else set()
            seen |= {"computing alone"} if max(loads) == computing < np.inf else set()
        if seen == expected:
            break
    assert seen == expected


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0], 3),
        ([1, 1, 1], 6),
        ([0, 1, 1], 4 + 110),  # device 0 sends op0's tensor: 1 + 110
        ([0, 0, 1], 2 + 120),  # ties with device 1: 2 + 120
        ([0, 1, 0], 2 + 110 + 120),
        ([1, 2, 1], 4 + 110 + 120),  # ties but for computing with device 2: 3 + 110 + 120
    ],
)
def test_chain_by_hand(placement, seconds):
    graph = helpers.chain(3)
    assert _evaluate(graph, unit_costs(graph, 3), [placement]) == [seconds]


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
def test_fork_join_beside_a_host_by_hand(placement, seconds):
    graph = helpers.fork_join(branches=3)
    costs = unit_costs(graph, accelerator=np.array([-1, 0], np.int32))
    assert _evaluate(graph, costs, [placement]) == [seconds]


def test_tensors_pass_through_the_first_host_or_else_the_costliest_link():
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


def test_a_tensors_own_crossing_cost_counts_at_either_end_and_a_cut_nowhere():
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


def test_two_accelerators_that_share_no_link_still_meet_at_the_host():
    graph = helpers.chain(2)
    latency_s = np.array([[0, 1, 1], [1, 0, np.inf], [1, np.inf, 0]], np.float32)
    costs = unit_costs(graph, 3, transfer_latency_s=latency_s)
    hosted = costs._replace(accelerator=np.array([-1, 0, 1], np.int32))
    assert _evaluate(graph, hosted, [[1, 2], [2, 1]]) == [3 + 11, 3 + 11]
    assert _evaluate(graph, costs, [[1, 2], [1, 1]]) == [np.inf, 4]


def test_an_unsupported_operation_makes_only_its_placements_infinite():
    graph = helpers.chain(2)
    costs = unit_costs(graph, compute_s=np.array([[1, 2], [1, np.inf]], np.float32))
    value = _evaluate(graph, costs, helpers.all_placements(2, 2).tolist())
    assert value == [2, np.inf, 2 + 110, np.inf]


@pytest.mark.parametrize("num_devices", [8, 9])
def test_the_last_of_many_devices_counts_like_any_other(num_devices):
    last = num_devices - 1
    graph = helpers.diamond()
    value = _evaluate(graph, unit_costs(graph, num_devices), [[0, last, 1, last], [last] * 4])
    # The last device takes the tensors of op0 and op2, and computes twice.
    assert value == [2 * num_devices + 110 + 140, 4 * num_devices]


def test_a_graph_without_edges_costs_its_computation():
    graph = helpers.chain(1)
    assert _evaluate(graph, unit_costs(graph), [[0], [1]]) == [1, 2]


@few
@hypothesis.given(SEEDS)
def test_lies_between_computing_and_everything_that_crosses(seed):
    problem, placements = reference.random_problem(np.random.default_rng(seed), "max_load", SIZE)
    p = reference.plain(problem)
    fastest = problem.costs.compute_s.min(axis=1).sum()
    for placement, seconds in zip(
        placements.tolist(), problem.evaluate(placements).tolist(), strict=True
    ):
        computing = [0.0] * p.num_devices
        for op, device in enumerate(placement):
            computing[device] += p.compute_s[op][device]
        costliest = sum(
            max(reference.transfer(p, tensor, s, d) for s in range(3) for d in range(3))
            for tensor in p.tensors
        )
        assert max(computing) <= seconds <= max(computing) + costliest
        assert seconds >= fastest / p.num_devices


@few
@hypothesis.given(SEEDS)
def test_hosts_alone_share_nothing_but_the_computing(seed):
    problem, placements = reference.random_problem(np.random.default_rng(seed), "max_load", SIZE)
    hosts = problem.costs._replace(accelerator=np.full(3, -1, np.int32))
    chosen = placements[:, :, None] == np.arange(3)
    expected = np.where(chosen, problem.costs.compute_s, 0).sum(axis=1).max(axis=1)
    value = problem._replace(costs=hosts).evaluate(placements)
    np.testing.assert_array_equal(value, expected)
