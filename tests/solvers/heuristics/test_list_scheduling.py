"""List scheduling: the papers' example graphs, what is unlike them, and favourite children."""

import numpy as np
import pytest

from placement import methods
from placement.problem import Problem
from placement.simulators import ranks
from placement.solvers.heuristics import baechi
from placement.solvers.limits import SearchLimits
from tests import helpers
from tests.simulators import reference
from tests.solvers.heuristics import plain_schedules


def _problem(seconds: list[list[float]], edges: list[tuple[int, int, int]]) -> Problem:
    """Operations 1, 2, ... and edges (sender, receiver, delay between any two devices)."""
    ends = [(sender - 1, receiver - 1) for sender, receiver, _ in edges]
    delays = [delay for *_, delay in edges]
    graph = helpers.build("example", len(seconds), ends, delays, tensors=np.arange(len(edges)))
    num_devices = len(seconds[0])
    costs = helpers.unit_costs(
        graph,
        num_devices,
        compute_s=np.array(seconds, np.float32),
        transfer_latency_s=np.zeros((num_devices, num_devices), np.float32),
    )
    return helpers.as_problem(graph, costs, "makespan")


def heft_example() -> Problem:
    """Topcuoglu et al. 2002, figure 2."""
    seconds = [[14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10]]
    seconds += [[13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16]]
    edges = [(1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16)]
    edges += [(3, 7, 23), (4, 8, 27), (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17)]
    return _problem(seconds, [*edges, (8, 10, 11), (9, 10, 13)])


def peft_example() -> Problem:
    """The example graph of Arabnejad and Barbosa 2014."""
    seconds = [[22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35]]
    seconds += [[26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8], [13, 16, 33]]
    edges = [(1, 2, 17), (1, 3, 31), (1, 4, 29), (1, 5, 13), (1, 6, 7), (2, 8, 3), (2, 9, 30)]
    edges += [(3, 7, 16), (4, 8, 11), (4, 9, 7), (5, 9, 57), (6, 8, 5), (7, 10, 9)]
    return _problem(seconds, [*edges, (8, 10, 42), (9, 10, 7)])


def test_heft_schedules_paper_example():
    problem = heft_example()
    rank = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    np.testing.assert_allclose(problem.upward_rank, rank, atol=1e-3)
    solution = methods.solve(problem, "heft")
    assert solution.placement.tolist() == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]
    assert solution.value_s == 80


def test_peft_schedules_paper_example():
    problem = peft_example()
    table = ranks.optimistic_cost_s(
        problem.graph,
        np.asarray(problem.costs.compute_s, np.float64),
        problem.mean_edge_delay_s,
        problem.topological_order,
    )
    assert table[0].tolist() == [64, 68, 86]
    assert table[7].tolist() == [13, 16, 33]
    assert methods.solve(problem, "peft").value_s == 122
    assert methods.solve(problem, "heft").value_s == 133


def test_m_topo_fills_devices():
    graph = helpers.chain(6)
    costs = helpers.unit_costs(
        graph,
        3,
        memory_bytes=np.array([4, 4, 4, 2, 2, 2], np.float32),
        accelerator=np.array([-1, 0, 1], np.int32),
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    # Two accelerators: 18 / 2 + 4 = 13 holds 4 + 4 + 4, not 2 more; nothing is left to the host.
    assert methods.solve(problem, "m_topo").placement.tolist() == [1, 1, 1, 2, 2, 2]
    small = costs._replace(capacity_bytes=np.array([np.inf, 8, 4], np.float32))
    placement = methods.solve(problem._replace(costs=small), "m_topo").placement
    assert placement.tolist() == [1, 1, 2, 0, 0, 0]


@pytest.mark.parametrize("size", [size for size in reference.SIZES if size[0] >= 8])
def test_schedules_equal_plain_ones(size):
    # With parallel edges, operations apart, several outputs, and numbers in no order.
    rng, num_placements = np.random.default_rng(3), 0
    for _ in range(12):
        problem, _ = reference.random_problem(
            rng, "makespan", size, colocated=0.2, limited=0.2, shared=True
        )
        for method in ("heft", "peft", "m_etf"):
            expected = getattr(plain_schedules, method)(problem)
            placement = methods.METHODS[method].load()(problem, 0, SearchLimits(10, 1)).placement
            assert (placement if placement is None else placement.tolist()) == expected, method
            num_placements += expected is not None
    assert num_placements >= 15


def test_heft_replaces_late_schedules():
    problem = heft_example()
    heft = methods.METHODS["heft"].load()(problem, 0, SearchLimits(10, 1)).placement
    early = baechi.m_etf(problem, 0, SearchLimits(10, 1)).placement
    late = baechi.m_etf(problem, 0, SearchLimits(0, 1)).placement
    np.testing.assert_array_equal(late, heft)
    assert early.tolist() != late.tolist()
