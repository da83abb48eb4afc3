"""Workloads of every kind, through the command line: the results match the simulator.

The simulator is the plain one of `tests.simulators.reference`.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placement.costs import workloads
from placement.problem import Problem
from placement.reporting import details
from tests import helpers
from tests.experiments.command import check_summary, run
from tests.simulators import reference


def node(id_: int, **fields: Any) -> dict[str, Any]:
    """Makes costs of sums of powers of two, which float32 adds exactly in any order."""
    latency = 1 + id_ % 4
    return {"id": id_, "cpuLatency": 8 * latency, "fpgaLatency": latency, "size": 4} | fields


def workload(nodes: list[dict[str, Any]], edges: list[tuple[int, int]], **limits: int) -> Any:
    return {
        **{"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 1000},
        **limits,
        "nodes": nodes,
        "edges": [{"sourceId": s, "destId": d, "cost": 0.5, "size": 8} for s, d in edges],
    }


# Two branches of two operations between a first and a last one.
BRANCHES = [(0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5)]
SIX = [node(id_) for id_ in range(6)]
# Their backward pass: 11 - id is the gradient of id, and shares its device.
PASSES = [node(id_, colorClass=id_) for id_ in range(6)]
PASSES += [node(11 - id_, colorClass=id_, isBackwardNode=True) for id_ in reversed(range(6))]
BACKWARD = [(11 - d, 11 - s) for s, d in BRANCHES] + [(id_, 11 - id_) for id_ in range(6)]

WORKLOADS = {
    "plain": workload(SIX, BRANCHES),
    "colour_classes": workload(
        [node(id_, colorClass=(7, 8, 7, 8, 9, 7)[id_]) for id_ in range(6)], BRANCHES
    ),
    # The first of a class need not come first in the file's order of anything else.
    "one_class": workload([node(id_, colorClass=1) for id_ in range(6)], BRANCHES),
    "training": workload(PASSES, BRANCHES + BACKWARD),
    "memory_limits": workload(SIX, BRANCHES, maxSizePerFPGA=8),
    "unsupported": workload(
        [node(id_, supportedOnFpga=id_ not in (0, 3)) for id_ in range(6)], BRANCHES
    ),
    "several_hosts": workload(SIX, BRANCHES, maxCPUs=3, maxFPGAs=1),
    "no_host": workload(SIX, BRANCHES, maxCPUs=0),
    "hosts_alone": workload(SIX, BRANCHES, maxCPUs=2, maxFPGAs=0),
    "no_edges": workload(SIX, []),
    "one_operation": workload([node(1)], []),
}
QUICK = ("--config.budget=320", "--config.time_limit_s=20", "--config.devices=auto")
PROVES = {"max_load": "milp_noncontiguous", "subgraph": "milp"}
# Every kind once under the objective that it is made for, and what objectives differ in.
CASES = [
    *((name, "max_load", "") for name in ("training", "several_hosts", "one_operation")),
    ("memory_limits", "subgraph", ":parts=2"),
    ("colour_classes", "makespan", ""),
]


@pytest.mark.parametrize(("name", "objective", "parts"), helpers.nightly_except(CASES[2:], CASES))
def test_solvers_solve_every_kind(name: str, objective: str, parts: str, tmp_path: Path) -> None:
    file, workdir = tmp_path / f"{name}.json", tmp_path / "run"
    file.write_text(json.dumps(WORKLOADS[name]))
    proves = PROVES.get(objective, "brute_force")
    flags = [f"--config.graph={file}{parts}", f"--config.objective={objective}", *QUICK]
    flags += ["--task=solve", f"--config.methods=search,{proves}"]
    code, out, err = run(workdir, *flags, config="configs/solvers.py")
    assert code == 0, err
    summary = check_summary(workdir)
    rows = {row["method"]: row for row in summary["rows"]}
    assert rows[proves]["status"].removesuffix(", given order") == "optimal"
    alone = [row["predicted_s"] for row in rows.values() if row["method"].startswith("single")]
    assert rows["search"]["predicted_s"] <= min(filter(None, alone), default=math.inf)
    assert min(r["predicted_s"] or math.inf for r in rows.values()) == rows[proves]["predicted_s"]
    assert rows[proves]["method"] in out

    # Table, placement and details belong to one placement and its value.
    number = int(parts.removeprefix(":parts=") or 1)
    read = workloads.from_json(WORKLOADS[name], name=name, objective=objective, parts=number)
    problem = Problem(read.graph, read.costs, objective, read.devices)
    row = rows[summary["best"]]
    placed = json.loads((workdir / "placement.json").read_text())
    assert list(placed["placement"]) == list(problem.graph.op_names)
    placement = np.array([problem.devices.index(name) for name in placed["placement"].values()])
    (latency_s,), _, feasible = reference.outcomes(problem, placement[None])
    assert feasible == [True]
    assert row["predicted_s"] == pytest.approx(latency_s)
    assert row["bound_s"] is None or row["bound_s"] <= row["predicted_s"] * (1 + 1e-5)
    record = details.read(workdir / details.FILE)
    assert record is not None
    assert record.op_placement.tolist() == placement.tolist()
    shown = sorted(op for span in record.predicted.spans for op in span.ops)
    assert shown == list(range(problem.graph.num_ops))
    report = (workdir / "report.md").read_text()
    assert all(row["method"] in report for row in summary["rows"])
    for file_name in ("report.html", "trace.json"):
        assert (workdir / file_name).stat().st_size > 100
