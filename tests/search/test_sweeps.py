import itertools

import numpy as np
import pytest

from placement.instance import Instance
from placement.search import sweeps
from tests.simulators import reference

SIZE = (30, 34, 24, 4)


def _swept(problem: Instance, placement: np.ndarray, cuts: list[int]) -> list[sweeps.Sweep]:
    """Both sweeps over all operations, from cut to cut; of a placement by priority."""
    graph, costs = problem.graph, problem.costs
    order = problem.priority_order
    position = np.argsort(order).astype(np.int32)
    compute_s = np.asarray(costs.compute_s)[order]
    both = []
    ends = position[graph.senders], position[graph.receivers]
    sides = sweeps.sides(len(order), *ends, problem.edge_delay_s)
    for side, backwards in zip(sides, (False, True), strict=True):
        both.append(sweeps.Sweep(side, compute_s, backwards=backwards))
        pairs = list(itertools.pairwise(cuts))
        for begin, end in reversed(pairs) if backwards else pairs:
            both[-1].advance(begin, end, placement[order])
    return both


@pytest.mark.parametrize("cuts", [[0, 30], [0, 1, 13, 13, 20, 30]], ids=str)
def test_the_longest_path_is_the_makespan_from_either_end(cuts):
    for problem, placements in reference.random_problems("makespan", SIZE):
        expected = reference.latencies(problem, placements)
        for placement, makespan_s in zip(placements, expected, strict=True):
            if np.isfinite(makespan_s):
                before, after = _swept(problem, placement, cuts)
                assert before.path_s.max() == pytest.approx(makespan_s, rel=1e-6)
                assert after.path_s.max() == pytest.approx(makespan_s, rel=1e-6)
                assert before.free_s.max() == before.path_s.max()


def test_a_path_through_an_operation_is_no_longer_than_the_makespan():
    problem, placements = next(iter(reference.random_problems("makespan", SIZE)))
    for placement in placements:
        before, after = _swept(problem, placement, [0, 10, 30])
        order = problem.priority_order
        own_s = np.asarray(problem.costs.compute_s)[order, placement[order]]
        through_s = before.path_s + after.path_s - own_s
        assert through_s.max() == pytest.approx(before.path_s.max(), rel=1e-6)
