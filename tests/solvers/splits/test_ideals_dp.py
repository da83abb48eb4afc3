"""Dynamic programs over ideals against brute force, their limits, and cases by hand."""

import dataclasses
import itertools

import numpy as np
import pytest

from placement import methods, solvers
from placement.errors import UserError
from placement.graphs import dag, opgraph
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import ideals_dp
from placement.types import CostModel, OpGraph
from tests import helpers

INF = float("inf")
NUM_OPS, NUM_EDGES, NUM_TENSORS, NUM_DEVICES = 7, 10, 6, 4
PLACEMENTS = helpers.all_placements(NUM_OPS, NUM_DEVICES)
BASE = helpers.random_dag_of_size(np.random.default_rng(0), NUM_OPS, NUM_EDGES, NUM_TENSORS)
DRAWS = range(84)


def is_contiguous(graph: OpGraph, placement: list[int], num_devices: int) -> bool:
    """Whether an order of devices exists that the forward pass goes up, and the backward pass
    all down or all up."""
    edges = list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    backward = graph.backward.tolist()
    for rank in itertools.permutations(range(num_devices)):
        steps = [
            (backward[u], rank[placement[v]] - rank[placement[u]])
            for u, v in edges
            if backward[u] == backward[v]
        ]
        if all(step >= 0 for back, step in steps if not back) and (
            all(step <= 0 for back, step in steps if back)
            or all(step >= 0 for back, step in steps if back)
        ):
            return True
    return False


def least(problem: Instance) -> float:
    """Returns the least value of a contiguous placement; inf where none is feasible."""
    values = np.asarray(problem.evaluate(PLACEMENTS))
    for row in np.argsort(values, kind="stable").tolist():
        if np.isinf(values[row]):
            return INF
        if is_contiguous(problem.graph, PLACEMENTS[row].tolist(), NUM_DEVICES):
            return float(values[row])
    return INF


def draw(seed: int) -> Instance:
    """Returns a random problem: every third a training graph, some with equal devices."""
    rng = np.random.default_rng([7, seed])
    graph = helpers.rewired(rng, BASE, colocated=rng.choice([0.0, 0.2, 0.4]))
    if seed % 3 == 0:
        rank = np.argsort(dag.topological_order(graph))
        graph = dataclasses.replace(graph, backward=rank >= rng.integers(2, NUM_OPS - 1))
    costs = helpers.random_costs(
        rng,
        graph,
        NUM_DEVICES,
        unsupported=rng.choice([0.0, 0.15]),
        unlinked=rng.choice([0.0, 0.1]),
        limited=rng.choice([0.0, 0.5]),
        transfer=rng.random() < 0.7,
        accelerator=helpers.random_accelerators(rng, NUM_DEVICES),
    )
    if rng.random() < 0.5:
        costs = _with_twins(rng, costs)
    if rng.random() < 0.5:  # some operations cost nothing anywhere
        costs.compute_s[rng.random(NUM_OPS) < 0.5] = 0.0
    return helpers.as_problem(graph, costs, "max_load")


def _with_twins(rng: np.random.Generator, costs: CostModel) -> CostModel:
    """Makes all links equal, and devices 1 and 2 equal to device 0 except for being hosts."""
    like = np.array([0, 0, 0, 3])
    apart = 1 - np.eye(NUM_DEVICES, dtype=np.float32)
    return costs._replace(
        compute_s=costs.compute_s[:, like],
        capacity_bytes=costs.capacity_bytes[like],
        transfer_latency_s=apart * np.float32(rng.integers(0, 30)),
        transfer_s_per_byte=apart * np.float32(rng.choice([0.0, 0.01])),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [DRAWS[i::2] for i in range(2)], ids=str)
def test_ideals_equal_enumeration(seeds: range):
    outcomes = []
    for seed in seeds:
        problem = draw(seed)
        found = methods.solve(problem, "ideals_dp")
        expected = least(problem)
        assert found.value_s == pytest.approx(expected, rel=1e-5), seed
        assert found.scope == base.CONTIGUOUS or solvers.infeasible(problem)
        if np.isinf(expected):
            assert found.status == "infeasible", seed
        else:
            assert (found.status, found.bound_s) == ("optimal", found.value_s)
            assert is_contiguous(problem.graph, found.placement.tolist(), NUM_DEVICES)
        outcomes.append(np.isfinite(expected))
        restricted = methods.solve(problem, "linearised_dp")
        assert restricted.value_s >= found.value_s * (1 - 1e-5)
        assert np.isnan(restricted.bound_s)
        if np.isfinite(restricted.value_s):
            assert is_contiguous(problem.graph, restricted.placement.tolist(), NUM_DEVICES)
    assert any(outcomes)
    assert not all(outcomes)


def _problem(num_ops: int, edges: list[tuple[int, int]], **given: object) -> Instance:
    """Returns a problem on two accelerators: operations take 1, transfers 0, unless given."""
    senders, receivers = np.array(edges, np.int32).reshape(-1, 2).T
    fields = {key: given.pop(key) for key in ("colocation", "backward") if key in given}
    graph = opgraph.make_graph(
        name="hand-made",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=senders,
        receivers=receivers,
        edge_bytes=np.zeros(len(edges)),
        **fields,
    )
    free = {
        "compute_s": np.ones((num_ops, 2), np.float32),
        "transfer_latency_s": np.zeros((2, 2), np.float32),
        "transfer_s_per_byte": np.zeros((2, 2), np.float32),
    }
    return helpers.as_problem(graph, helpers.unit_costs(graph, **{**free, **given}), "max_load")


def test_too_many_ideals_are_refused():
    problem = _problem(20, [])
    with pytest.raises(UserError, match=r"has too many ideals.*linearised_dp") as raised:
        methods.solve(problem, "ideals_dp")
    assert "\n" not in str(raised.value)
    assert methods.solve(problem, "linearised_dp").value_s == 10


def test_contiguous_splits_need_memory():
    """Sizes 1, 2, 1 in 2 and 2: the ends fit together, but the middle lies between them."""
    problem = _problem(
        3,
        [(0, 1), (1, 2)],
        memory_bytes=np.array([1, 2, 1], np.float32),
        capacity_bytes=np.full(2, 2, np.float32),
    )
    found = methods.solve(problem, "ideals_dp")
    assert found.status_text.startswith("infeasible: no contiguous placement")
    assert found.scope == base.CONTIGUOUS


def test_colocation_may_forbid_splits():
    compute_s = np.array([[1, INF], [INF, 1], [1, INF]], np.float32)
    problem = _problem(
        3, [(0, 1), (1, 2)], compute_s=compute_s, colocation=np.array([0, 1, 0], np.int32)
    )
    found = methods.solve(problem, "ideals_dp")
    assert found.status_text.startswith("infeasible: no contiguous placement")


@pytest.mark.parametrize("edges", [[(0, 1), (3, 2)], [(0, 1), (2, 3)]], ids=["against", "along"])
def test_backward_pass_directions(edges: list[tuple[int, int]]):
    """Operations 2 and 3 are the backward ones of 0 and 1: half of both goes to each device."""
    problem = _problem(
        4, edges, backward=[False, False, True, True], colocation=np.array([0, 1, 0, 1], np.int32)
    )
    found = methods.solve(problem, "ideals_dp")
    assert (found.value_s, found.status) == (2, "optimal")


def test_backward_before_forward_is_refused():
    problem = _problem(2, [(0, 1)], backward=[True, False])
    with pytest.raises(UserError, match=r"backward operation 'op0' feeds forward operation 'op1'"):
        methods.solve(problem, "ideals_dp")


def test_shared_limited_memory_is_refused():
    problem = _problem(
        2,
        [(0, 1)],
        capacity_bytes=np.full(2, 9, np.float32),
        accelerator=np.zeros(2, np.int32),
    )
    with pytest.raises(UserError, match="share one limited memory"):
        methods.solve(problem, "ideals_dp")


def test_time_limit_gives_best_known():
    found = ideals_dp.ideals_dp(_problem(2, [(0, 1)]), 0, SearchLimits(0.0, 1))
    assert (found.status, found.scope) == ("time limit", base.CONTIGUOUS)
    assert found.placement.tolist() == [0, 0]
    assert np.isnan(found.bound_s)
