"""The inputs of policies: nodes, groups, costs and schedules."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from placement import simulators
from placement.graphs import features
from placement.methods import learned
from placement.policies import inputs, placeto, readers
from placement.simulators import makespan
from tests import helpers
from tests.simulators import reference

_simulate = jax.jit(simulators.OBJECTIVES["makespan"].simulate)
_latency = jax.jit(lambda costs, placement: makespan.latency(costs.simulator, placement))


def test_large_graphs_are_grouped(monkeypatch):
    monkeypatch.setattr(inputs, "LARGEST", 19)
    monkeypatch.setattr(inputs, "NUM_GROUPS", 4)
    problem = helpers.random_problem()
    compute_s = np.array(problem.costs.compute_s)
    compute_s[::3, 1] = np.inf
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    graph, node = inputs.read_operations(problem)
    num_groups = int(graph.nodes["mask"].sum())
    assert sorted(set(node.tolist())) == list(range(num_groups))
    assert len(node) == 20 > num_groups
    allowed = np.asarray(graph.nodes["allowed"])[node]
    np.testing.assert_array_equal(allowed, np.isfinite(compute_s))
    # Co-located operations are never in different groups: such problems are read whole.
    graph, _ = inputs.read_operations(helpers.random_problem(colocated=0.5))
    assert len(graph.nodes["mask"]) > 20


@pytest.mark.parametrize("read", [inputs.read_operations, placeto.read])
def test_first_of_colocated_decides(read):
    problem = helpers.random_problem(colocated=0.5)
    graph, node = read(problem)
    leaders = np.unique(node)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert len(leaders) < problem.graph.num_ops
    allowed = np.asarray(graph.nodes["allowed"])[: problem.graph.num_ops]
    np.testing.assert_array_equal(allowed, problem.allowed)


def test_decisions_become_nodes():
    problem = helpers.random_problem(colocated=0.5)
    read_graph, node = readers.read_decisions(problem)
    graph, leaders = problem.graph, problem.decisions.first_ops
    np.testing.assert_array_equal(node, problem.decision)
    assert read_graph.nodes["mask"].sum() == len(leaders) < graph.num_ops
    allowed = np.asarray(read_graph.nodes["allowed"])[node]
    np.testing.assert_array_equal(allowed, problem.allowed)
    leader_features = np.asarray(read_graph.nodes["features"])[: len(leaders)]
    np.testing.assert_array_equal(leader_features, features.node_features(graph)[leaders])
    edges = set(zip(node[graph.senders].tolist(), node[graph.receivers].tolist(), strict=True))
    is_edge = read_graph.edges["mask"]
    ends = read_graph.senders[is_edge].tolist(), read_graph.receivers[is_edge].tolist()
    assert list(zip(*ends, strict=True)) == sorted((u, v) for u, v in edges if u != v)


def test_decisions_join_sole_consumers():
    """Of 0 -> 1 -> 2 -> 3 <- 4 <- 0, and what follows them, 5 -> 6 -> 4."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 3), (5, 6), (6, 4)]
    graph = helpers.build("followed", 7, edges)
    graph = dataclasses.replace(graph, colocation=np.array([0, 1, 2, 3, 4, 1, 2]))
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    read, node = readers.read_sole_consumer_groups(problem)
    assert node.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert read.nodes["mask"].sum() == 2


def test_groups_add_up_costs():
    problem = helpers.random_problem()
    graph, node = placeto.read(problem, groups=5)
    num_groups = node.max() + 1
    assert 1 < num_groups <= 5
    assert len(graph.nodes["mask"]) == num_groups + 1
    summed = [np.bincount(node, column) for column in problem.costs.compute_s.T]
    np.testing.assert_allclose(graph.globals.compute_s[:num_groups].T, summed, rtol=1e-6)


def test_groups_of_decisions():
    problem = helpers.random_problem(colocated=0.5)
    graph, node = placeto.read(problem, groups=4)
    leaders = np.unique(node)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert 1 < len(leaders) <= 4
    order = graph.globals.policy_tables.order.tolist()
    assert (sorted(order[:-1]), order[-1]) == (leaders.tolist(), problem.graph.num_ops)
    np.testing.assert_array_equal(node, problem.expand(node[problem.decisions.first_ops]))


@pytest.mark.parametrize("size", [(11, 21), (16, 25)])
def test_costs_give_the_latency(size):
    problems = reference.random_problems("makespan", (10, 20, 14, 3))
    for problem, placements in itertools.islice(problems, 6):
        padded = np.pad(placements.T, ((0, size[0] - 10), (0, 0)))
        latency_s = _latency(inputs.cost_view(problem, *size), padded)
        expected = _simulate(problem.tables, placements)
        np.testing.assert_array_equal(latency_s, expected.latency_s)


# A bare name has the constants of its paper, or of its authors' program; some are the learner's
# defaults.
_HSDAG = {"hidden_size": 128, "episode_steps": 20, "reward": "inverse", "discount": 0.95}
_DECODER = {"hidden_size": 512, "aligned": False, "learning_rate_decay": 0.95, "reward": "sqrt"}
_DECODER |= {"baseline": "moving_average", "failed": "constant", "learning_rate": 1e-3}
CONSTANTS = {
    "hsdag": _HSDAG | {"levels": 1, "num_samples": 8},
    "hsdag:variant=released": _HSDAG | {"levels": 32, "dropout": 0.2, "returns": "episode"},
    "hsdag:variant=released,faults=0": _HSDAG | {"levels": 1, "returns": "to_go"},
    "hierarchical": _DECODER | {"num_samples": 1, "slices": 0.0},
    "colocrl": _DECODER | {"num_samples": 16, "stay": 0.0},
    "placeto": {"discount": 1.0, "entropy_weight": 1.0, "rounds": 8},
    "giph": {"discount": 0.97, "learning_rate": 0.01, "embedding_size": 10},
    "doppler": {"hidden_size": 128, "learning_rate": 1e-4, "rounds": 6},
}


@pytest.mark.parametrize("method", CONSTANTS)
def test_constants_of_papers(method):
    assert learned.make(method, 2).hyper_parameters.items() >= CONSTANTS[method].items()
