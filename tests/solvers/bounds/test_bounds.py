import numpy as np
import pytest

from placement.solvers.bounds import counting
from tests import helpers
from tests.solvers import exhaustive


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "shared"), [("max_load", False), ("subgraph", True)])
def test_no_placement_is_below(objective, shared):
    bound = {"max_load": counting.bound_max_load, "subgraph": counting.bound_subgraph}[objective]
    tight = 0
    for problem in exhaustive.problems(objective, 60, shared=shared):
        bound_s = bound(problem)
        best_s = exhaustive.optimum(problem)
        assert bound_s <= best_s * (1 + 1e-6)
        tight += bound_s > 0.999 * best_s
    assert tight > 5


def test_total_load_is_shared():
    graph = helpers.chain(6)
    costs = helpers.unit_costs(graph, 2)
    # 6 operations at 1 or 2 seconds: 4 on the first device, 2 on the second.
    bound_s = counting.bound_max_load(helpers.as_problem(graph, costs, "max_load"))
    np.testing.assert_allclose(bound_s, 4.0, rtol=1e-6)


def test_pigeonhole_of_five_on_two_devices():
    heavy = counting.pigeonhole(np.array([[3.0, 3.0]] * 4 + [[2.5, 2.5], [0.1, 0.1]]))
    assert heavy.bound_s == 8.5  # three of the five share a device
    assert sorted(heavy.members.tolist()) == [0, 1, 2, 3, 4]
    assert heavy.capacity.tolist() == [2, 2]


def test_path_is_computed_at_the_fastest():
    graph = helpers.fork_join(2, 3)
    costs = helpers.unit_costs(graph, 3)
    costs.compute_s[1] = 7.0
    assert counting.bound_subgraph(helpers.as_problem(graph, costs, "subgraph")) == 1 + 7 + 3


def test_what_accelerators_cannot_hold_is_on_the_host():
    graph = helpers.chain(4)
    costs = helpers.unit_costs(
        graph,
        2,
        accelerator=np.array([0, -1], np.int32),
        memory_bytes=np.full(4, 10, np.float32),
        capacity_bytes=np.array([25, np.inf], np.float32),
    )
    # At 10 bytes each, 2.5 of 4 operations take 1 second, the others 2 seconds.
    bound_s = counting.bound_subgraph(helpers.as_problem(graph, costs, "subgraph"))
    np.testing.assert_allclose(bound_s, 2.5 + 3, rtol=1e-6)


def test_thousands_of_operations():
    rng = np.random.default_rng(0)
    graph = helpers.random_dag_of_size(rng, 2000, 4000, 2500)
    costs = helpers.random_costs(rng, graph, 4)
    fastest_s = costs.compute_s.min(axis=1)
    bound_s = counting.bound_max_load(helpers.as_problem(graph, costs, "max_load"))
    assert bound_s >= max(fastest_s.sum() / 4 * (1 - 1e-6), fastest_s.max())
