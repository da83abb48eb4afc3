import io
import math

import numpy as np
import pytest
from rich.console import Console

from placement.reporting import wrapped_text
from placement.reporting.tables import results


def _row(method, predicted_s, median=None, ratio=None, **extra):
    measured = median and {"median": median, "low": 0.98 * median, "high": 1.05 * median, "n": 40}
    return {
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": measured,
        "versus_best_single_device": ratio,
        "bound_s": math.nan,
        "gap": math.nan,
        "search_s": 1.25,
        "evaluations": 32000,
        "measurements": 40,
        "status": "finished",
        **extra,
    }


def _rows(**extra):
    return [
        _row("single:CPU_BF16", np.float32(0.0163), 0.0169, 1.0, **extra),
        _row("hsdag", 0.0141, 0.0148, 0.8757, **extra),
        _row("heft", 0.0139, status="failed: compile: no | kernel\nfor Exp", **extra),
        _row("reference:CPU [f32, all]", math.nan, 0.0119, 0.704, reference=True, **extra),
    ]


def _summary(rows, **extra):
    return {
        "graph": {"name": "inception_v3", "num_ops": 1123, "num_edges": 1310},
        "devices": ["CPU_F32 [host, f32, core 0]", "CPU_BF16 [host, bf16, core 1]"],
        "objective": "serial",
        "seed": 3,
        "rows": rows,
        "best": "hsdag",
        "compute_s": 9.0,
        "wall_s": 61.24,
        **extra,
    }


def _rendered(summary, width, *, color=False, terminal=True):
    file = io.StringIO()
    system = "truecolor" if color else None
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=system, no_color=not color
    )
    wrapped_text.print_table(results.rich_table(summary), console)
    return file.getvalue()


def _line_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_table_keeps_every_number_whole(width):
    bounded = _row("milp_noncontiguous", 0.0139, bound_s=0.0131, gap=0.0611, status="optimal")
    text = _rendered(_summary([*_rows(), bounded]), width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for number in ("14.10", "14.80", "[14.50,", "15.54]", "0.876", "32000", "13.10", "6.1"):
        assert number in words
    assert "..." not in text
    assert "…" not in text


def test_at_80_columns_a_table_without_bounds_takes_a_line_a_row():
    text = _rendered(_summary(_rows()[:2]), 80)
    assert _line_of(text, "single:CPU_BF16").split()[1:] == (
        ["16.30", "16.90", "[16.56,", "17.75]", "1.000", "1.25", "32000", "finished"]
    )
    assert "bound" not in text
    assert "gap" not in text


def test_a_failed_row_shows_its_status_and_no_measured_number():
    text = _rendered(_summary(_rows()), 100)
    assert _line_of(text, "heft").split() == (
        ["heft", "13.90", "-", "-", "1.25", "32000", "failed:", "compile"]
    )
    assert "heft failed: compile: no | kernel for Exp" in text
    markdown = results.markdown_table(_summary(_rows()))
    assert _line_of(markdown, "| heft").endswith(r"| failed: compile: no \| kernel for Exp |")


def test_only_the_row_to_use_is_bold():
    slower = [*_rows()[:3], _row("reference:CPU [f32, all]", None, 0.02, 1.2, reference=True)]
    text = _rendered(_summary(slower), 100, color=True)
    bold = [line for line in text.splitlines() if "\x1b[1m" in line and "[14.50" in line]
    assert len(bold) == 1
    assert not [line for line in text.splitlines() if "\x1b[1m" in line and "16.90" in line]
    markdown = results.markdown_table(_summary(slower)).splitlines()
    assert [line.split("|")[1].strip() for line in markdown if "**" in line] == ["**hsdag**"]


def test_references_stand_below_a_separator_and_may_win():
    rows = _rows()
    rows.insert(0, rows.pop())  # wherever they come in the summary
    lines = results.markdown_table(_summary(rows)).splitlines()
    assert lines[-2].startswith("| *for reference:* |")
    assert lines[-1].startswith("| **CPU [f32, all]** | **-** | **11.90 [11.66, 12.50]** |")
    assert sum("**" in line for line in lines) == 1


def test_a_proof_about_what_was_measured_is_one_in_simulation():
    rows = [_row("lns", 0.01, 0.02, 1.0, status="optimal"), _row("milp", 0.01, status="optimal")]
    measured, predicted = results.markdown_table(_summary(rows)).splitlines()[2:]
    assert measured.endswith("| **optimal in simulation** |")
    assert predicted.endswith("| optimal |")


def test_the_bound_and_the_gap_have_columns_where_a_row_has_them():
    rows = [*_rows(), _row("graph_cut", 0.0139, bound_s=0.0139, gap=0.0, status="optimal")]
    lines = results.markdown_table(_summary(rows)).splitlines()
    assert "| bound ms | gap % |" in lines[0]
    assert "| 13.90 | 0.0 |" in lines[5]
    assert lines[2].count("| - | - |") == 1
    assert len({line.replace(r"\|", "").count("|") for line in lines}) == 1


def test_the_report_says_what_ran_what_is_best_and_what_host_means():
    report = results.report_markdown(_summary(_rows()))
    assert report.startswith("# Placement of inception_v3\n")
    for text in (
        "operations: 1123, edges: 1310",
        "`CPU_F32 [host, f32, core 0]`, `CPU_BF16 [host, bf16, core 1]`",
        "objective: `serial`",
        "seed: 3",
        "\n\nUse `CPU [f32, all]`: 11.90 ms. The placement of `hsdag` takes 14.80 ms.",
        "`placement.json`",
        "say nothing about GPUs",
    ):
        assert text in report
    assert "GPUs" not in results.report_markdown(_summary(_rows(), devices=["CPU", "GPU.0"]))


def test_each_of_several_graphs_has_its_verdict_and_its_wrong_predictions():
    wrong = _row("search", 0.0213, 0.0576, 2.7, graph="b")
    rows = [*_rows(graph="a"), _row("single:CPU", 0.02, 0.02, 1.0, graph="b"), wrong]
    parts = results.compare_markdown(_summary(rows)).split("\n\n")
    assert [parts[0], parts[3]] == ["### a", "### b"]
    assert parts[1].startswith("Use `CPU [f32, all]`: 11.90 ms.")
    assert parts[4].startswith("Use `CPU` alone: 20.00 ms. The placement of `search` takes 57.60")
    assert parts[5].startswith("The prediction for `search` is off by more than 25%")
    assert results.verdict(_summary(rows)).startswith("Over 2 graphs, ")
    assert results.mispredictions(_summary(rows)) == []


def test_a_comparison_has_no_placement_of_its_own():
    assert "placement.json" in results.report_markdown(_summary(_rows()))
    compared = results.report_markdown(_summary(_rows(graph="a", seed=0)))
    assert "placement.json" not in compared


def test_a_comparison_has_a_seed_column_and_a_table_and_a_best_row_for_each_graph():
    rows = [
        *_rows(graph="a", seed=0)[:3],
        *_rows(graph="a", seed=1)[:3],
        _row("single:CPU", 0.2, ratio=1.0, graph="b", seed=0),
        _row("metis", 0.1, ratio=0.5, graph="b", seed=0),
        _row("metis", 0.09, ratio=0.45, graph="b", seed=1),
    ]
    summary = _summary(rows)
    markdown = results.compare_markdown(summary)
    assert [line for line in markdown.splitlines() if line.startswith("#")] == ["### a", "### b"]
    assert "| seed | method |" in markdown
    best = [line for line in markdown.splitlines() if "**" in line]
    assert [line.split("|")[1:3] for line in best] == [
        [" **0** ", " **hsdag** "],
        [" **1** ", " **metis** "],
    ]
    terminal = _rendered(summary, 100)
    assert terminal.splitlines()[2].split()[:3] == ["graph", "seed", "method"]
    assert "Over 2 graphs, " in terminal


def test_columns_that_say_the_same_in_every_row_are_left_out():
    markdown = results.compare_markdown(_summary(_rows(graph="inception_v3", seed=0)))
    assert markdown.startswith("| method |")


LONG = "hierarchical:num_groups=32,num_samples=16,hidden_size=64"


def test_a_terminal_folds_names_between_words():
    text = _rendered(_summary([_row(LONG, 0.0141)], best=LONG), 80)
    assert max(map(len, text.splitlines())) <= 80
    lines = [line.split("  ")[0].split(" ")[0] for line in text.splitlines()]
    for word in ("hierarchical:", "num_groups=32,", "num_samples=16,", "hidden_size=64"):
        assert any(line.startswith(word) for line in lines), text


def test_elsewhere_a_row_is_a_line_however_long_it_is():
    cause = "failed: compile: " + "why " * 60 + "not"
    rows = [_row(LONG, 0.0141), _row("heft", None, status=cause)]
    text = _rendered(_summary(rows, best=LONG), 80, terminal=False)
    (line,) = [line for line in text.splitlines() if line.startswith(LONG)]
    assert line.split()[-4:] == ["-", "1.25", "32000", "finished"]
    assert "predicted ms" in text
    assert "evaluations" in text
    assert any(line.startswith("heft failed: compile: why why") for line in text.splitlines())
    assert all(not line.startswith("why") for line in text.splitlines())


@pytest.mark.parametrize(
    ("line", "width", "folded"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("a:b=1,c=2", 6, ["a:b=1,", "c=2"]),
        ("-3.25% of -1.5e-07", 8, ["-3.25%", "of", "-1.5e-07"]),
        ("extraordinary", 5, ["extra", "ordin", "ary"]),
        ("", 5, [""]),
    ],
)
def test_lines_fold_between_words_and_in_one_only_where_it_is_wider(line, width, folded):
    assert wrapped_text.wrap(line, width) == folded


def test_output_errors_are_a_column_where_rows_have_them():
    assert "output error" not in results.markdown_table(_summary(_rows()))
    rows = [*_rows(output_error=0.0133), _row("random", 0.0163)]
    table = results.markdown_table(_summary(rows))
    assert "| output error |" in table
    assert "| 0.013 |" in table
