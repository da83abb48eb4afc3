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
PROBLEMS = [
    ("serial", SIZE),
    ("serial", (6, 2, 1, 4)),
    ("serial", (4, 3, 3, 1)),
]
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
@pytest.mark.parametrize(("objective", "size"), PROBLEMS, ids=str)
def test_outcomes_equal_the_reference_on_random_problems(objective, size):
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


def _features(problem: Instance, placements: np.ndarray) -> set[str]:
    seen = set()
    costs, number = problem.costs, problem.graph.colocation
    colocated = len(set(number)) < len(number)
    accelerators = costs.accelerator[costs.accelerator >= 0]
    limited = costs.accelerator[np.isfinite(costs.capacity_bytes)]
    several = len(set(accelerators)) < len(accelerators)
    seen |= {"a shared memory"} if several and (limited >= 0).any() else set()
    seen |= {"hosts of limited memory"} if (limited < 0).sum() > 1 else set()
    seen |= {"no memory"} if (costs.capacity_bytes == 0).any() else set()
    seen |= {"unlimited memory"} if len(limited) == 0 else set()
    seen |= {"some limited"} if 0 < len(limited) < len(problem.devices) else set()
    for placement, latency_s, overflow, feasible in zip(
        placements, *reference.outcomes(problem, placements), strict=True
    ):
        apart = any(len(set(placement[number == n])) > 1 for n in number)
        stuck = latency_s == np.inf
        seen |= {"feasible"} if feasible and colocated and len(limited) else set()
        seen |= {"apart alone"} if apart and not stuck and not overflow else set()
        seen |= {"overflow alone"} if overflow and not stuck and not apart else set()
        seen |= {"stuck alone"} if stuck and not apart and not overflow else set()
    return seen


def test_random_problems_cover_what_outcomes_must_get_right():
    expected = {
        *("a shared memory", "hosts of limited memory", "no memory", "unlimited memory"),
        *("some limited", "feasible", "apart alone", "overflow alone", "stuck alone"),
    }
    seen = set()
    sizes = [size for _, size in PROBLEMS]
    for each in reference.problems_of_sizes("serial", sizes, shared=True, **LIMITS):
        seen |= _features(*each)
        if seen == expected:
            break
    assert seen == expected


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


def test_the_fullest_device_counts_and_what_has_no_memory_holds_nothing():
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


def test_parts_of_one_accelerator_share_its_memory_and_hosts_do_not():
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


def test_unlimited_memory_is_never_exceeded_even_beside_a_limited_one():
    graph = helpers.chain(2)
    costs = unit_costs(
        graph,
        memory_bytes=np.array([3, 8], np.float32),
        capacity_bytes=np.array([np.inf, 4], np.float32),
    )
    assert _outcome(graph, costs, [[0, 0], [1, 0], [0, 1]])[1] == [0, 0, 1]


def test_colocated_operations_must_share_a_device():
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


def test_the_penalty_is_the_latency_times_one_and_the_overflow():
    found = simulators.Outcome(
        latency_s=jnp.array([3.0, 4.0, np.inf, np.inf]),
        overflow=jnp.array([0.0, 1.5, 0.0, 2.0]),
        feasible=jnp.array([True, False, False, False]),
    )
    assert found.penalised_s().tolist() == [3, 10, np.inf, np.inf]


@pytest.mark.slow
@every_objective
@few
@hypothesis.given(seed=SEEDS)
def test_an_isolated_operation_that_costs_nothing_changes_nothing(objective, seed):
    rng = np.random.default_rng(seed)
    problem, placements = reference.random_problem(rng, objective, SIZE)
    graph, costs = problem.graph, problem.costs
    at = int(rng.integers(0, graph.num_ops + 1))
    number = np.delete(np.arange(graph.num_ops + 1), at)  # of the operations that were there
    colocation = np.full(graph.num_ops + 1, graph.num_ops)
    colocation[number] = graph.colocation
    larger = opgraph.make_graph(
        name="larger",
        op_names=[f"op{i}" for i in range(graph.num_ops + 1)],
        op_types=["MatMul"] * (graph.num_ops + 1),
        senders=number[graph.senders],
        receivers=number[graph.receivers],
        edge_bytes=graph.edge_bytes,
        tensors=graph.tensors,
        colocation=colocation,
    )
    costs = costs._replace(
        compute_s=np.insert(costs.compute_s, at, 0, axis=0),
        memory_bytes=np.insert(costs.memory_bytes, at, 0),
    )
    anywhere = np.insert(placements, at, rng.integers(0, 3, len(placements)), axis=1)
    before = problem.evaluate(placements)
    after = problem._replace(graph=larger, costs=costs).evaluate(anywhere)
    np.testing.assert_array_equal(before, after)


@every_objective
@few
@hypothesis.given(seed=SEEDS)
def test_the_order_of_devices_and_of_operations_means_nothing(objective, seed):
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


@every_objective
def test_on_one_device_the_latency_is_the_total_of_its_computing(objective):
    rng = np.random.default_rng(0)
    for _ in range(20):
        problem, _ = reference.random_problem(rng, objective, SIZE)
        costs = problem.costs._replace(accelerator=np.arange(3, dtype=np.int32))
        device = rng.integers(0, 3, reference.BATCH)
        value = problem._replace(costs=costs).evaluate(np.repeat(device[:, None], 8, axis=1))
        np.testing.assert_array_equal(value, costs.compute_s.sum(axis=0)[device])


@every_objective
def test_the_evaluator_takes_numpy_and_jax_arrays_within_jit_and_without(objective):
    problem, placements = reference.random_problem(
        np.random.default_rng(5), objective, (3, 4, 2, 3), **LIMITS
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


@every_objective
def test_problems_of_equal_shapes_share_one_compilation(objective):
    rng, size = np.random.default_rng(3), (7, 11, 5, 2)
    problem, placements = reference.random_problem(rng, objective, size)
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
        others = [reference.random_problem(rng, objective, size)[0] for _ in range(8)]
        for other in others:
            other.evaluate(placements)
    shapes |= {_shapes(other) for other in others}
    assert len([name for name in compiled if "_evaluate" in name]) == len(shapes) - 1
    assert len(shapes) < len(others)


@every_objective
def test_more_than_31_devices_are_refused(objective):
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, unit_costs(graph, 32), objective)
    with pytest.raises(UserError, match="32 devices; the simulators take at most 31"):
        _ = problem.tables


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "num_devices"),
    [
        *(("makespan", 3), ("max_load", 9), ("max_load", 31), ("subgraph", 31)),
    ],
)
def test_without_jit_it_is_the_same_up_to_as_many_devices_as_there_are_bits(objective, num_devices):
    graph = helpers.diamond()
    accelerator = np.arange(num_devices, dtype=np.int32) - 1
    costs = unit_costs(graph, num_devices, accelerator=accelerator)
    problem = helpers.as_problem(graph, costs, objective)
    a, b = num_devices - 1, num_devices - 2
    placements = np.array([[a, a, a, a], [a, 0, b, a], [0, a, b, 0], [b, a, a, 0], [0, b, 0, a]])
    with jax.disable_jit():
        value = problem.evaluate(placements)
    np.testing.assert_array_equal(value, reference.latencies(problem, placements))


def test_an_unknown_objective_is_one_line_that_names_the_valid_ones():
    names = "unknown objective 'latency'; valid: serial, makespan, max_load, subgraph"
    with pytest.raises(UserError, match=f"^{re.escape(names)}$"):
        simulators.get_objective("latency")
