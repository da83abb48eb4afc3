import itertools

import jax
import numpy as np
import pytest

from placement.simulators import makespan
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import two_apart
from tests.simulators import reference

TIMED_SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices
_latency = jax.jit(makespan.latency)
_timing = jax.jit(makespan.compute_schedule)


def _evaluate(graph: OpGraph, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    problem = helpers.as_problem(graph, costs, "makespan")
    return np.asarray(problem.evaluate(placements))


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 4),
        ([1, 1, 1, 1], 8),
        # op0 0-1; op1 on device 1 3-5 while op2 on device 0 1-2; op3 waits for op1 until 7.
        ([0, 1, 0, 0], 8),
        # op0's tensor is at both branches at 3: op1 3-5, op2 3-6; op3 waits for op2 until 8.
        ([0, 1, 2, 0], 9),
        # Both branches on device 1: op1 3-5, op2 5-7; op3 waits for op2 until 9.
        ([0, 1, 1, 0], 10),
        ([0, 1, 1, 1], 9),  # op3 follows op2 at once
        ([1, 0, 0, 0], 2 + 2 + 3),
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    assert _evaluate(graph, two_apart(graph, 3), np.array([placement])).tolist() == [seconds]


def test_devices_keep_their_order():
    # op0 -> op1, and op2 alone. Ranks 11, 4 and 3: device 0 runs op1 before op2.
    graph = helpers.build("two", 3, [(0, 1)])
    compute_s = np.array([[5, 5], [4, 4], [3, 3]], np.float32)
    costs = two_apart(graph, compute_s=compute_s)
    # op0 on device 1 0-5, op1 7-11, op2 11-14; with op2 first the end would be at 11.
    assert _evaluate(graph, costs, np.array([[1, 0, 0]])).tolist() == [14]
    # With op2 longer than op1 it goes first: op2 0-5, op0 0-5, op1 7-11.
    longer = costs._replace(compute_s=np.array([[5, 5], [4, 4], [5, 5]], np.float32))
    assert _evaluate(graph, longer, np.array([[1, 0, 0]])).tolist() == [11]


def test_host_sweep_equals_simulator():
    drawn = reference.random_problems("makespan", TIMED_SIZE)
    for problem, placements in itertools.islice(drawn, 8):
        tables, placement = problem.makespan_tables, placements[2]
        times = jax.device_get(_timing(tables, placement))
        finish_s = makespan.sweep_on_host(tables, placement)
        np.testing.assert_array_equal(finish_s, times.finish_s)
        if np.isfinite(finish_s).all():
            rest_s = makespan.sweep_on_host(tables, placement, backwards=True)
            seconds = tables.compute_s[tables.steps.last]
            ops = tables.steps.op[tables.steps.last]
            op_compute_s = seconds[np.arange(len(ops)), placement[ops]][np.argsort(ops)]
            np.testing.assert_allclose(rest_s, times.tail_s + op_compute_s, rtol=1e-5)


def test_operations_may_last_their_slack():
    drawn = reference.random_problems("makespan", TIMED_SIZE)
    for problem, placements in itertools.islice(drawn, 8):
        finite = np.isfinite(problem.costs.compute_s)
        compute_s = np.where(finite, problem.costs.compute_s, 1.0)
        problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
        tables, placement = problem.makespan_tables, placements[2]
        latency_s = float(_latency(tables, placement[:, None])[0])
        if np.isinf(latency_s):  # there may be no way between two devices
            continue
        times = _timing(tables, placement)
        assert float(times.latency_s) == pytest.approx(latency_s, rel=1e-6)
        op_compute_s = np.take_along_axis(compute_s, placement[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(times.finish_s - times.start_s, op_compute_s, rtol=1e-4)
        assert np.min(times.slack_s) == pytest.approx(0, abs=1e-5 * latency_s)
        for op, slack_s in enumerate(np.asarray(times.slack_s).tolist()):
            for longer_s, later_s in ((slack_s, 0.0), (slack_s + latency_s, latency_s)):
                # The order of priority stays as it is.
                step_s = tables.compute_s + np.where(tables.steps.op == op, longer_s, 0)[:, None]
                changed = tables._replace(compute_s=step_s.astype(np.float32))
                assert float(_latency(changed, placement[:, None])[0]) == pytest.approx(
                    latency_s + later_s, rel=1e-4
                )
