"""The view of costs: the simulator's answers at any padded size."""

import itertools

import jax
import numpy as np
import pytest

from placement import simulators
from placement.policies.cost_features import cost_view
from placement.simulators import makespan
from tests import helpers
from tests.simulators import reference

SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices
_simulate = jax.jit(simulators.OBJECTIVES["makespan"].simulate)
_latency = jax.jit(lambda costs, placement: makespan.latency(costs.simulator, placement))


@pytest.mark.parametrize("size", [(11, 21), (16, 25)])
def test_simulator_is_makespan(size):
    for problem, placements in itertools.islice(reference.random_problems("makespan", SIZE), 20):
        padded = np.pad(placements.T, ((0, size[0] - 10), (0, 0)))
        latency_s = _latency(cost_view(problem, *size), padded)
        expected = _simulate(problem.tables, placements)
        np.testing.assert_array_equal(latency_s, expected.latency_s)


def test_diamond_by_hand():
    graph = helpers.diamond()
    costs = helpers.unit_costs(graph)
    unsupported = np.array([[1, 2], [1, 2], [np.inf, 2], [1, 2]], np.float32)
    problem = helpers.as_problem(graph, costs._replace(compute_s=unsupported), "serial")
    view = cost_view(problem, 6, 5)
    np.testing.assert_array_equal(view.compute_s, [*unsupported, [0, 0], [0, 0]])
    assert view.senders.tolist() == [0, 0, 1, 2, 6]
    assert view.receivers.tolist() == [1, 2, 3, 3, 6]
    assert view.delay_s[:, 0, 1].tolist() == [110, 110, 130, 140, 0]
    assert view.delay_s[:, 0, 0].tolist() == [0] * 5
    assert view.num_steps == 4
    # op2's longer way makes it due before op1; nothing is written to a row of an operation beyond.
    assert view.steps.op[:4].tolist() == [0, 2, 1, 3]
    assert view.steps.output.tolist() == [0, 2, 1, 3, 7, 7, 7, 7]
    assert view.policy_tables is None


def test_parallel_edges_are_merged():
    """Both carry the tensor of 10 bytes from op0 to op1; one costs a fusion too."""
    graph = helpers.build("parallel", 2, [(0, 1), (0, 1)])
    lost = np.array([0, 50], np.float32)
    costs = helpers.unit_costs(graph, fusion_loss_s=lost)
    view = cost_view(helpers.as_problem(graph, costs, "makespan"), 3, 2)
    assert view.senders.tolist() == [0, 3]
    assert view.delay_s[:, 0, 1].tolist() == [160, 0]
