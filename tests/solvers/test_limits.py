"""Remaining time and budget of a search, and the reports to its observer."""

import time

import numpy as np
import pytest

from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import program_search
from placement.types import Solution
from tests import helpers


def problem(objective: str) -> Instance:
    """A random graph on two accelerators and a host, large enough for a descent to end early."""
    graph = helpers.random_dag(np.random.default_rng(5), 14, edge_probability=0.2)
    costs = helpers.random_costs(np.random.default_rng(6), graph, 3)
    costs = costs._replace(accelerator=np.array([0, 1, -1], np.int32))
    return Instance(graph, costs, objective, ("a", "b", "host"))


def test_a_part_has_its_share_and_tells_the_same(monkeypatch):
    now, told = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    whole = SearchLimits(60.0, 1000, lambda *step: told.append(step[:3]))
    now[0] += 20.0
    part = whole.take_share(0.1, 300)
    assert (part.remaining_s(), part.budget) == (pytest.approx(4.0), 300)
    assert whole.take_share(0.5, 5000).budget == 1000
    fast, slow = np.zeros(2, int), np.ones(2, int)
    part.report(7, 0.5, fast)
    part.report(8, 0.7, slow)
    whole.report(9, 0.6, slow)
    later = whole.take_share(0.1, 300, evaluations=9)
    later.report(2, 0.6, slow)
    assert told == [(7, 0.5, fast), (8, 0.5, fast), (9, 0.5, fast), (11, 0.5, fast)]
    now[0] += 5.0
    assert part.is_over()
    assert not whole.is_over()


def test_excluded_seconds_move_the_end(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limits = SearchLimits(2.0, 1000)
    now[0] += 10.0
    limits.extend(9.0)
    assert (limits.remaining_s(), limits.elapsed_s()) == (pytest.approx(1.0), 10.0)


@pytest.mark.parametrize("objective", ["max_load", "makespan"])
def test_cpsat_tells_while_it_searches(monkeypatch, objective):
    """Starts from a bad placement; reports have the values of the simulator."""
    pytest.importorskip("ortools")
    asked = problem(objective)
    alone = np.full(asked.graph.num_ops, 2)
    alone_s = float(asked.evaluate(alone[None])[0])

    def bad(*_: object, **__: object) -> Solution:
        return Solution(alone, alone_s, evaluations=1)

    monkeypatch.setattr(program_search, "find_warm_start", bad)
    told: list[tuple[int, float, np.ndarray]] = []
    found = program_search.cpsat(
        asked, 0, SearchLimits(10.0, 1, lambda *step: told.append(step[:3]))
    )
    assert found.status == "optimal"
    values = [best_s for _, best_s, _ in told]
    assert len(set(values)) > 1
    assert values == sorted(values, reverse=True)
    best_s = float(asked.evaluate(found.placement[None])[0])
    assert values[-1] == best_s < alone_s
