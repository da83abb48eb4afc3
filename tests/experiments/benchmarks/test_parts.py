"""The benchmark of the parts of HSDAG, on one small graph."""

import numpy as np
import pytest

from experiments.audit import curves
from experiments.benchmarks import parts


@pytest.mark.slow
def test_every_method_is_read_at_every_point(monkeypatch, capsys):
    graph = "synthetic:family=known_optimum,ops=30,devices=3"
    monkeypatch.setattr(parts, "_OPTIMUM_GRAPHS", (graph,))
    monkeypatch.setattr(parts, "_OTHER_GRAPHS", ())
    monkeypatch.setattr(parts, "_METHODS", ("search_untrained", "lns"))
    for name, value in (("_EVALUATIONS", 512), ("_COMPILED_S", 0.1), ("_COLD_S", 0.1)):
        monkeypatch.setattr(parts, name, value)
    monkeypatch.setattr(curves, "_LIMITS_S", (0.1, 0.1))
    results = parts.measure(seeds=range(2))
    assert graph in capsys.readouterr().err
    assert [(r.method, r.seed) for r in results] == [
        (method, seed) for method in ("search_untrained", "lns") for seed in range(2)
    ]
    assert all(1 <= value < np.inf for r in results for value in r.best_s[:1])


def test_a_score_is_over_the_optimum_or_the_best_known():
    def result(method: str, graph: str, reference_s: float, best_s: float) -> parts.Result:
        return parts.Result(method, graph, 0, reference_s, 2.0, (best_s,) * 3)

    rows = parts.make_rows(
        [
            *(result("a", "optimum", 1.0, 1.5), result("a", "other", np.nan, 4.0)),
            *(result("b", "optimum", 1.0, 1.2), result("b", "other", np.nan, 5.0)),
        ]
    )
    assert [[cell.split()[0] for cell in row] for row in rows] == [
        ["a", *["1.500"] * 3, *["1.000"] * 3, "2.0"],
        ["b", *["1.200"] * 3, *["1.250"] * 3, "2.0"],
    ]
