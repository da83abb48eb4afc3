"""What all objectives share: limits, compilation, and what must not depend on the objective."""

import functools
import itertools
import re

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement import simulators
from placement.errors import UserError
from placement.graphs import opgraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference

SEEDS = st.integers(0, 2**32 - 1)
SIZE = (8, 12, 6, 3)
LIMITS = {"colocated": 0.3, "limited": 0.6}
few = hypothesis.settings(max_examples=15, deadline=None)
every_objective = pytest.mark.parametrize("objective", simulators.OBJECTIVES)


@functools.partial(jax.jit, static_argnums=0)
def simulate(objective, tables, placements):
    return simulators.get_objective(objective).simulate(tables, placements)


@pytest.mark.slow
@every_objective
@pytest.mark.parametrize(
    "size",
    [
        reference.SIZES[4],
        *(pytest.param(reference.SIZES[i], marks=pytest.mark.nightly) for i in (1, 7)),
    ],
    ids=str,
)
def test_outcomes_equal_reference(objective, size):
    for problem, placements in reference.random_problems(objective, size, shared=True, **LIMITS):
        latency_s, overflow, feasible = map(np.array, reference.outcomes(problem, placements))
        found = simulate(objective, problem.tables, placements)
        np.testing.assert_array_equal(found.latency_s, latency_s)
        np.testing.assert_array_equal(found.overflow, overflow)
        np.testing.assert_array_equal(found.feasible, feasible)
        penalised_s = latency_s.astype(np.float32) * (1 + overflow).astype(np.float32)
        np.testing.assert_array_equal(found.penalised_s(), penalised_s)


@every_objective
def test_padding_changes_no_outcome(objective):
    """Operations are padded with any devices, as a policy places padding."""
    size = (20, 30, 24, 3)
    for problem, placements in itertools.islice(
        reference.random_problems(objective, size, shared=True, **LIMITS), 5
    ):
        expected = simulate(objective, problem.tables, placements)
        missing = problem.num_padded_ops - problem.num_decisions
        assert missing > 0
        padding = np.random.default_rng(0).integers(0, 3, (len(placements), missing))
        padded = np.concatenate([placements, padding.astype(np.int32)], axis=1)
        outcome = simulate(objective, problem.padded_tables, padded)
        jax.tree.map(np.testing.assert_array_equal, outcome, expected)


def test_overflow_by_hand():
    graph = helpers.chain(3)
    costs = unit_costs(
        graph,
        memory_bytes=np.array([10, 20, 40], np.float32),
        capacity_bytes=np.array([32, 16], np.float32),
    )
    placements = [[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 0, 0], [0, 1, 1]]
    problem = helpers.as_problem(graph, costs, "serial")
    outcome = simulate("serial", problem.tables, jnp.array(placements))
    assert outcome.latency_s.tolist() == [3, 6, 4 + 120, 4 + 110, 5 + 110]
    # 70 - 32 of 32; 70 - 16 of 16; 40 - 16 of 16; 60 - 32 of 32; 60 - 16 of 16.
    assert outcome.overflow.tolist() == [38 / 32, 54 / 16, 24 / 16, 28 / 32, 44 / 16]
    assert not outcome.feasible.any()
    # Exactly full is not too full.
    full = problem._replace(costs=costs._replace(capacity_bytes=np.array([60, 10], np.float32)))
    placements = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert full.evaluate(placements).tolist() == [4 + 110, np.inf, np.inf]
    assert [full.exceeds_memory(placement) for placement in placements] == [False, True, True]


@every_objective
@few
@hypothesis.given(seed=SEEDS)
def test_numbering_is_irrelevant(objective, seed):
    rng = np.random.default_rng(seed)
    problem, placements = reference.random_problem(rng, objective, SIZE)
    graph = problem.graph
    # Where there are several hosts the first counts, and the order of parts does anyway.
    accelerator = rng.permutation([rng.choice([-1, 5]), 2, 0]).astype(np.int32)
    costs = problem.costs._replace(accelerator=accelerator)
    to, device = rng.permutation(graph.num_ops), rng.permutation(3)
    if objective == "makespan":
        to = np.arange(graph.num_ops)  # ties between ranks go by the operations' numbers
    op, was = np.argsort(to), np.argsort(device)
    renumbered = opgraph.make_graph(
        name="renumbered",
        op_names=graph.op_names,
        op_types=graph.op_types,
        senders=to[graph.senders],
        receivers=to[graph.receivers],
        edge_bytes=graph.edge_bytes,
        tensors=graph.tensors,
        colocation=graph.colocation[op],
    )
    other = costs._replace(
        compute_s=costs.compute_s[op][:, was],
        transfer_latency_s=costs.transfer_latency_s[was][:, was],
        transfer_s_per_byte=costs.transfer_s_per_byte[was][:, was],
        memory_bytes=costs.memory_bytes[op],
        capacity_bytes=costs.capacity_bytes[was],
        accelerator=accelerator[was],
    )
    before = problem._replace(costs=costs).evaluate(placements)
    after = problem._replace(graph=renumbered, costs=other).evaluate(device[placements[:, op]])
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("objective", ["makespan", "max_load"])
def test_31_devices(objective):
    graph = helpers.diamond()
    costs = unit_costs(graph, 31, accelerator=np.arange(31, dtype=np.int32) - 1)
    problem = helpers.as_problem(graph, costs, objective)
    a, b = 30, 29
    placements = np.array([[a, a, a, a], [a, 0, b, a], [0, a, b, 0], [b, a, a, 0], [0, b, 0, a]])
    expected = reference.latencies(problem, placements)
    np.testing.assert_array_equal(problem.evaluate(placements), expected)


def test_too_many_devices_are_refused():
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, unit_costs(graph, 32), "makespan")
    with pytest.raises(UserError, match="32 devices; the simulators take at most 31"):
        _ = problem.tables


def test_unknown_objective_is_refused():
    names = "unknown objective 'latency'; valid: serial, makespan, max_load, subgraph"
    with pytest.raises(UserError, match=f"^{re.escape(names)}$"):
        simulators.get_objective("latency")
