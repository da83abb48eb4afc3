"""The benchmark of learned groups, on one small graph."""

import numpy as np
import pytest

from experiments.benchmarks import proposals
from placement.search import block_orders, block_search


def test_groups_follow_the_weights_of_edges():
    problem, optimum_s = proposals.make_problem("synthetic:family=known_optimum,ops=30,devices=3")
    assert optimum_s == 1.0
    weighers = proposals.make_weighers(problem, np.random.default_rng(0))
    weights = {name: weigh(problem.single_devices[0]) for name, weigh in weighers.items()}
    assert len({len(values) for values in weights.values()}) == 1
    assert not np.allclose(weights["learned"], weights["shuffled"])
    np.testing.assert_allclose(np.sort(weights["learned"]), np.sort(weights["shuffled"]))

    orders = block_search.make_space(problem, 0).orders
    heavy = np.full(len(weights["prior"]), 1e-2)
    heavy[0] = 1e2
    drawn = proposals.draw_groups(orders, problem, heavy, np.random.default_rng(0))
    first = int(orders.first_order[block_orders.GROUP])
    np.testing.assert_array_equal(drawn.ranks[:first], orders.ranks[:first])
    sender, receiver = (
        ends[0]
        for ends in block_orders.class_edges(
            problem.graph.senders,
            problem.graph.receivers,
            problem.mean_edge_delay_s,
            problem.classes.ids,
        )[:2]
    )

    def count_adjacent(ranks: np.ndarray) -> int:
        return int((abs(ranks[first:, sender].astype(int) - ranks[first:, receiver]) == 1).sum())

    assert count_adjacent(drawn.ranks) > count_adjacent(orders.ranks)


@pytest.mark.slow
def test_every_variant_is_read_at_every_point(monkeypatch, capsys):
    monkeypatch.setattr(proposals, "GRAPHS", ("synthetic:family=known_optimum,ops=30,devices=3",))
    monkeypatch.setattr(proposals, "_POINTS_S", (0.01, 0.1))
    monkeypatch.setattr(proposals, "_SEEDS", range(2))
    results = proposals.measure_groups()
    assert len(capsys.readouterr().err.splitlines()) == 6
    assert all(1 <= r.best_s[1] <= r.best_s[0] for r in results)
    assert [row[0] for row in proposals.make_rows(results)] == [
        *("prior", "learned", "shuffled", "learned / prior", "learned / shuffled")
    ]


@pytest.mark.slow
def test_moves_are_read_at_equal_evaluations_and_at_equal_time(monkeypatch, capsys):
    monkeypatch.setattr(
        proposals, "_MOVE_GRAPHS", ("synthetic:family=known_optimum,ops=30,devices=3",)
    )
    for name, value in (("_NUM_MOVES", 64), ("_MOVE_EVALUATIONS", 128), ("_MOVES_S", 0.2)):
        monkeypatch.setattr(proposals, name, value)
    monkeypatch.setattr(proposals, "_SEEDS", range(2))
    results = proposals.measure_moves()
    assert len(capsys.readouterr().err.splitlines()) == 4
    assert all(1 <= r.best_s[1] <= r.best_s[0] < 3 for r in results)
    assert [row[0] for row in proposals.make_rows(results)] == [
        *("learned", "uniform", "learned / uniform")
    ]
