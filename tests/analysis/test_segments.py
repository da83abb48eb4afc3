import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from placement.analysis import segments
from placement.problem import Problem
from placement.types import CostModel, OpGraph, SegmentCosts
from tests import helpers
from tests.helpers import two_apart
from tests.simulators import reference

SEEDS = st.integers(0, 2**32 - 1)
few = hypothesis.settings(max_examples=30, deadline=None)


def _problem(graph: OpGraph, costs: CostModel) -> Problem:
    return helpers.as_problem(graph, costs, "makespan")


def _random(seed: int, **options: float) -> tuple[Problem, np.ndarray]:
    """A random problem of up to 24 operations on up to four devices, and a placement."""
    rng = np.random.default_rng(seed)
    num_devices = int(rng.integers(1, 5))
    num_ops = int(rng.integers(1, 25))
    graph = helpers.random_dag(rng, num_ops, edge_probability=rng.choice([0.1, 0.3]))
    costs = helpers.random_costs(rng, graph, num_devices, **options)
    (placement,) = helpers.random_placements(rng, graph, num_devices, 3)[[rng.integers(3)]]
    return _problem(graph, costs), placement


def _latency_s(problem: Problem, placement: np.ndarray) -> float:
    return segments.schedule(problem, placement, segments.cut(problem, placement)).latency_s


def _as_lists(found: segments.Segments) -> list[list[int]]:
    return [ops.tolist() for ops in found]


def _part_of(problem: Problem, found: segments.Segments) -> np.ndarray:
    part = np.full(problem.graph.num_ops, -1)
    for number, ops in enumerate(found):
        part[ops] = number
    return part


def _finish_s(problem: Problem, placement: np.ndarray, found: segments.Segments) -> list[float]:
    """When each segment ends, by the module's formula in plain Python."""
    graph, costs = problem.graph, problem.costs
    part = _part_of(problem, found).tolist()
    finish: list[float] = []
    free = [0.0] * len(problem.devices)
    for number, ops in enumerate(found):
        device = int(placement[ops[0]])
        start, busy = free[device], 0.0
        for op in ops.tolist():
            busy += float(costs.compute_s[op, device])
            lost = 0.0
            for edge in np.flatnonzero(graph.receivers == op).tolist():
                sender = int(graph.senders[edge])
                if part[sender] == number:
                    continue
                source = int(placement[sender])
                arrival = finish[part[sender]]
                if source != device:
                    arrival += float(
                        costs.transfer_latency_s[source, device]
                        + costs.transfer_fixed_s[edge]
                        + graph.edge_bytes[edge] * costs.transfer_s_per_byte[source, device]
                    )
                start, lost = max(start, arrival), max(lost, float(costs.fusion_loss_s[edge]))
            busy += lost
        free[device] = start + busy
        finish.append(start + busy)
    return finish


def test_a_diamond_by_hand():
    """0, 1 and 3 on a device where each takes 1, 2 on one where it takes 2; transfers take 2.

    0 ends at 1, 2 runs from 3 to 5, and what it computes arrives at 7. 1 runs before that: in one
    segment with 0 it would delay 2, and in one with 3 it would begin at 7 itself.
    """
    problem = _problem(helpers.diamond(), two_apart(helpers.diamond()))
    placement = np.array([0, 0, 1, 0], np.int32)
    assert problem.priority_order.tolist() == [0, 1, 2, 3]
    found = segments.cut(problem, placement)
    # 1 and 3 together start at 7 and end at 9, apart 3 ends at 8; 0 and 1 together delay 2 by 1.
    assert _as_lists(found) == [[0], [1], [2], [3]]
    run = segments.schedule(problem, placement, found)
    assert run.start_s.tolist() == [0, 1, 3, 7]
    assert run.finish_s.tolist() == [1, 2, 5, 8]
    assert run.latency_s == _latency_s(problem, placement) == 8


def test_expensive_cuts_are_undone():
    """As above, but 1 takes up again what 0 wrote, for 3: it runs at 1 to 5, and 2 to 5 still."""
    graph = helpers.diamond()
    costs = two_apart(graph, fusion_loss_s=np.array([3, 0, 0, 0], np.float32))
    problem, placement = _problem(graph, costs), np.array([0, 0, 1, 0], np.int32)
    assert _as_lists(segments.cut(problem, placement)) == [[0], [1], [2], [3]]
    assert _latency_s(problem, placement) == 8
    # For 9, it would run to 11, and 3 to 12. With 0 instead: to 2, then 2 from 4 to 6, and 3 to 9.
    costs = two_apart(graph, fusion_loss_s=np.array([9, 0, 0, 0], np.float32))
    problem = _problem(graph, costs)
    found = segments.cut(problem, placement)
    assert _as_lists(found) == [[0, 1], [2], [3]]
    run = segments.schedule(problem, placement, found)
    assert run.start_s.tolist() == [0, 4, 8]
    assert run.finish_s.tolist() == [2, 6, 9]


@few
@hypothesis.given(seed=SEEDS)
@pytest.mark.parametrize("unsupported", [0.0, 0.1])
def test_segments_partition_operations(seed, unsupported):
    problem, placement = _random(seed, unsupported=unsupported)
    graph = problem.graph
    found = segments.cut(problem, placement)
    assert sorted(np.concatenate(found).tolist()) == list(range(graph.num_ops))
    for ops in found:
        assert len(set(placement[ops].tolist())) == 1
    part = _part_of(problem, found)
    assert (part[graph.senders] <= part[graph.receivers]).all()
    position = np.argsort(np.concatenate(found))
    assert (position[graph.senders] < position[graph.receivers]).all()
    rank = np.argsort(problem.priority_order)
    for device in set(placement.tolist()):  # in the order of the objective
        order = [rank[op] for op in np.concatenate(found) if placement[op] == device]
        assert order == sorted(order)


@few
@hypothesis.given(seed=SEEDS)
def test_schedule_follows_the_formula(seed):
    problem, placement = _random(seed, transfer=True)
    alone = tuple(np.array([op]) for op in problem.priority_order)
    for found in (segments.cut(problem, placement), alone):
        run = segments.schedule(problem, placement, found)
        finish_s = _finish_s(problem, placement, found)
        assert run.finish_s.tolist() == finish_s
        assert run.latency_s == max(finish_s)


@few
@hypothesis.given(seed=SEEDS)
def test_free_cuts_equal_the_objective(seed):
    """Cuts are undone only where that delays nothing."""
    problem, placement = _random(seed)
    costs = problem.costs._replace(fusion_loss_s=0 * problem.costs.fusion_loss_s)
    expected = reference.makespan(
        reference.plain(problem._replace(costs=costs)), placement.tolist()
    )
    assert _latency_s(problem._replace(costs=costs), placement) == expected


def test_segments_launch_once():
    """Two readers of another device's tensors in one segment: they lose 5 and 7, of which 3 is the
    launch; and 7 and 2, the second less than a launch.
    """
    graph = helpers.build("joint", 4, [(0, 2), (1, 3), (2, 3)])
    for lost, sum_s in (([5, 7], 5 + 4), ([7, 2], 7 + 0)):
        costs = two_apart(graph, fusion_loss_s=np.array([*lost, 0], np.float32))
        lost_s = np.repeat(costs.fusion_loss_s[:, None], 2, axis=1)
        launch_s = np.full(2, 3, np.float32)
        costs = costs._replace(segment_costs=SegmentCosts(lost_s, launch_s))
        problem, placement = _problem(graph, costs), np.array([0, 0, 1, 1], np.int32)
        found = (np.array([0, 1]), np.array([2, 3]))
        run = segments.schedule(problem, placement, found)
        assert run.latency_s == 2 + 2 + (2 + 2 + sum_s)
