"""The incumbents that searches report, which outlive whatever ends the search."""

import itertools

import numpy as np
import pytest

from placement import methods
from placement.instance import Instance
from tests import helpers

# Beside these: what is exact or constructive, and tells nothing before it ends.
SEARCHES = (
    *(("local_search", o) for o in ("serial", "makespan", "max_load", "subgraph")),
    *(("annealing", "makespan"), ("genetic", "makespan"), ("brute_force", "serial")),
    *(("lns", "makespan"), ("graph_cut", "serial"), ("cpsat", "makespan"), ("cpsat", "max_load")),
    *(("milp", "max_load"), ("milp", "subgraph"), ("milp_noncontiguous", "max_load")),
)


PROGRAMS = ("milp", "milp_noncontiguous", "cpsat")


def problem(objective: str, num_ops: int) -> Instance:
    graph = helpers.random_dag(np.random.default_rng(5), num_ops, edge_probability=0.2)
    costs = helpers.random_costs(np.random.default_rng(6), graph, 3)
    costs = costs._replace(accelerator=np.array([0, 1, -1], np.int32))
    return Instance(graph, costs, objective, ("a", "b", "host"))


@pytest.mark.parametrize(("name", "objective"), SEARCHES)
def test_the_incumbent_told_is_worth_what_is_told_and_never_gets_worse(name, objective):
    asked = problem(objective, 8 if name == "brute_force" else 14)
    evaluate = asked.evaluate
    told: list[tuple[int, float, np.ndarray]] = []
    found = methods.solve(asked, name, budget=640, observe=lambda *step: told.append(step[:3]))
    assert told
    for (_, before_s, _), (_, after_s, _) in itertools.pairwise(told):
        assert after_s <= before_s
    for _, best_s, placement in told:
        assert float(evaluate(placement[None])[0]) == pytest.approx(best_s, rel=1e-5)
    assert found.value_s <= told[-1][1] * (1 + 1e-5)


@pytest.mark.parametrize(("name", "objective"), SEARCHES)
def test_a_search_that_is_stopped_returns_its_incumbent(name, objective):
    # Programs would prove the optimum of a small problem before they are stopped.
    asked = problem(objective, 8 if name == "brute_force" else 40 if name in PROGRAMS else 14)
    told: list[tuple[int, float, np.ndarray]] = []
    found = methods.solve(
        asked,
        name,
        budget=10**7,
        time_limit_s=60.0,
        observe=lambda *step: told.append(step[:3]),
        stop=lambda: bool(told),
    )
    assert found.search_s < 30.0
    assert found.status in ("interrupted", "optimal")
    assert found.value_s <= told[0][1] * (1 + 1e-5)
