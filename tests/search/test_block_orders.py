import numpy as np

from placement import instance
from placement.search import block_orders
from tests import helpers


def _compute(colocated: float = 0.0) -> tuple[block_orders.Orders, instance.ColocationClasses]:
    problem = helpers.random_problem(colocated)
    classes = problem.classes
    return block_orders.compute_orders(problem, np.random.default_rng(0)), classes


def test_orders_rank_classes_from_zero():
    for colocated in (0.0, 0.4):
        computed, classes = _compute(colocated)
        size = len(classes.compute_s)
        assert computed.num_orders.sum() == len(computed.ranks) == len(computed.lengths)
        np.testing.assert_array_equal(
            computed.first_order, np.cumsum(computed.num_orders) - computed.num_orders
        )
        for rank, length in zip(computed.ranks, computed.lengths, strict=True):
            assert sorted(rank[rank < size]) == list(range(length))
            assert (rank[rank >= size] == size).all()


def test_time_orders_are_topological():
    problem = helpers.random_problem()
    computed = block_orders.compute_orders(problem, np.random.default_rng(0))
    np.testing.assert_array_equal(np.argsort(computed.ranks[1]), problem.topological_order)
    for rank in computed.ranks[:2]:
        assert (rank[problem.graph.senders] < rank[problem.graph.receivers]).all()


def test_balls_grow_by_neighbours():
    problem = helpers.random_problem()
    computed = block_orders.compute_orders(problem, np.random.default_rng(0))
    first, number = computed.first_order[block_orders.BALL], computed.num_orders[block_orders.BALL]
    adjacent = np.zeros((problem.graph.num_ops,) * 2, bool)
    adjacent[problem.graph.senders, problem.graph.receivers] = True
    adjacent |= adjacent.T
    for rank, length in zip(
        computed.ranks[first:][:number], computed.lengths[first:], strict=False
    ):
        order = np.argsort(rank, kind="stable")[:length]
        for i in range(1, length):
            assert adjacent[order[i], order[:i]].any()


def test_prefix_bytes_sum_earlier_classes():
    problem = helpers.random_problem(0.4)
    capacity = np.full(len(problem.devices), 10.0, np.float32)
    problem = problem._replace(costs=problem.costs._replace(capacity_bytes=capacity))
    classes = problem.classes
    computed = block_orders.compute_orders(problem, np.random.default_rng(0))
    for rank, prefix_bytes in zip(computed.ranks, computed.prefix_bytes, strict=True):
        for position in range(len(rank) + 1):
            np.testing.assert_allclose(
                prefix_bytes[position], classes.memory_bytes[rank < position].sum()
            )


def test_all_draws_have_equal_shapes():
    problem = helpers.random_problem()
    shapes = [
        [
            leaf.shape
            for leaf in block_orders.compute_orders(problem, np.random.default_rng(seed))[:-1]
        ]
        for seed in range(3)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_padding_changes_no_rank():
    problem = helpers.random_problem(0.4)
    capacity = np.full(len(problem.devices), 10.0, np.float32)
    problem = problem._replace(costs=problem.costs._replace(capacity_bytes=capacity))
    computed = block_orders.compute_orders(problem, np.random.default_rng(0))
    count, size = computed.ranks.shape
    padded = block_orders.pad_orders(computed, count + 3, size + 5)
    assert padded.ranks.shape == (count + 3, size + 5)
    assert padded.prefix_bytes.shape == (count + 3, size + 6)
    for i in range(count):
        in_order = computed.ranks[i] < size
        np.testing.assert_array_equal(padded.ranks[i, :size][in_order], computed.ranks[i][in_order])
        assert (padded.ranks[i] == size + 5).sum() == 5 + (~in_order).sum()
        np.testing.assert_array_equal(padded.prefix_bytes[i, : size + 1], computed.prefix_bytes[i])
        assert (padded.prefix_bytes[i, size:] == computed.prefix_bytes[i, -1]).all()
    assert (padded.ranks[count:] == size + 5).all()
    np.testing.assert_array_equal(padded.groups[:, :size], computed.groups)
    np.testing.assert_array_equal(padded.num_orders, computed.num_orders)
