"""`--task=solve`, and the bounds beside every row."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from configs import solvers as solvers_config
from placement.errors import UserError
from placement.methods import METHODS
from placement.pipeline import compare, solve
from placement.pipeline.results import bounds
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.problem import Problem
from placement.reporting import details
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status
from tests import helpers
from tests.search import test_schedule_search

# Two accelerators, a host, and two chains that feed one operation: ids 0 -> 2, 1 -> 3, (2, 3) -> 4.
WORKLOAD = {
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "maxSizePerFPGA": 100,
    "nodes": [
        {"id": i, "cpuLatency": 100, "fpgaLatency": latency, "size": 10}
        for i, latency in enumerate([4, 5, 3, 2, 1])
    ],
    "edges": [{"sourceId": s, "destId": d, "cost": 1} for s, d in [(0, 2), (1, 3), (2, 4), (3, 4)]],
}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides matplotlib, because drawing takes longer than solving."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def config(tmp_path: Path, **changes: object) -> Settings:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(WORKLOAD))
    values = {"graph": str(path), "devices": "auto", "objective": "max_load", "budget": 640}
    return Settings.from_mapping(dict(solvers_config.get_config()) | values | changes)


def rows(summary: dict) -> dict:
    return {row["method"]: row for row in summary["rows"]}


def test_every_row_has_its_gap(tmp_path):
    # {1, 3, 4} on one accelerator: 5 + 2 + 1 and a tensor of 1 received, {0, 2} on the other: 4 + 3
    # and a tensor of 1 sent.
    wanted = config(tmp_path, methods="ideals_dp,milp_noncontiguous,round_robin,local_search")
    found = rows(solve.run(wanted, tmp_path / "run"))
    assert found["ideals_dp"]["predicted_s"] == 9
    assert found["ideals_dp"]["status"] == "optimal, contiguous"
    assert found["milp_noncontiguous"]["status"] == "optimal"
    assert {row["bound_s"] for row in found.values()} == {9}
    for row in found.values():
        assert row["gap"] == pytest.approx(row["predicted_s"] / 9 - 1)
    placed = json.loads((tmp_path / "run/placement.json").read_text())["placement"]
    assert placed["node1"] == placed["node3"] == placed["node4"] != placed["node0"]
    assert placed["node0"] == placed["node2"]


def test_all_solvers_of_an_objective(tmp_path):
    found = rows(solve.run(config(tmp_path, time_limit_s=10.0), tmp_path / "run"))
    assert {"ideals_dp", "milp", "genetic", "brute_force"} <= found.keys()
    assert "heft" not in found


def test_unusable_methods_are_rows(tmp_path):
    wanted = config(tmp_path, methods="brute_force,topological")
    graph = "synthetic:family=layered,ops=40,seed=0"
    wanted = dataclasses.replace(wanted, graph=graph, devices="roofline:cpu,gpu")
    found = rows(solve.run(wanted, tmp_path / "run"))
    assert found["brute_force"]["status"].startswith("failed: graph")
    assert np.isfinite(found["topological"]["predicted_s"])
    wanted = dataclasses.replace(wanted, methods="brute_force")
    with pytest.raises(UserError, match="free operations"):
        solve.run(wanted, tmp_path / "alone")


def test_best_of_an_interrupted_comparison(tmp_path, monkeypatch):
    answers = iter([Solution(np.array([1, 0, 1, 0, 0]))])  # worth 10

    def once(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    genetic = METHODS["genetic"]._replace(source=once)
    monkeypatch.setitem(METHODS, "genetic", genetic)
    wanted = config(tmp_path, methods="topological,genetic,ideals_dp")
    other = tmp_path / "other.json"
    other.write_text(json.dumps(WORKLOAD))
    wanted = dataclasses.replace(wanted, graphs=f"{wanted.graph},{other}")
    summary = compare.run(wanted, tmp_path / "run")
    ran = [(row["graph"], row["method"]) for row in summary["rows"]]
    ran = [(graph, method) for graph, method in ran if not method.startswith("single:")]
    both = [(g, method) for g in ("tiny", "other") for method in ("topological", "genetic")]
    assert sorted(ran) == sorted([*both, ("tiny", "ideals_dp")])
    assert summary["best"] in ("topological", "single:acc0")


def make_row(value_s: float, bound_s: float = np.nan, scope: str = "all") -> Row:
    solution = Solution(np.zeros(2, np.int32), value_s, bound_s, scope=scope)
    return Row("some", solution, (), (value_s,))


def test_bounds_hold_for_their_rows(tmp_path):
    graph = helpers.chain(2)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "serial")  # optimum 2
    rows = [make_row(8.0, 5.0), make_row(9.0), make_row(7.0, 6.0, scope="contiguous")]
    path = tmp_path / bounds.FILE
    found = bounds.add_bounds(rows, problem, path)
    assert [row.solution.bound_s for row in found] == [5.0, 5.0, 6.0]
    # What is in the file counts, though nobody found it this time.
    again = bounds.add_bounds([make_row(9.0)], problem, path)
    assert again[0].solution.bound_s == 5.0


def test_bounds_depend_on_the_order(tmp_path):
    problem = test_schedule_search.waiting_problem()  # 11 s in HEFT's order, 8 s in the best
    order, placement = np.int32([2, 0, 1]), np.int32([0, 1, 1])
    proven = Solution(placement, 11.0, 11.0, Status.OPTIMAL, scope="given order")
    proven = proven._replace(elite=placement[None])
    rows = [
        Row("cpsat", proven, (), (11.0,)),
        Row("lns", Solution(placement, 11.0), (), (11.0,)),
        Row("search", Solution(placement, 8.0, order=order), (), (8.0,)),
    ]
    bounded = bounds.add_bounds(rows, problem, tmp_path / bounds.FILE)
    assert [row.solution.bound_s for row in bounded] == [11.0, 11.0, pytest.approx(8, rel=0.01)]
    assert bounded[0].to_json(11.0)["status"] == "optimal, given order"
    (stored,) = bounds.read(tmp_path / bounds.FILE).values()
    assert stored == [pytest.approx(8, rel=0.01), 11.0]


def test_found_orders_are_written(tmp_path):
    graph = "synthetic:family=known_optimum,ops=100,devices=6,seed=1"
    wanted = config(tmp_path, methods="search")
    wanted = dataclasses.replace(
        wanted, graph=graph, devices="auto", objective="makespan", budget=16_000, time_limit_s=60
    )
    summary = solve.run(wanted, tmp_path)
    (row,) = [row for row in summary["rows"] if row["method"] == "search"]
    placed = json.loads((tmp_path / "placement.json").read_text())
    assert sorted(placed["order"]) == sorted(placed["placement"])
    described = details.read(tmp_path / details.FILE)
    assert max(s.finish_s for s in described.predicted.spans) == pytest.approx(row["predicted_s"])
    position = {name: i for i, name in enumerate(placed["order"])}
    for device in range(6):
        ops = [s.ops[0] for s in described.predicted.spans if s.device == device]
        assert ops == sorted(ops, key=lambda op: position[described.graph.op_names[op]])
