"""What policies read of a problem."""

import dataclasses

import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import features
from placement.methods import learned
from placement.policies import base, placeto
from tests import helpers


def test_large_graphs_are_grouped(monkeypatch):
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


@pytest.mark.parametrize("read", [base.read_operations, placeto.read])
def test_first_of_colocated_decides(read):
    problem = helpers.random_problem(colocated=0.5)
    graph, assignment = read(problem)
    leaders = np.unique(assignment)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert len(leaders) < problem.graph.num_ops
    allowed = np.asarray(graph.nodes["allowed"])[: problem.graph.num_ops]
    np.testing.assert_array_equal(allowed, problem.allowed)


def test_classes_become_nodes():
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


def test_classes_join_sole_consumers():
    """Of 0 -> 1 -> 2 -> 3 <- 4 <- 0, and what follows them, 5 -> 6 -> 4."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 3), (5, 6), (6, 4)]
    graph = helpers.build("followed", 7, edges)
    graph = dataclasses.replace(graph, colocation=np.array([0, 1, 2, 3, 4, 1, 2]))
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    read, assignment = base.read_groups(problem)
    assert assignment.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert read.nodes["mask"].sum() == 2


def test_placeto_reads_group_costs():
    problem = helpers.random_problem()
    graph, assignment = placeto.read(problem, groups=5)
    num_groups = assignment.max() + 1
    assert 1 < num_groups <= 5
    assert len(graph.nodes["mask"]) == num_groups + 1
    summed = [np.bincount(assignment, column) for column in problem.costs.compute_s.T]
    np.testing.assert_allclose(graph.globals.compute_s[:num_groups].T, summed, rtol=1e-6)


def test_placeto_groups_classes():
    problem = helpers.random_problem(colocated=0.5)
    graph, assignment = placeto.read(problem, groups=4)
    leaders = np.unique(assignment)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert 1 < len(leaders) <= 4
    assert graph.globals.policy_tables.order.tolist()[-1] == problem.graph.num_ops
    assert sorted(graph.globals.policy_tables.order.tolist()[:-1]) == leaders.tolist()
    first = problem.leaders
    np.testing.assert_array_equal(assignment, assignment[first])


# The constants of the papers, or else of the authors' programs.
_ALL = {"algorithm": "reinforce", "entropy_weight": 0.0, "returns": "to_go", "max_grad_norm": 1.0}
_DECODER = _ALL | {
    "hidden_size": 512,
    "aligned": False,
    "stay": 0.0,
    "features": "op_type+degrees+fractal+positional+output_shape",
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.95,
    "reward": "sqrt",
    "baseline": "moving_average",
    "failed": "constant",
    "discount": 0.95,
    "entropy_decay_updates": 0,
}
_HSDAG = _ALL | {
    "hidden_size": 128,
    "episode_steps": 20,
    "reward": "inverse",
    "learning_rate": 1e-3,
    "discount": 0.95,
    "features": "op_type+degrees+fractal+positional+output_shape",
    "levels": 1,
    "pooling": "kept",
    "detached": False,
    "dropout": 0.0,
    "num_samples": 8,
    "baseline": "leave_one_out",
}
_CORRECTED = _HSDAG | {
    "pooling": "inside",
    "dropout": 0.2,
    "features": "member_types+number",
    "num_samples": 1,
    "baseline": "moving_average",
    "max_grad_norm": float("inf"),
}
CONSTANTS = {
    "hsdag:variant=paper": _HSDAG,
    "hsdag:variant=released": _CORRECTED
    | {"levels": 32, "detached": True, "baseline": "none", "returns": "episode"},
    "hsdag:variant=released,faults=0": _CORRECTED,
    "hierarchical:variant=paper": _DECODER
    | {
        "num_groups": 0,
        "slices": 0.0,
        "grouping": "learned",
        "num_samples": 1,
    },
    "colocrl:variant=paper": _DECODER | {"num_samples": 16},
    "placeto:variant=paper": _ALL
    | {
        "hidden_size": 8,
        "rounds": 8,
        "stay": 0.0,
        "groups": 0,
        "num_samples": 1,
        "learning_rate": 1e-3,
        "learning_rate_decay": 1.0,
        "reward": "improvement",
        "baseline": "moving_average",
        "failed": "worst",
        "discount": 1.0,
        "entropy_weight": 1.0,
        "entropy_decay_updates": 40,
    },
    "giph:variant=paper": _ALL
    | {
        "embedding_size": 10,
        "hidden_size": 16,
        "start": "random",
        "groups": 0,
        "num_samples": 1,
        "learning_rate": 0.01,
        "reward": "improvement",
        "baseline": "running_mean",
        "discount": 0.97,
    },
    "doppler:variant=paper": {
        "hidden_size": 128,
        "rounds": 6,
        "stages": "imitation+simulation",
        "num_samples": 1,
        "learning_rate": 1e-4,
        "reward": "linear",
        "baseline": "moving_average",
        "entropy_weight": 0.0,
    },
}


@pytest.mark.parametrize("method", CONSTANTS)
def test_constants_of_papers(method):
    assert learned.hyper_parameters(method).items() >= CONSTANTS[method].items()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("hierarchical:grouping=fixed", "unknown grouping 'fixed'; valid: learned, random"),
        ("hierarchical:hidden_size=3", "hidden_size=3 cannot be halved"),
        ("colocrl:hidden_size=7", "hidden_size=7 cannot be halved"),
        ("giph:start=slowest", "unknown start 'slowest'; valid: fastest, random"),
        ("doppler:stages=real", r"unknown stages 'real'; valid: imitation\+simulation"),
    ],
)
def test_impossible_options_are_refused(method, message):
    with pytest.raises(UserError, match=message) as error:
        learned.make(method, 2, False)
    assert "\n" not in str(error.value)
