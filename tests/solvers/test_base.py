"""The rounding of values."""

import numpy as np
import pytest

from placement import methods, suite
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status
from tests import helpers


@pytest.mark.parametrize("direction", [-1, 1])
def test_long_sums_keep_their_bound(direction):
    """Under `makespan`, 7,007 additions in float32 round by 2e-5 of the sum."""
    problem = suite.load("nmt_4_training-makespan")
    placement = problem.single_devices[0]
    exact_s = np.asarray(problem.costs.compute_s, np.float64)[:, 0].sum()
    rounding = problem.value_s(placement) / exact_s - 1
    assert abs(rounding) > base.ROUNDING
    bound_s = exact_s if direction > 0 else exact_s * (1 + 2 * rounding)
    result = Solution(placement, bound_s=bound_s, status=Status.OPTIMAL)
    limits = SearchLimits(60.0, 1)
    solution = methods.run("proof", lambda *_: result, problem, 0, limits)
    assert solution.status == "optimal"


def test_false_proofs_are_faults():
    problem = helpers.as_problem(helpers.chain(3), helpers.unit_costs(helpers.chain(3)), "serial")
    result = Solution(np.zeros(3, int), bound_s=2.0, status=Status.OPTIMAL)
    with pytest.raises(AssertionError, match=r"'optimal' at 3\.0, but the bound is 2\.0"):
        methods.run("proof", lambda *_: result, problem, 0, SearchLimits(60.0, 1))
