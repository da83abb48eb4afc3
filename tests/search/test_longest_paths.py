import itertools

import numpy as np
import pytest

from placement.problem import Problem
from placement.search import longest_paths
from tests.simulators import reference

SIZE = (30, 34, 24, 4)


def _sweep_both_ways(
    problem: Problem, placement: np.ndarray, cuts: list[int]
) -> list[longest_paths.PathSweep]:
    """Sweeps forwards and backwards over all operations, from cut to cut."""
    graph, costs = problem.graph, problem.costs
    order = problem.priority_order
    position = np.argsort(order).astype(np.int32)
    compute_s = np.asarray(costs.compute_s)[order]
    sweeps = []
    ends = position[graph.senders], position[graph.receivers]
    incident_edges = longest_paths.make_incident_edges(len(order), *ends, problem.edge_delay_s)
    for edges, backwards in zip(incident_edges, (False, True), strict=True):
        sweeps.append(longest_paths.PathSweep(edges, compute_s, backwards=backwards))
        pairs = list(itertools.pairwise(cuts))
        for begin, end in reversed(pairs) if backwards else pairs:
            sweeps[-1].advance(begin, end, placement[order])
    return sweeps


@pytest.mark.parametrize("cuts", [[0, 30], [0, 1, 13, 13, 20, 30]], ids=str)
def test_longest_paths_equal_the_makespan(cuts):
    for problem, placements in reference.random_problems("makespan", SIZE):
        expected = reference.latencies(problem, placements)
        for placement, makespan_s in zip(placements, expected, strict=True):
            if np.isfinite(makespan_s):
                forward, backward = _sweep_both_ways(problem, placement, cuts)
                assert forward.path_s.max() == pytest.approx(makespan_s, rel=1e-6)
                assert backward.path_s.max() == pytest.approx(makespan_s, rel=1e-6)
                assert forward.device_free_s.max() == forward.path_s.max()
