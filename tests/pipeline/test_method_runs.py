"""Rows of methods on present devices that share cores."""

import types

import numpy as np
import pytest

from placement.pipeline import method_runs
from placement.types import Solution, Status
from tests import helpers

CORES = np.array([[True, True], [True, False], [False, True]])


def make_case(single_s, *, resources=CORES, is_present=True, evaluate="simulate+verify"):
    """One operation and a source that takes no time, on three devices."""
    graph = helpers.chain(2)
    compute_s = np.array([[0, 0, 0], single_s], np.float32)
    costs = helpers.unit_costs(graph, 3, compute_s=compute_s, resources=resources)
    settings = types.SimpleNamespace(evaluate=evaluate)
    target = types.SimpleNamespace(present=("a device",) if is_present else ())
    context = types.SimpleNamespace(settings=settings, target=target)
    return context, helpers.as_problem(graph, costs, "makespan")


@pytest.mark.parametrize(
    ("value_s", "is_replaced"), [(0.97, False), (0.99, True), (1.0, False), (1.2, False)]
)
def test_a_gain_below_the_error_of_predictions_does_not_count(value_s, is_replaced):
    solution = Solution(np.array([1, 2], np.int32), value_s=value_s, status=Status.OPTIMAL)
    checked = method_runs._require_gain(*make_case([1, 2, 2]), solution)
    assert checked.placement.tolist() == ([0, 0] if is_replaced else [1, 2])
    assert checked.value_s == (1.0 if is_replaced else value_s)
    # The proof was about the other placement, and the table says why it is not used.
    assert checked.status == (Status.FINISHED if is_replaced else Status.OPTIMAL)
    assert ("error of predictions" in checked.reason) == is_replaced


@pytest.mark.parametrize(
    "options", [{"resources": None}, {"is_present": False}, {"evaluate": "measure"}]
)
def test_other_devices_and_measured_values_keep_every_gain(options):
    solution = Solution(np.array([1, 2], np.int32), value_s=0.99)
    assert method_runs._require_gain(*make_case([1, 2, 2], **options), solution) is solution
