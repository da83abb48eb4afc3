import jax
import numpy as np
import pytest

from placement import simulators
from placement.instance import Instance
from placement.search import block_search
from placement.simulators import residency
from placement.solvers import iterated_local_search as ils
from placement.types import TensorBytes
from tests import helpers


def _starts(problem: Instance, count: int) -> np.ndarray:
    """Returns placements int32 [M, N] on devices that run their operations."""
    allowed = problem.classes.allowed
    rng = np.random.default_rng(0)
    rows = [[rng.choice(np.flatnonzero(row)) for row in allowed] for _ in range(count)]
    return np.array(rows, np.int32)


def test_start_and_kinds_of_moves():
    problem = helpers.random_problem()
    simulate = simulators.get_objective(problem.objective).simulate_columns
    placement = _starts(problem, 1)[0]
    start = jax.jit(block_search.start, static_argnums=(0, 3))
    space, state = start(
        simulate, block_search.make_space(problem, 0), placement, 4, jax.random.key(0)
    )
    assert float(space.penalty_s) == float(state.chains.best_latency_s)
    np.testing.assert_array_equal(state.chains.placements, np.tile(placement[:, None], 4))
    even = np.asarray(block_search.kind_probabilities(space, state.chains))
    np.testing.assert_allclose(even, 1 / 3, rtol=1e-6)
    chains = state.chains._replace(move_credit=np.float32([0.3, 0.0, 0.0]))
    probabilities = np.asarray(block_search.kind_probabilities(space, chains))
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities[0] > 0.8
    assert probabilities.min() > 0.05


def _with_tensors_in_memory(starts: np.ndarray) -> Instance:
    """Returns a random problem in which about half of some placements exceed the memory."""
    problem = helpers.random_problem()
    graph = problem.graph
    _, first, tensor = np.unique(graph.tensors, return_index=True, return_inverse=True)
    pages = np.random.default_rng(1).integers(0, 9, len(first))[tensor]
    tensor_bytes = (residency.PAGE_BYTES * pages).astype(np.float32)
    memory_bytes = np.zeros(graph.num_ops, np.float32)
    costs = problem.costs._replace(
        tensor_bytes=TensorBytes(tensor_bytes, tensor_bytes), memory_bytes=memory_bytes
    )
    # The memory that about half of the placements need, by bisection.
    low, high = 0.0, float(tensor_bytes[first].sum())
    for _ in range(12):
        capacity_bytes = np.full(len(problem.devices), (low + high) / 2, np.float32)
        limited = problem._replace(costs=costs._replace(capacity_bytes=capacity_bytes))
        is_enough = np.isfinite(limited.evaluate(starts)).mean() > 0.5
        low, high = (low, capacity_bytes[0]) if is_enough else (capacity_bytes[0], high)
    return limited


def test_memory_is_computed_for_winners():
    """Against the evaluation of all proposals, for parents of several costs."""
    starts = _starts(helpers.random_problem(), 64)
    problem = _with_tensors_in_memory(starts)
    assert problem.limits.memory.alive is not None
    simulate = simulators.get_objective("makespan").simulate_columns
    space = block_search.make_space(problem, 0)._replace(penalty_s=np.float32(1e6))
    placements = starts.T
    outcome = jax.jit(simulate)(problem.tables, placements)
    everything = ils.penalise(outcome, space.penalty_s)
    feasible = np.asarray(outcome.feasible)
    assert feasible.any()
    assert not feasible.all()
    differs = np.arange(64) % 5 > 0
    proposals = ils.Proposals(placements, differs)
    evaluate = jax.jit(block_search._evaluate, static_argnums=0)
    latencies_s = np.sort(np.asarray(everything.latencies_s))
    for parents_s in ([latencies_s[0], np.inf], [2e6, latencies_s[feasible.sum() // 2]]):
        evaluation = evaluate(simulate, space, proposals, np.array(parents_s, np.float32))
        for chain, parent_s in enumerate(parents_s):
            columns = np.arange(32 * chain, 32 * (chain + 1))
            columns = columns[differs[columns]]
            costs_s = np.asarray(evaluation.costs_s)[columns]
            winner = columns[np.asarray(everything.costs_s)[columns].argmin()]
            if everything.costs_s[winner] <= parent_s:
                assert columns[costs_s.argmin()] == winner
                assert costs_s.min() == everything.costs_s[winner]
            else:
                assert costs_s.min() == np.inf or costs_s.min() > parent_s
    # A parent that is as fast as the fastest proposal leaves nothing else to compute.
    assert np.isfinite(np.asarray(evaluation.costs_s)).sum() < differs.sum()
