"""What policies read of a problem."""

import dataclasses

import numpy as np
import pytest

from placement.graphs import coarsen, features
from placement.policies import base, placeto
from tests import helpers


def test_of_many_operations_policies_look_at_groups_that_the_same_devices_run(monkeypatch):
    monkeypatch.setattr(base, "LARGEST", 19)
    monkeypatch.setattr(base, "GROUPS", 4)
    problem = helpers.random_problem()
    compute_s = np.array(problem.costs.compute_s)
    compute_s[::3, 1] = np.inf
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    graph, assignment = base.read_operations(problem)
    num_groups = int(graph.nodes["mask"].sum())
    assert assignment.shape == (20,)
    assert sorted(set(assignment.tolist())) == list(range(num_groups))
    assert num_groups < 20
    allowed = np.asarray(graph.nodes["allowed"])[assignment]
    np.testing.assert_array_equal(allowed, np.isfinite(compute_s))
    # Co-located operations are never in different groups: such problems are read whole.
    graph, _ = base.read_operations(helpers.random_problem(colocated=0.5))
    assert len(graph.nodes["mask"]) > 20


def test_groups_are_those_of_sole_consumers():
    problem = helpers.random_problem()
    graph, assignment = base.read_groups(problem)
    expected = coarsen.merge_sole_consumers(problem.graph).assignment
    np.testing.assert_array_equal(assignment, expected)
    assert graph.nodes["mask"].sum() == expected.max() + 1 < problem.graph.num_ops


@pytest.mark.parametrize("read", [base.read_operations, placeto.read])
def test_of_co_located_operations_the_first_decides(read):
    problem = helpers.random_problem(colocated=0.5)
    graph, assignment = read(problem)
    leaders = np.unique(assignment)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert len(leaders) < problem.graph.num_ops
    allowed = np.asarray(graph.nodes["allowed"])[: problem.graph.num_ops]
    np.testing.assert_array_equal(allowed, problem.allowed)


def test_of_co_located_operations_a_node_is_read():
    problem = helpers.random_problem(colocated=0.5)
    read_graph, assignment = base.read_classes(problem)
    first, graph = problem.leaders, problem.graph
    leaders, number = np.unique(first, return_inverse=True)
    np.testing.assert_array_equal(assignment, number)
    assert read_graph.nodes["mask"].sum() == len(leaders) < graph.num_ops
    allowed = np.asarray(read_graph.nodes["allowed"])[assignment]
    np.testing.assert_array_equal(allowed, problem.allowed)
    found = np.asarray(read_graph.nodes["features"])[: len(leaders)]
    np.testing.assert_array_equal(found, features.node_features(graph)[leaders])
    between = {
        (number[sender], number[receiver])
        for sender, receiver in zip(graph.senders, graph.receivers, strict=True)
        if number[sender] != number[receiver]
    }
    real = read_graph.edges["mask"]
    ends = read_graph.senders[real].tolist(), read_graph.receivers[real].tolist()
    assert list(zip(*ends, strict=True)) == sorted(between)


def test_a_class_joins_the_only_one_that_its_leader_serves():
    """Of 0 -> 1 -> 2 -> 3 <- 4 <- 0, and what follows them, 5 -> 6 -> 4."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 3), (5, 6), (6, 4)]
    graph = helpers.build("followed", 7, edges)
    graph = dataclasses.replace(graph, colocation=np.array([0, 1, 2, 3, 4, 1, 2]))
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    read, assignment = base.read_groups(problem)
    assert assignment.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert read.nodes["mask"].sum() == 2


def test_groups_of_classes_are_consecutive_and_of_one_kind():
    problem = helpers.random_problem(colocated=0.5)
    compute_s = np.array(problem.costs.compute_s)
    compute_s[3, 1] = np.inf
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    joined = base.colocate_intervals(problem, 4)
    assert joined.costs is problem.costs
    group = joined.classes.ids
    number = problem.classes.ids
    assert len(set(zip(number, group, strict=True))) == number.max() + 1 > group.max() + 1 > 1
    np.testing.assert_array_equal(joined.allowed, problem.allowed)


def test_costs_are_read_at_the_padded_size():
    problem = helpers.random_problem()
    sizes = []

    def view(given, *size):
        assert given is problem
        sizes.append(size)
        return np.float32(7)

    graph, assignment = base.read_costs(problem, view, 31, 200)
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


@pytest.mark.parametrize(("groups", "colocated"), [(0, 0.0), (20, 0.0), (0, 0.5), (20, 0.5)])
def test_placeto_makes_no_groups_unless_it_can(groups, colocated):
    problem = helpers.random_problem(colocated=colocated)
    whole, given = placeto.read(problem), placeto.read(problem, groups=groups)
    assert given.graph.nodes["mask"].shape == (problem.graph.num_ops + 1,)
    assert (given.assignment is None) == (whole.assignment is None) == (not colocated)


def test_placeto_makes_groups_of_classes_of_co_located_operations():
    problem = helpers.random_problem(colocated=0.5)
    graph, assignment = placeto.read(problem, groups=4)
    leaders = np.unique(assignment)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert 1 < len(leaders) <= 4
    assert graph.globals.policy_tables.order.tolist()[-1] == problem.graph.num_ops
    assert sorted(graph.globals.policy_tables.order.tolist()[:-1]) == leaders.tolist()
    first = problem.leaders
    np.testing.assert_array_equal(assignment, assignment[first])
