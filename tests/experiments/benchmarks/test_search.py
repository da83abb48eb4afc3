import numpy as np
import pytest

from experiments.benchmarks import cells, search
from placement.errors import UserError
from placement.pipeline import loading


def test_one_limit_is_for_both_methods_and_two_are_for_one_each():
    assert search._parse_seconds("5") == (5, 5)
    assert search._parse_seconds("0.5:60") == (0.5, 60)
    for text in ("", "five", "0", "-1", "1:-2", "nan"):
        with pytest.raises(UserError, match="give seconds"):
            search._parse_seconds(text)


def test_a_cell_has_latencies_that_placements_can_have(monkeypatch):
    case = cells.Case("fork_join", "synthetic:family=fork_join,ops=20", "roofline:cpu,gpu")
    monkeypatch.setattr(search, "_list_cases", lambda: [case])
    problem = cells.describe_problem(case.graph, case.devices)
    values = search.measure_problem(problem, 0.2, 0.2)
    total_s = np.asarray(problem.coarse.costs.compute_s).sum()
    assert 0 < values["search_s"] < total_s
    assert 0 < values["compiling_s"] < total_s
    assert values["evaluations_per_s"] > 0
    monkeypatch.setattr(search, "measure_problem", lambda *_, **__: values)
    search.run("1")


def test_large_members_are_large():
    graph = next(search.draw_large_members("layered"))
    assert loading.build_graph_network(graph).graph.num_ops >= 1_000
