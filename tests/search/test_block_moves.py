import functools

import jax
import numpy as np
import pytest

from placement.instance import Instance
from placement.search import block_orders, block_search
from placement.solvers import iterated_local_search as ils
from tests import helpers

SHAPE = 3, 40
_draw = jax.jit(block_search.draw_moves, static_argnums=6)


@functools.cache
def _problem() -> Instance:
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
    classes = problem.classes
    computed = block_orders.compute_orders(problem, np.random.default_rng(0))
    key, kind_weights = jax.random.key(seed), np.array(weights, np.float32)
    moves = _draw(key, computed, classes.allowed, parents, free_bytes, kind_weights, SHAPE)
    num_parents = parents.shape[1]
    moves = ils.Proposals(
        np.reshape(moves.placements, (-1, num_parents, *SHAPE)),
        np.reshape(moves.differs_from_parent, (num_parents, *SHAPE)),
        np.asarray(moves.kinds),
    )
    return computed, classes.allowed, moves


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
    class_bytes = np.arange(20, dtype=np.float32)[:, None, None, None]
    free_bytes = np.array([[30.0, 0.0, 5.0, 190.0]] * 3, np.float32)
    _, _, moves = _draw_moves(PARENTS, free_bytes, [1, 1, 1])
    moved = moves.placements != PARENTS[:, :, None, None]
    moved_bytes = (moved * class_bytes).sum(axis=0)
    assert (moved_bytes <= free_bytes[0][:, None, None]).all()
    assert (moved_bytes[0] > 15).any()  # the free memory is used
    assert moves.differs_from_parent[3].mean() > 0.3


def test_kinds_follow_their_weights():
    _, _, moves = _draw_moves(np.repeat(PARENTS, 500, axis=1), None, [1, 0, 3])
    frequency = [(moves.kinds == kind).mean() for kind in range(3)]
    assert frequency[1] == 0
    assert frequency[2] == pytest.approx(0.75, abs=0.03)
