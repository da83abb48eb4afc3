"""PipeDream's planner on chains worked out by hand, and the limits of a stage."""

import numpy as np

from placement import methods
from placement.problem import Problem
from tests import helpers


def _chain(seconds: list[float], transfer_fixed_s: list[float], **changes: np.ndarray) -> Problem:
    """Returns a chain on three equal accelerators."""
    graph = helpers.chain(len(seconds))
    none = np.zeros((3, 3), np.float32)
    fields = {
        "compute_s": np.tile(np.array(seconds, np.float32)[:, None], 3),
        "transfer_fixed_s": np.array(transfer_fixed_s, np.float32),
        "transfer_latency_s": none,
        "transfer_s_per_byte": none,
    }
    costs = helpers.unit_costs(graph, 3, **{**fields, **changes})
    return helpers.as_problem(graph, costs, "max_load")


def test_balances_computing():
    found = methods.solve(_chain([3, 1, 2, 2, 1], [0, 0, 0, 0]), "pipedream")
    assert found.placement.tolist() == [0, 1, 1, 2, 2]
    assert (found.value_s, found.status) == (3, "finished")


def test_plans_overlap_crossings():
    """Cutting before the last plans max(4, 3) = 4, where the load is 4 + 3; one device takes 5."""
    found = methods.solve(_chain([4, 1], [3]), "pipedream")
    assert len(set(found.placement.tolist())) == 2
    assert found.value_s == 7
    assert methods.solve(_chain([4, 1], [3]), "ideals_dp").value_s == 5


def test_memory_limits_a_stage():
    problem = _chain(
        [0, 0, 9],
        [1, 1],
        memory_bytes=np.ones(3, np.float32),
        capacity_bytes=np.ones(3, np.float32),
    )
    assert len(set(methods.solve(problem, "pipedream").placement.tolist())) == 3
