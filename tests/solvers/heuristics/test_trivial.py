"""Placements without a search, on a chain whose cuts are counted by hand."""

import numpy as np
import pytest

from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from tests import helpers


@pytest.mark.parametrize(("first", "second"), [(6, 6), (4, 8), (8, 4)])
def test_slices_fit_accelerators(first, second):
    """Only one cut fits into the memory of the accelerators; without one, the first is as fast."""
    graph = helpers.chain(12)
    costs = helpers.unit_costs(
        graph,
        3,
        compute_s=np.tile(np.float32([1, 1, 1]), (12, 1)),
        memory_bytes=np.ones(12, np.float32),
        capacity_bytes=np.float32([0, first, second]),
        accelerator=np.array([-1, 0, 1], np.int32),
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    result = trivial.slices(problem, 0, SearchLimits(10, 10))
    assert result.placement.tolist() == [1] * first + [2] * second
