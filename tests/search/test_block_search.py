"""The blocks that moves take from orders of decisions, and the search by block moves."""

import functools

import jax
import numpy as np
import pytest

from placement import simulators
from placement.problem import Problem
from placement.search import block_orders, block_search
from placement.simulators import residency
from placement.solvers import iterated_local_search as ils
from placement.types import TensorBytes
from tests import helpers

SHAPE = 3, 40
_draw = jax.jit(block_search.draw_moves, static_argnums=6)


@functools.cache
def _problem() -> Problem:
    graph = helpers.random_dag(np.random.default_rng(1), 20, edge_probability=0.15)
    costs = helpers.random_costs(np.random.default_rng(2), graph, 3)
    compute_s = np.array(costs.compute_s)
    compute_s[4, 1] = np.inf
    costs = costs._replace(
        compute_s=compute_s,
        memory_bytes=np.arange(20, dtype=np.float32),
        capacity_bytes=np.full(3, 90, np.float32),
    )
    return helpers.as_problem(graph, costs, "makespan")


def _draw_moves(
    parents: np.ndarray, free_bytes: np.ndarray | None, weights: list[float], seed: int = 0
) -> tuple[block_orders.Orders, np.ndarray, ils.Proposals]:
    problem = _problem()
    allowed = problem.decisions.allowed
    computed = block_orders.compute_orders(problem, np.random.default_rng(0))
    kind_weights = np.array(weights, np.float32)
    moves = _draw(np.uint32(seed), computed, allowed, parents, free_bytes, kind_weights, SHAPE)
    num_parents = parents.shape[1]
    moves = ils.Proposals(
        np.asarray(moves.placements).reshape((-1, num_parents, *SHAPE)),
        np.asarray(moves.differs_from_parent).reshape((num_parents, *SHAPE)),
        np.asarray(moves.kinds),
    )
    return computed, allowed, moves


PARENTS = np.random.default_rng(0).integers(0, 3, (20, 4)).astype(np.int32)
PARENTS[4] = 0


@pytest.mark.parametrize("kind", [block_orders.TIME, block_orders.BALL, block_orders.GROUP])
def test_child_moves_one_block(kind):
    computed, allowed, moves = _draw_moves(PARENTS, None, np.eye(3)[kind].tolist())
    assert (moves.kinds == kind).all()
    candidates = computed.ranks[computed.first_order[kind] :][: computed.num_orders[kind]]
    moved = moves.placements != PARENTS[:, :, None, None]
    np.testing.assert_array_equal(moved.any(axis=0), moves.differs_from_parent)
    assert moves.differs_from_parent.mean() > 0.3
    for parent, set_index, child in np.argwhere(moves.differs_from_parent):
        block = moved[:, parent, set_index, child]
        devices = moves.placements[block, parent, set_index, child]
        assert len(set(devices)) == 1
        assert allowed[block, devices].all()
        # In one of the orders, every class between the block's ends that did not move is on the
        # device already, is not allowed there, or is on another device than the block's source.
        stays = ~(allowed[:, devices[0]] & (PARENTS[:, parent] != devices[0]))
        sources = {*PARENTS[block, parent].tolist()}
        if len(sources) == 1:
            stays |= PARENTS[:, parent] != sources.pop()
        assert any(
            (block | stays)[(rank >= rank[block].min()) & (rank <= rank[block].max())].all()
            for rank in candidates
        )


def test_blocks_end_at_full_memory():
    decision_bytes = np.arange(20, dtype=np.float32)[:, None, None, None]
    free_bytes = np.array([[30.0, 0.0, 5.0, 190.0]] * 3, np.float32)
    _, _, moves = _draw_moves(PARENTS, free_bytes, [1, 1, 1])
    moved = moves.placements != PARENTS[:, :, None, None]
    moved_bytes = (moved * decision_bytes).sum(axis=0)
    assert (moved_bytes <= free_bytes[0][:, None, None]).all()
    assert (moved_bytes[0] > 15).any()  # the free memory is used
    assert moves.differs_from_parent[3].mean() > 0.3


def _starts(problem: Problem, count: int) -> np.ndarray:
    """Returns placements int32 [M, K] on devices that run their operations."""
    allowed = problem.decisions.allowed
    rng = np.random.default_rng(0)
    rows = [[rng.choice(np.flatnonzero(row)) for row in allowed] for _ in range(count)]
    return np.array(rows, np.int32)


def _with_tensors_in_memory(starts: np.ndarray) -> Problem:
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
    unlimited = problem._replace(costs=costs)
    peak_bytes = np.median([unlimited.peak_bytes(row).max() for row in starts])
    capacity_bytes = np.full(len(problem.devices), peak_bytes, np.float32)
    return problem._replace(costs=costs._replace(capacity_bytes=capacity_bytes))


def test_memory_is_computed_for_winners():
    """Against the evaluation of all proposals, for parents of several costs."""
    starts = _starts(helpers.random_problem(), 64)
    problem = _with_tensors_in_memory(starts)
    assert problem.memory.alive is not None
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
