"""Who may decide what, and what calibration draws."""

import numpy as np
import pytest

from experiments import build, profile
from placement.types import Problem
from tests import helpers


def test_co_located_operations_run_where_all_of_them_can():
    graph = helpers.random_dag(np.random.default_rng(0), 30, colocated=0.5)
    costs = helpers.random_costs(np.random.default_rng(1), graph, 3, unsupported=0.3)
    allowed = build.allowed(Problem(graph, costs, "serial", ("a", "b", "c")))
    for op in range(graph.num_ops):
        together = graph.colocation == graph.colocation[op]
        np.testing.assert_array_equal(allowed[op], np.isfinite(costs.compute_s[together]).all(0))


@pytest.mark.parametrize("num_ops", [1, 2, 40])
def test_calibration_draws_both_kinds_of_placements(num_ops):
    drawn = profile._draw(np.random.default_rng(0), (num_ops, 3), 20)
    assert [kind for kind, _ in drawn] == ["contiguous", "fine-grained"] * 10
    for kind, placement in drawn:
        assert placement.shape == (num_ops,)
        assert set(placement) <= {0, 1, 2}
        if kind == "contiguous" and num_ops > 1:
            assert 1 <= np.count_nonzero(np.diff(placement)) <= 8
