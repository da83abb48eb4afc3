"""Every table that runs stand behind has commands that make it again."""

import functools
import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.audit import tables as audit_tables
from experiments.reproduction import __main__ as documents
from experiments.reproduction import page_tables as tables
from experiments.reproduction import results, table_readers
from experiments.reproduction.server import NMT
from placement.methods import pretrained
from placement.reporting import runs
from tests.docs import pages, test_references
from tests.experiments import command

# Tables of numbers that `documents` does not make, by a cell of their header: what they are.
OTHERS = {
    ("docs/DEVICES.md", "sustained GFLOP/s"): "data sheets",
    ("docs/DEVICES.md", "sustained GB/s"): "data sheets",
    ("docs/DEVICES.md", "igpu"): "what tests of rooflines compare",
    ("docs/DEVICES.md", "`CPU_ALL` ms"): "an idle processor and models of others, measured once",
    ("docs/DEVICES.md", "predicted without the costs"): "profiles of the same runs",
    ("docs/MEMORY.md", "measured ms"): "an idle processor, measured once",
}
_DECIMAL = re.compile(r"\**\d[\d,]*\.\d")


def marked(page: str) -> dict[str, list[str]]:
    """The header of the table below each mark."""
    lines = (pages.ROOT / page).read_text("utf-8").splitlines()
    found = {}
    for number, line in enumerate(lines):
        if name := re.fullmatch(r"<!-- documents: (\w+) -->", line):
            head = next(text for text in lines[number + 1 :] if text.startswith("|"))
            found[name[1]] = pages.cells(head)
    return found


def test_every_table_that_is_made_is_marked_in_its_page_and_no_other() -> None:
    found = {name: page for page in pages.PAGES for name in marked(page)}
    assert found == {name: table.page for name, table in tables.TABLES.items()}


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_table_of_measured_numbers_is_made_or_named_here(page: str) -> None:
    made = list(marked(page).values())
    for rows in pages.tables(page):
        numbers = any(_DECIMAL.match(cell) for row in rows[1:] for cell in row[1:])
        named = any((page, cell) in OTHERS for cell in rows[0])
        assert not numbers or named or rows[0] in made, rows[0]


@pytest.mark.parametrize("name", tables.TABLES)
def test_commands_have_flags_and_configurations_that_there_are(name: str) -> None:
    for flags in tables.TABLES[name].runs.values():
        if not flags.startswith("--"):
            assert importlib.util.find_spec(flags.split()[0])
            continue
        assert all(flag.startswith("--") for flag in shlex.split(flags))
        assert not list(test_references._missing_flags(flags))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """The run directory `list` of a small comparison."""
    made = tmp_path_factory.mktemp("documents")
    code, _, err = command.run(
        made / "list",
        *("--task=compare", "--config.methods=heft,lns", "--config.objective=makespan"),
        *("--config.graphs=synthetic:family=layered,ops=12,seed=1", "--config.seeds=2"),
        *("--config.devices=roofline:cpu,gpu,gpu", "--config.budget=64"),
        config="configs/compare.py",
    )
    assert code == 0, err
    return made


def test_a_comparison_is_read_as_ratios_and_gaps(folder) -> None:
    methods = ("heft", "lns")
    rows = json.loads((folder / "list/summary.json").read_text())["rows"]
    of_heft = [r["predicted_s"] for r in rows if r["method"] == "heft"]
    of_lns = [r["predicted_s"] for r in rows if r["method"] == "lns"]
    header, scored = table_readers.read_scores(folder, "list", ["lns"])
    assert header[0] == "method"
    assert header[2:] == ["all graphs", "`lns` is faster"]
    known_s = min(of_heft + of_lns)
    (score,) = (float(row[1]) for row in scored if row[0] == "`heft`")
    assert score == pytest.approx(of_heft[0] / known_s, abs=1e-3)
    header, (gaps,) = table_readers.read_gaps(folder, ["list"], "lns", methods)
    assert header[2:] == ["optimum ms", "single", "heft", "lns"]
    assert gaps[-1] == "0.0%"
    header, reported = table_readers.read_report_table(folder, "list", ["reduction"], ["bound"])
    assert header[:2] == ["graph", "best single device"]
    assert "bound" not in header
    assert len(reported) == 1


def _make_row(graph: str, method: str, **fields: Any) -> dict[str, Any]:
    """Returns a made-up row of a summary."""
    row = {"graph": graph, "seed": 0, "method": method, "predicted_s": 1.0, "evaluations": 1}
    row |= {"search_s": 0.1, "measured_s": None, "status": "finished"}
    return row | {"versus_best_single_device": 1.0} | fields


def _write_summary(folder: Path, graph: str, rows: list[dict[str, Any]]) -> None:
    """Writes the summary of a run with made-up rows."""
    summary = {"graph": {"name": graph, "num_ops": 1, "num_edges": 0}, "devices": ["gpu"]}
    summary |= {"rows": rows, "objective": "makespan", "seed": 0, "best": None}
    folder.mkdir()
    runs.write_json(folder / runs.SUMMARY, summary)


def test_a_published_table_stands_beside_what_several_runs_found(tmp_path) -> None:
    for run, graph in (("two", "rnnlm:training=1"), ("four", f"nmt:layers=4,{NMT},training=1")):
        rows = [
            _make_row(graph, method, predicted_s=value)
            for method, value in (("single:gpu", 2.0), ("human_expert", 1.0), ("min_cut", 1.5))
        ]
        _write_summary(tmp_path / run, graph, rows)
    header, table = table_readers.read_published(tmp_path, ["two", "four"], "hierarchical_planner")
    by_graph = {row[0]: dict(zip(header, row, strict=True)) for row in table}
    assert by_graph["rnnlm"]["min_cut"].startswith("0.750 vs 3.318 ")
    assert by_graph["nmt:layers=4"]["GPU only"].startswith("1.000 vs OOM")
    assert by_graph["nmt:layers=8"]["human_expert"].startswith("- vs ")


def test_references_are_faster_or_slower_where_intervals_do_not_overlap(tmp_path) -> None:
    intervals_by_graph = {"nmt:steps=2": (0.4, 0.5), "rnnlm": (0.8, 0.9), "two_stream": (0.5, 0.7)}
    for graph, interval in intervals_by_graph.items():
        rows = [
            _make_row(graph, "search", versus_best_single_device=0.7, versus_interval=(0.6, 0.75)),
            _make_row(graph, "reference:CPU", reference=True, versus_interval=interval),
        ]
        _write_summary(tmp_path / graph, graph, rows)
    assert table_readers.describe_gains(tmp_path, intervals_by_graph, "search") == [
        "The placements of `search` take 0.70 to 0.70 of the time of the best single device.",
        "Compared with them, `CPU` is faster on nmt; slower on rnnlm; undecided on two_stream.",
    ]


def test_errors_of_predictions_are_given_as_ranges(tmp_path) -> None:
    for run, error in (("a", 0.01), ("b", 0.125)):
        row = {"predicted by": "makespan", "costs": "profiled", "spearman": 1 - error}
        rows = [row | {"kind": kind, "median_error": error} for kind in ("all", "contiguous")]
        (tmp_path / run).mkdir()
        runs.write_json(tmp_path / run / "fidelity.json", {"rows": rows})
    assert table_readers.describe_fidelity(tmp_path, ["a", "b"]) == [
        "Predictions by makespan with profiled costs have a median error of 1.0% to 12.5%, "
        "and a rank correlation of at least 0.875."
    ]


def test_a_table_is_replaced_where_it_stands_and_what_moved_is_told(tmp_path) -> None:
    page = tmp_path / "page.md"
    mark = documents.MARK.format("one")
    page.write_text(
        f"# A\n\n{mark}\n\n| graph | ms |\n|---|---:|\n| a | 1.00 |\n| b | 2.00 |\n\nAfter.\n"
    )
    grid = (["graph", "ms"], [["a", "1.01"], ["b", "**3.00**"], ["c", "1"]])
    told = documents.replace_table(page, "one", grid)
    assert told == ["b, ms: 2.00 -> **3.00**", "c, graph: nothing -> c", "c, ms: nothing -> 1"]
    assert page.read_text() == (
        f"# A\n\n{mark}\n\n| graph | ms |\n| --- | ---: |\n| a | 1.01 |\n| b | **3.00** |\n"
        "| c | 1 |\n\nAfter.\n"
    )
    assert documents.replace_table(page, "one", grid) == []


def test_no_family_of_the_audit_was_in_a_pretraining() -> None:
    families = {entry.family for entry in audit_tables.list_problems()}
    for path in pretrained.SHIPPED.parent.glob("*.json"):
        assert not families & set(json.loads(path.read_text())["families"].split(","))


COMMANDS = results.read_commands(results.STORED)
STORED = [n for n, table in tables.TABLES.items() if not documents.find_missing(table, COMMANDS)]


@pytest.mark.parametrize("name", STORED)
def test_tables_and_sentences_of_stored_results_are_up_to_date(name: str, tmp_path) -> None:
    table = tables.TABLES[name]
    page = tmp_path / "page.md"
    page.write_text((pages.ROOT / table.page).read_text("utf-8"))
    results.unpack(tmp_path, results.STORED)
    documents.replace_table(page, name, table.read(tmp_path))
    if name in tables.SENTENCES:
        documents.replace_sentences(page, name, tables.SENTENCES[name][1](tmp_path))
    assert page.read_text() == (pages.ROOT / table.page).read_text("utf-8")


def test_every_stored_run_is_one_of_a_table() -> None:
    commands = dict[str, str]()
    for table in tables.TABLES.values():
        commands |= table.runs
    assert commands.items() >= COMMANDS.items()


def test_pages_quote_tables_and_runs(tmp_path):
    results.unpack(tmp_path, results.STORED)
    measured = _rows_under("docs/CONCURRENT.md", "single ms", "ratio")
    gains = [(row[0], float(row[5].split()[0])) for row in measured]
    assert [graph for graph, _ in gains[:2]] == ["inception_v3", "two_stream"]
    papers = [row[-1] for row in _rows_under("docs/REPRODUCTION.md", "paper", "conclusion")]
    cases = [row[2] for row in _rows_under("docs/REPRODUCTION.md", "conclusion", "figure")]
    planner = _rows_under("docs/REPRODUCTION.md", "min_cut", "cpsat")
    slower = [  # scotch and min_cut; column 5 is the Planner
        sorted(float(row[column].split()[0]) / float(row[5].split()[0]) - 1 for row in planner)
        for column in (3, 4)
    ]
    runs_s: dict[str, list[float]] = {}
    for row in runs.read_summary(tmp_path / "roles_planner")["rows"]:
        if row["graph"] == "nmt:layers=2":
            runs_s.setdefault(row["method"], []).append(row["predicted_s"])
    roles_s = runs_s["hierarchical:grouping=roles,num_groups=128"]
    share = np.mean(np.less.outer(runs_s["hierarchical"], roles_s))
    minutes = [
        round(runs.read_summary(tmp_path / run)["wall_s"] / 60)
        for run in ("hierarchical", "hierarchical-4", "hierarchical-8")
    ]
    pretraining = json.loads((pretrained.SHIPPED.parent / "hsdag_makespan.json").read_text())
    for page, quoted in (
        ("README.md", f"Inception-V3 takes {gains[0][1]:.2f} of"),
        ("README.md", f"a two-branch network {gains[1][1]:.2f}"),
        ("docs/REPRODUCTION.md", f"{papers.count('holds')} of {len(papers)} conclusions hold"),
        ("docs/REPRODUCTION.md", f"{cases.count('holds')} of {len(cases)} cases hold"),
        ("docs/REPRODUCTION.md", f"Scotch {slower[0][0]:.0%} to {slower[0][-1]:.0%}"),
        ("docs/REPRODUCTION.md", f"MinCut is {slower[1][0]:.0%} to {slower[1][-1]:.0%}"),
        ("docs/REPRODUCTION.md", f"take {minutes[0]} minutes on two cores"),
        ("docs/REPRODUCTION.md", f"takes {minutes[1]} and {minutes[2]} minutes"),
        ("docs/QUESTIONS.md", f"faster in only {share:.0%} of all pairs"),
        ("docs/PRETRAINING.md", f"took {pretraining['elapsed_s'] / 60:.0f} minutes"),
    ):
        assert quoted in " ".join((pages.ROOT / page).read_text("utf-8").split())


# Figures in prose that no table has: what they are.
_NOT_MEASURED = {
    **{"3.11": "Python", "0.001": "a tolerance", "0.97": "a limit", "0.06": "a limit"},
    **{"1.5869": "a data sheet", "8.74": "a data sheet", "4.29": "a data sheet"},
    "60.24": "published",
}


@pytest.mark.parametrize("page", pages.PAGES)
def test_figures_in_prose_are_in_tables(page):
    """The table is in the page, or in one that the paragraph links to."""
    for token in pages.tokens(page):
        children = token.children or ()
        prose = " ".join(child.content for child in children if child.type == "text")
        targets = [str(child.attrs.get("href", "")).partition("#")[0] for child in children]
        paths = [(pages.ROOT / page).parent / target for target in targets if target]
        names = [str(path.relative_to(pages.ROOT)) for path in paths if path.suffix == ".md"]
        for figure in re.findall(r"(?<![\w.,])\d+\.\d{2,}(?![\w.])", prose):
            half = 0.51 * 10.0 ** -len(figure.partition(".")[2])
            numbers = (number for name in (page, *names) for number in _table_numbers(name))
            is_known = any(abs(number - float(figure)) <= half for number in numbers)
            assert is_known or figure in _NOT_MEASURED, f"{page}: {prose}"


@functools.cache
def _table_numbers(page: str) -> list[float]:
    cells = (cell for rows in pages.tables(page) for row in rows for cell in row)
    return [float(n) for cell in cells for n in re.findall(r"\d+\.?\d*", cell.replace(",", ""))]


def _rows_under(page: str, *headers: str) -> list[list[str]]:
    """Returns the rows of the first table of a page with columns of these headers."""
    rows, *_ = [rows[1:] for rows in pages.tables(page) if {*headers} <= {*rows[0]}]
    return rows
