"""What there is to gain at best, against all placements of small problems."""

import numpy as np
import pytest

from placement import simulators
from placement.pipeline import loading, target
from placement.pipeline.results import advice
from placement.pipeline.settings import Settings
from placement.problem import Problem
from tests import helpers


def advise(problem: Problem) -> advice.Advice:
    net = loading.Network(None, problem.graph, None, {})
    described = target.Target(net, problem.devices, problem.devices, (), problem.costs)
    return advice.estimate(described, problem, {}, Settings(time_limit_s=10.0))


@pytest.mark.parametrize("objective", list(simulators.OBJECTIVES))
def test_bound_holds_for_all_placements(objective):
    rng = np.random.default_rng(0)
    base = helpers.random_dag_of_size(rng, 6, 9, 6)
    for draw in range(5):
        graph = helpers.rewired(rng, base, colocated=0.4 * (draw % 2))
        problem = helpers.as_problem(graph, helpers.random_costs(rng, graph, 2), objective)
        values = np.asarray(problem.evaluate(helpers.every_placement(problem)))
        found = advise(problem)
        assert found.bound_s <= values.min() * (1 + 1e-6)
        if objective == "serial":
            assert found.optimal
            assert found.bound_s == pytest.approx(values.min(), rel=1e-5)
        assert found.fastest_s == pytest.approx(min(values[0], values[-1]))  # all on one device


def test_chain_is_the_longest_path():
    for graph, expected in ((helpers.chain(5), 1.0), (helpers.fork_join(4), 3 / 6)):
        compute_s = np.ones((graph.num_ops, 2), np.float32)
        compute_s[:, 0] = 2.0
        costs = helpers.unit_costs(graph, compute_s=compute_s)
        found = advise(helpers.as_problem(graph, costs, "makespan"))
        assert found.fastest == "single:device1"
        assert found.chain == pytest.approx(expected)


def test_single_device_may_be_missing():
    graph = helpers.chain(2)
    compute_s = np.float32([[1, np.inf], [np.inf, 1]])
    problem = helpers.as_problem(graph, helpers.unit_costs(graph, compute_s=compute_s), "makespan")
    found = advise(problem)
    assert np.isinf(found.fastest_s)
    assert np.isnan(found.chain)
    assert np.isfinite(found.bound_s)
