"""Dynamic programs over ideals: brute force over contiguous placements, limits, and by hand."""

import dataclasses
import itertools

import numpy as np
import pytest

from placement import simulators, solvers
from placement.graphs import dag, opgraph
from placement.solvers import base, contiguous, ideals, ideals_dp
from placement.solvers.allowance import Allowance
from placement.types import CostModel, OpGraph, Problem
from tests import helpers

pytestmark = pytest.mark.usefixtures("quick_compilation")

INF = float("inf")
NUM_OPS, NUM_EDGES, NUM_TENSORS, NUM_DEVICES = 7, 10, 6, 4
PLACEMENTS = helpers.all_placements(NUM_OPS, NUM_DEVICES)
BASE = helpers.random_dag_of_size(np.random.default_rng(0), NUM_OPS, NUM_EDGES, NUM_TENSORS)
DRAWS = range(240)


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


def least(problem: Problem) -> float:
    """The least value of a contiguous placement; inf where none is feasible."""
    values = np.asarray(simulators.evaluator(problem)(PLACEMENTS))
    for row in np.argsort(values, kind="stable").tolist():
        if np.isinf(values[row]):
            return INF
        if is_contiguous(problem.graph, PLACEMENTS[row].tolist(), NUM_DEVICES):
            return float(values[row])
    return INF


def draw(seed: int) -> Problem:
    """A random problem: every third a training graph, some with devices that cost the same."""
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
        crossing=rng.random() < 0.7,
        accelerator=helpers.random_accelerators(rng, NUM_DEVICES),
    )
    if rng.random() < 0.5:
        costs = _with_twins(rng, costs)
    if rng.random() < 0.5:  # some operations cost nothing anywhere
        costs.compute_s[rng.random(NUM_OPS) < 0.5] = 0.0
    return helpers.as_problem(graph, costs, "max_load")


def _with_twins(rng: np.random.Generator, costs: CostModel) -> CostModel:
    """All links are equal, and devices 1 and 2 like device 0 but for what makes a host."""
    like = np.array([0, 0, 0, 3])
    apart = 1 - np.eye(NUM_DEVICES, dtype=np.float32)
    return costs._replace(
        compute_s=costs.compute_s[:, like],
        capacity_bytes=costs.capacity_bytes[like],
        transfer_latency_s=apart * np.float32(rng.integers(0, 30)),
        transfer_s_per_byte=apart * np.float32(rng.choice([0.0, 0.01])),
    )


@pytest.mark.parametrize("seeds", [DRAWS[i::4] for i in range(4)], ids=str)
def test_equals_brute_force_over_contiguous_placements(seeds: range):
    outcomes = []
    for seed in seeds:
        problem = draw(seed)
        found = solvers.solve("ideals_dp", problem)
        expected = least(problem)
        assert found.value_s == pytest.approx(expected, rel=1e-5), seed
        assert found.scope == base.CONTIGUOUS or solvers.infeasible(problem)
        if np.isinf(expected):
            assert found.status.startswith("infeasible"), seed
        else:
            assert (found.status, found.bound_s) == ("optimal", found.value_s)
            assert is_contiguous(problem.graph, found.placement.tolist(), NUM_DEVICES)
        outcomes.append(np.isfinite(expected))
        restricted = solvers.solve("linearised_dp", problem)
        assert restricted.value_s >= found.value_s * (1 - 1e-5)
        assert np.isnan(restricted.bound_s)
        if np.isfinite(restricted.value_s):
            assert is_contiguous(problem.graph, restricted.placement.tolist(), NUM_DEVICES)
    assert any(outcomes)
    assert not all(outcomes)
