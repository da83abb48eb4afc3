import numpy as np
import pytest

from placement import methods
from tests import helpers
from tests.solvers import exhaustive


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shared", "num_devices", "count"), [(False, 3, 12), (True, 3, 12), (True, 4, 6)]
)
def test_equals_enumeration(shared, num_devices, count):
    for problem in exhaustive.problems(
        "subgraph", count, seed=5, shared=shared, num_devices=num_devices
    ):
        exhaustive.check(problem, methods.solve(problem, "cpsat"), exhaustive.optimum(problem))


def test_parts_do_not_wait_for_each_other_where_nothing_takes_time():
    graph = helpers.diamond()
    costs = helpers.unit_costs(
        graph,
        2,
        compute_s=np.zeros((4, 2), np.float32),
        transfer_latency_s=np.zeros((2, 2), np.float32),
        transfer_s_per_byte=np.zeros((2, 2), np.float32),
        memory_bytes=np.array([10, 20, 20, 10], np.float32),
        capacity_bytes=np.array([40, 20], np.float32),
    )
    # What fits separates the ends from both branches or from one, and then waits for itself.
    found = methods.solve(helpers.as_problem(graph, costs, "subgraph"), "cpsat")
    assert found.status == "infeasible"


def test_greedy_fills_accelerators_in_order():
    graph = helpers.chain(5)
    costs = helpers.unit_costs(
        graph,
        3,
        accelerator=np.array([0, 1, -1], np.int32),
        memory_bytes=np.full(5, 10, np.float32),
        capacity_bytes=np.array([20, 20, np.inf], np.float32),
    )
    found = methods.solve(helpers.as_problem(graph, costs, "subgraph"), "greedy")
    assert found.placement.tolist() == [0, 0, 1, 1, 2]
    assert found.status == "finished"
