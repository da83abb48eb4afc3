"""What policies read of a problem."""

import numpy as np
import pytest

from placement.costs import tables
from placement.graphs import coarsen
from placement.policies import base, placeto
from tests import helpers


def test_of_many_operations_policies_look_at_groups_that_the_same_devices_run(monkeypatch):
    monkeypatch.setattr(base, "LARGEST", 19)
    monkeypatch.setattr(base, "GROUPS", 4)
    problem = helpers.random_problem()
    compute_s = np.array(problem.costs.compute_s)
    compute_s[::3, 1] = np.inf
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    graph, assignment = base.operations(problem)
    num_groups = int(graph.nodes["mask"].sum())
    assert assignment.shape == (20,)
    assert sorted(set(assignment.tolist())) == list(range(num_groups))
    assert num_groups < 20
    allowed = np.asarray(graph.nodes["allowed"])[assignment]
    np.testing.assert_array_equal(allowed, np.isfinite(compute_s))
    # Co-located operations are never in different groups: such problems are read whole.
    graph, _ = base.operations(helpers.random_problem(colocated=0.5))
    assert len(graph.nodes["mask"]) > 20


def test_groups_are_those_of_sole_consumers():
    problem = helpers.random_problem()
    graph, assignment = base.groups(problem)
    expected = coarsen.sole_consumers(problem.graph).assignment
    np.testing.assert_array_equal(assignment, expected)
    assert graph.nodes["mask"].sum() == expected.max() + 1 < problem.graph.num_ops


@pytest.mark.parametrize("read", [base.operations, base.groups, placeto.read])
def test_of_co_located_operations_the_first_decides(read):
    problem = helpers.random_problem(colocated=0.5)
    graph, assignment = read(problem)
    leaders = np.unique(assignment)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert len(leaders) < problem.graph.num_ops
    allowed = np.asarray(graph.nodes["allowed"])[: problem.graph.num_ops]
    np.testing.assert_array_equal(allowed, tables.allowed(problem))


def test_costs_are_read_at_the_padded_size():
    problem = helpers.random_problem()
    sizes = []

    def view(given, *size):
        assert given is problem
        sizes.append(size)
        return np.float32(7)

    graph, assignment = base.costs(problem, view, 31, 200)
    assert sizes == [(31, 200)]
    assert (len(graph.nodes["mask"]), len(graph.senders)) == (31, 200)
    assert float(graph.globals) == 7
    assert assignment is None
    assert graph.nodes["features"].shape == (31, 0)


def test_placeto_is_padded_by_one_node():
    problem = helpers.random_problem()
    assert len(placeto.read(problem).graph.nodes["mask"]) == problem.graph.num_ops + 1


def test_placeto_reads_groups_with_the_costs_of_their_members():
    problem = helpers.random_problem()
    graph, assignment = placeto.read(problem, groups=5)
    num_groups = assignment.max() + 1
    assert 1 < num_groups <= 5
    assert len(graph.nodes["mask"]) == num_groups + 1
    summed = [np.bincount(assignment, column) for column in problem.costs.compute_s.T]
    np.testing.assert_allclose(graph.globals.compute_s[:num_groups].T, summed, rtol=1e-6)


@pytest.mark.parametrize(("groups", "colocated"), [(0, 0.0), (20, 0.0), (5, 0.5)])
def test_placeto_makes_no_groups_unless_it_can(groups, colocated):
    problem = helpers.random_problem(colocated=colocated)
    whole, given = placeto.read(problem), placeto.read(problem, groups=groups)
    assert given.graph.nodes["mask"].shape == (problem.graph.num_ops + 1,)
    assert (given.assignment is None) == (whole.assignment is None) == (not colocated)
