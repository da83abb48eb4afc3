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
from placement.instance import Instance
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference

SEEDS = st.integers(0, 2**32 - 1)
SIZE = (8, 12, 6, 3)
LIMITS = {"colocated": 0.3, "limited": 0.6}
few = hypothesis.settings(max_examples=25, deadline=None)
every_objective = pytest.mark.parametrize("objective", simulators.OBJECTIVES)


@functools.partial(jax.jit, static_argnums=0)
def simulate(objective, tables, placements):
    return simulators.get_objective(objective).simulate(tables, placements)


def _outcome(
    graph: OpGraph, costs: CostModel, placements: list[list[int]]
) -> tuple[list[float], list[float], list[bool], list[float]]:
    """Latency, overflow, feasible and what the evaluator says, under `serial`."""
    problem = helpers.as_problem(graph, costs, "serial")
    found = simulate("serial", problem.tables, jnp.array(placements))
    value = problem.evaluate(np.array(placements))
    return *(field.tolist() for field in found), value.tolist()


def _shapes(problem: Instance) -> str:
    return str(jax.tree.map(jnp.shape, problem.tables))


@pytest.mark.slow
@every_objective
@pytest.mark.parametrize("size", reference.SIZES[1::2], ids=str)
def test_outcomes_equal_reference(objective, size):
    for problem, placements in reference.random_problems(objective, size, shared=True, **LIMITS):
        latency_s, overflow, feasible = map(np.array, reference.outcomes(problem, placements))
        found = simulate(objective, problem.tables, placements)
        np.testing.assert_array_equal(found.latency_s, latency_s)
        np.testing.assert_array_equal(found.overflow, overflow)
        np.testing.assert_array_equal(found.feasible, feasible)
        penalised_s = latency_s.astype(np.float32) * (1 + overflow).astype(np.float32)
        np.testing.assert_array_equal(found.penalised_s(), penalised_s)
        np.testing.assert_array_equal(
            problem.evaluate(placements), np.where(feasible, latency_s, np.inf)
        )


@every_objective
def test_padding_changes_no_outcome(objective):
    """Operations are padded with any devices, as a policy places padding."""
    size = (20, 30, 24, 3)
    for problem, placements in itertools.islice(
        reference.random_problems(objective, size, shared=True, **LIMITS), 5
    ):
        expected = simulate(objective, problem.tables, placements)
        missing = problem.num_padded_ops - problem.graph.num_ops
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
    latency_s, overflow, feasible, value = _outcome(graph, costs, placements)
    assert latency_s == [3, 6, 4 + 120, 4 + 110, 5 + 110]
    # 70 - 32 of 32; 70 - 16 of 16; 40 - 16 of 16; 60 - 32 of 32; 60 - 16 of 16.
    assert overflow == [38 / 32, 54 / 16, 24 / 16, 28 / 32, 44 / 16]
    assert not any(feasible)
    assert value == [np.inf] * 5
    # Exactly full is not too full.
    full = costs._replace(capacity_bytes=np.array([60, 10], np.float32))
    _, overflow, feasible, value = _outcome(graph, full, [[1, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert overflow == pytest.approx([0, 1, 10 / 60])
    assert feasible == [True, False, False]
    assert value == [4 + 110, np.inf, np.inf]


def test_devices_without_memory():
    graph = helpers.chain(2)
    costs = unit_costs(
        graph,
        memory_bytes=np.array([3, 8], np.float32),
        capacity_bytes=np.array([0, 4], np.float32),
    )
    # Without capacity the excess itself counts, as if the capacity were one byte.
    _, overflow, *_ = _outcome(graph, costs, [[0, 1], [0, 0], [1, 0], [1, 1]])
    assert overflow == [3, 11, 8, 7 / 4]
    nothing = costs._replace(memory_bytes=np.zeros(2, np.float32))
    assert _outcome(graph, nothing, [[0, 0]])[2] == [True]


def test_parts_share_memory():
    graph = helpers.chain(3)
    costs = unit_costs(
        graph,
        num_devices=3,
        memory_bytes=np.array([10, 20, 40], np.float32),
        capacity_bytes=np.full(3, 64, np.float32),
    )

    def overflow(*accelerator: int) -> list[float]:
        numbers = np.array(accelerator, np.int32)
        placements = [[0, 0, 0], [0, 1, 2], [1, 1, 0], [1, 2, 2]]
        return _outcome(graph, costs._replace(accelerator=numbers), placements)[1]

    assert overflow(0, 1, 2) == [6 / 64, 0, 0, 0]
    assert overflow(4, 4, 4) == [6 / 64, 6 / 64, 6 / 64, 6 / 64]
    assert overflow(4, 4, 2) == [6 / 64, 0, 6 / 64, 0]
    assert overflow(-1, 0, 0) == [6 / 64, 0, 0, 6 / 64]
    assert overflow(-1, -1, -1) == [6 / 64, 0, 0, 0]


def test_colocated_operations_share_a_device():
    graph = opgraph.make_graph(
        name="colocated",
        op_names=list("abcde"),
        op_types=["Add"] * 5,
        senders=[],
        receivers=[],
        edge_bytes=[],
        colocation=[7, 3, 7, 3, 5],
    )
    placements = [[0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]]
    latency_s, overflow, feasible, value = _outcome(graph, unit_costs(graph), placements)
    assert latency_s == [7, 6, 8, 10]  # whether they share or not
    assert overflow == [0, 0, 0, 0]
    assert feasible == [True, False, False, True]
    assert value == [7, np.inf, np.inf, 10]


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


def test_evaluator_takes_any_arrays():
    problem, placements = reference.random_problem(
        np.random.default_rng(5), "serial", (3, 4, 2, 3), **LIMITS
    )
    latency_s, _, feasible = reference.outcomes(problem, placements)
    expected = np.where(feasible, latency_s, np.inf)
    assert 0 < np.isfinite(expected).sum() < len(expected)
    evaluate = problem.evaluate
    for given in (placements, placements.astype(np.int64), jnp.asarray(placements)):
        value = evaluate(given)
        assert value.dtype == jnp.float32
        np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(jax.jit(evaluate)(placements), expected)


def test_equal_shapes_share_compilation():
    rng, size = np.random.default_rng(3), (7, 11, 5, 2)
    problem, placements = reference.random_problem(rng, "makespan", size)
    placements = np.resize(placements, (37, size[0]))  # a number that occurs in no other test
    with helpers.count_compilations() as compiled:
        problem.evaluate(placements)
    assert len(compiled) > 0
    shapes = {_shapes(problem)}
    with helpers.count_compilations() as compiled:
        for _ in range(8):  # the same graph, other costs and placements
            costs = helpers.random_costs(rng, problem.graph, 2, unsupported=0.1, transfer=True)
            problem._replace(costs=costs).evaluate(placements[::-1])
        assert compiled == []
        others = [reference.random_problem(rng, "makespan", size)[0] for _ in range(8)]
        for other in others:
            other.evaluate(placements)
    shapes |= {_shapes(other) for other in others}
    assert len([name for name in compiled if "_evaluate" in name]) == len(shapes) - 1
    assert len(shapes) < len(others)


@pytest.mark.parametrize("objective", ["makespan", "max_load", "subgraph"])
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
