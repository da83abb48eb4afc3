import functools

import jax
import numpy as np
import pytest

from placement.instance import Instance
from placement.search import blocks, orders
from tests import helpers

SHAPE = 3, 40
_draw = jax.jit(blocks.draw, static_argnums=6)


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


def _drawn(
    parents: np.ndarray, room: np.ndarray | None, share: list[float], seed: int = 0
) -> tuple[orders.Orders, np.ndarray, blocks.Children]:
    problem = _problem()
    classes = problem.classes
    made = orders.make(problem, np.random.default_rng(0))
    key, shares = jax.random.key(seed), np.array(share, np.float32)
    drawn = _draw(key, made, classes.allowed, parents, room, shares, SHAPE)
    return made, classes.allowed, jax.tree.map(np.asarray, drawn)


PARENTS = np.random.default_rng(0).integers(0, 3, (20, 4)).astype(np.int32)
PARENTS[4] = 0


@pytest.mark.parametrize("kind", [orders.TIME, orders.BALL, orders.GROUP])
def test_a_child_has_a_block_of_its_order_on_one_device(kind):
    made, allowed, drawn = _drawn(PARENTS, None, np.eye(4)[kind].tolist())
    assert (drawn.kind == kind).all()
    candidates = made.rank[made.first[kind] :][: made.number[kind]]
    moved = drawn.placement != PARENTS[:, :, None, None]
    np.testing.assert_array_equal(moved.any(axis=0), drawn.changed)
    assert drawn.changed.mean() > 0.3
    for index in np.argwhere(drawn.changed):
        parent, nth_set, child = index
        block = moved[:, parent, nth_set, child]
        after = drawn.placement[block, parent, nth_set, child]
        assert len(set(after)) == 1
        assert allowed[block, after].all()
        # Of some order all that is between the block's ends and not in it is there already, cannot
        # go there, or is on another device than the one that the block is confined to.
        stays = ~(allowed[:, after[0]] & (PARENTS[:, parent] != after[0]))
        sources = {*PARENTS[block, parent].tolist()}
        if len(sources) == 1:
            stays |= PARENTS[:, parent] != sources.pop()
        assert any(
            (block | stays)[(rank >= rank[block].min()) & (rank <= rank[block].max())].all()
            for rank in candidates
        )


def test_blocks_end_where_their_device_is_full():
    bytes_ = np.arange(20, dtype=np.float32)[:, None, None, None]
    room = np.array([[30.0, 0.0, 5.0, 190.0]] * 3, np.float32)
    _, _, drawn = _drawn(PARENTS, room, [1, 0, 1, 1])
    moved = drawn.placement != PARENTS[:, :, None, None]
    gone = (moved * bytes_).sum(axis=0)
    assert (gone <= room[0][:, None, None]).all()
    assert (gone[0] > 15).any()  # and it is used
    assert drawn.changed[3].mean() > 0.3


def test_kinds_come_as_often_as_their_shares_say_and_those_without_orders_never():
    made, _, drawn = _drawn(np.repeat(PARENTS, 500, axis=1), None, [1, 1, 0, 3])
    assert made.number[orders.ROLE] == 0
    often = [(drawn.kind == kind).mean() for kind in range(4)]
    assert often[1] == often[2] == 0
    assert often[3] == pytest.approx(0.75, abs=0.03)
