"""The benchmark of GiPH on unseen problems: its problems and its table."""

import numpy as np
import pytest

from experiments.benchmarks import relocation


def test_problems_of_unseen_sets_are_not_those_of_training():
    def draw(problems: str) -> list[tuple[str, str]]:
        rng = np.random.default_rng(0)
        names = [relocation.draw_problem(problems, rng).graph.name for _ in range(20)]
        return [tuple(name.split("seed=")[1].split(",network=")) for name in names]

    for problems, (unseen_graph, unseen_network) in {
        "seen": (False, False),
        "unseen graphs": (True, False),
        "unseen networks": (False, True),
        "both unseen": (True, True),
        "twice the devices": (True, True),
    }.items():
        for graph, network in draw(problems):
            assert (int(graph) >= 1000) == unseen_graph
            assert (int(network) >= 1000) == unseen_network


def test_twice_the_devices_are_twice_as_many():
    rng = np.random.default_rng(0)
    usual, twice = (relocation.draw_problem(s, rng) for s in ("seen", "twice the devices"))
    assert 2 * len(usual.devices) == len(twice.devices)


def test_rows_are_means_over_the_training_runs():
    scores = [
        relocation.Score(seed, problems, (1.0, 2.0, 1.0 + seed, 3.0))
        for seed in range(5)
        for problems in ("seen", "both unseen")
    ]
    rows = relocation.make_rows(scores)
    assert [row[0] for row in rows] == ["seen", "both unseen"]
    assert rows[0][1:3] == ["1.000 ± 0.000", "2.000 ± 0.000"]
    assert rows[0][3].startswith("3.000 ± ")


@pytest.mark.nightly
def test_scores_are_positive_for_every_set(monkeypatch):
    monkeypatch.setattr(relocation, "_SEEDS", range(1))
    scores = relocation.measure(num_updates=1, num_tests=1)
    assert [score.problems for score in scores] == list(relocation.SETS)
    assert all(ratio > 0 for score in scores for ratio in score.ratios)
