import io
import math

import numpy as np
from rich.console import Console

from placement.reporting.tables import results
from tests.reporting.rows import make_row


def make_rows(**extra):
    return [
        make_row("reference:CPU [f32, all]", math.nan, 0.0119, 0.704, reference=True, **extra),
        make_row("single:CPU_BF16", np.float32(0.0163), 0.0169, 1.0, **extra),
        make_row("hsdag", 0.0141, 0.0148, 0.8757, **extra),
        make_row("heft", 0.0139, status="failed: compile: no | kernel\nfor Exp", **extra),
    ]


def make_summary(rows, **extra):
    return {
        "graph": {"name": "inception_v3", "num_ops": 1123, "num_edges": 1310},
        "devices": ["CPU_F32 [host, f32, core 0]", "CPU_BF16 [host, bf16, core 1]"],
        "objective": "serial",
        "starts": "heuristics",
        "seed": 3,
        "rows": rows,
        "best": "hsdag",
        "compute_s": 9.0,
        "wall_s": 61.24,
        **extra,
    }


def print_table(summary, width=100, *, terminal=True):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    console.print(results.terminal_table(summary))
    return console.file.getvalue()


def find_rows(text, start="|"):
    """Returns the cells of the Markdown rows that start so."""
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_terminal_keeps_every_number():
    long = "hierarchical:num_groups=32,num_samples=16,hidden_size=64"
    bounded = make_row(long, 0.0139, ratio=2.5, bound_s=0.0131, gap=0.0611, status="optimal")
    bounded["same_as"] = "hsdag"
    text = print_table(make_summary([*make_rows(), bounded]))
    assert max(map(len, text.splitlines())) <= 100
    piped = print_table(make_summary([*make_rows(), bounded]), 100_000, terminal=False)
    assert piped.split() == text.split()  # only sentences have other line breaks
    for text_part in (
        "14.10",
        "14.80",
        "[14.50,",
        "15.10]",
        "0.876",
        "█" * 7 + "░" * 5,
        "█" * 11 + "+",
    ):
        assert text_part in text.split()
    assert "13.10" not in text  # a bound of predictions, next to measured latencies
    assert "…" not in text
    assert "inception_v3: 1123 operations, 1310 edges; objective serial" in text
    assert "The placement of hsdag takes 14.80 ms, 24%" in text
    assert "heft: failed: compile: no | kernel for Exp" in text
    assert f"{long}: optimal\n" in text


def test_columns_need_values():
    (header, *_, last) = find_rows(results.report(make_summary(make_rows(graph="a", seed=0))))
    assert header == [
        "method", "predicted ms", "measured ms [low, high]", "vs best single", "search s",
        "evaluations", "status",
    ]  # fmt: skip
    assert last[0] == "**plain CPU [f32, all]**"
    bounded = make_row("lns", 0.01, ratio=1.0, bound_s=0.01, gap=0.0, output_error=0.0133)
    (header, _, row) = find_rows(results.report(make_summary([bounded])))
    assert header[-5:] == ["vs best single", "bound ms", "gap %", "search s", "evaluations"]
    assert row[2:6] == ["**0.013**", "**1.000**", "**10.00**", "**0.0**"]


def test_measured_proof_holds_in_simulation():
    measured = make_row("lns", 0.01, 0.02, 1.0, status="optimal")
    rows = find_rows(
        results.report(make_summary([measured, make_row("milp", 0.01, status="optimal")]))
    )
    assert [row[-1] for row in rows[2:]] == ["**optimal in simulation**", "optimal"]


def test_report_names_facts_and_host():
    summary = make_summary(make_rows(), complete=False)
    report = results.report(summary, facts={"next": "deploy"}, warnings=["It was busy."])
    assert report.startswith(
        "# inception_v3: placing saves nothing\n\nUse plain OpenVINO on `CPU [f32, all]`: "
        "11.90 ms. The placement of `hsdag` takes 14.80 ms, 24% more.\n\n> It was busy.\n\n> The "
        "run is incomplete"
    )
    for text in (
        "say nothing about GPUs.\n\n- next: deploy\n- graph: 1123 operations, 1310 edges\n",
        "`CPU_F32 [host, f32, core 0]`, `CPU_BF16 [host, bf16, core 1]`",
        *("objective: `serial`", "seed: 3"),
    ):
        assert text in report
    assert "GPUs" not in results.report(make_summary(make_rows(), devices=["CPU", "GPU.0"]))


def test_each_graph_has_a_verdict():
    wrong = make_row("search", 0.0213, 0.0576, 2.7, graph="b")
    rows = [*make_rows(graph="a"), make_row("single:CPU", 0.02, 0.02, 1.0, graph="b"), wrong]
    report = results.report(make_summary(rows), {"Comparison": "text"})
    parts = report.split("\n\n")
    assert parts[0] == "# Placement of 2 graphs"
    assert parts[1] == "No method has a latency on every graph."
    assert parts[4:6] == ["## Comparison", "text"]
    assert parts[7] == "### a"
    assert parts[8].startswith("Use plain OpenVINO on `CPU [f32, all]`: 11.90 ms.")
    assert parts[11].startswith("Use `CPU` alone: 20.00 ms. The placement of `search` takes 57.60")
    assert parts[12].startswith("The prediction for `search` is off by more than 25%")


def test_unsupported_operations_are_counted():
    record = {"device": "NPU", "op_type": "LRN", "inputs": "f32[1]", "reason": "no"}
    records = [record | {"name": f"op_{i}"} for i in range(12)]
    records.append(records[0] | {"device": "GPU", "reason": "too large"})
    text = results.unsupported(records)
    assert text.startswith("Operations that cannot run: 12 on NPU, 1 on GPU.\n")
    _, _, first, second = find_rows(text)
    assert first[1].endswith("`op_9`, 2 more")
    assert second[-1] == "too large"


def test_divisions_name_operations_and_errors():
    culprits = [
        {"ops": ["mix"], "error": 0.51, "run_on": ["CPU_F32"]},
        {"ops": [f"conv_{i}" for i in range(12)], "error": None, "run_on": ["CPU", "NPU"]},
    ]
    record = {
        **{"device": "GPU", "label": "GPU [f16]", "max_error": 0.1, "whole_error": None},
        "error": 0.0133,
    }
    section = results.divisions([record | {"culprits": culprits}])
    assert "outputs are not finite" in section
    assert "Without the 13 operations below, they differ by 0.0133" in section
    *_, first, second = find_rows(section)
    assert first == ["GPU", "`mix`", "0.51", "CPU_F32"]
    assert second[1].endswith("`conv_9`, 2 more")
    assert second[2:] == ["not finite", "CPU, NPU"]
