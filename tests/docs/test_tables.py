"""Tables of the pages are those of the stored runs, and so are the figures of sentences."""

import functools
import importlib.util
import json
import re

import numpy as np
import pytest

from experiments.tables import __main__ as command
from experiments.tables import audit, papers, readers, stored
from placement import suite
from placement.methods import learned, pretrained
from tests.docs import pages, test_references

# Tables of numbers that no stored run has, by a cell of their header: what they are.
OTHERS = {
    ("docs/DEVICES.md", "sustained GFLOP/s"): "data sheets",
    ("docs/DEVICES.md", "sustained GB/s"): "data sheets",
    ("docs/DEVICES.md", "igpu"): "what tests of rooflines compare",
}
_DECIMAL = re.compile(r"\**\d[\d,]*\.\d")
_TABLE_MARK = re.compile(r"<!-- documents: (\w+) -->")
_SENTENCES_MARK = re.compile(r"<!-- sentences: \w+ -->")


def test_tables_match_stored_runs(monkeypatch):
    names, read = set(), stored.read
    monkeypatch.setattr(stored, "read", lambda run, file: names.add(run) or read(run, file))
    assert command.find_stale(write=False) == []
    assert names == set(stored.COMMANDS)


def test_pages_have_all_tables():
    marks = [m for page in pages.PAGES for m in _TABLE_MARK.findall(_text(page)) if m != "NAME"]
    assert sorted(marks) == sorted(readers.TABLES)


@pytest.mark.parametrize("page", pages.PAGES)
def test_measured_tables_are_generated(page):
    lines = _text(page).splitlines()
    generated = [
        pages.cells(next(text for text in lines[number:] if text.startswith("|")))
        for number, line in enumerate(lines)
        if _TABLE_MARK.fullmatch(line)
    ]
    for rows in pages.tables(page):
        has_numbers = any(_DECIMAL.match(cell) for row in rows[1:] for cell in row[1:])
        is_named = any((page, cell) in OTHERS for cell in rows[0])
        assert not has_numbers or is_named or rows[0] in generated, rows[0]


def test_commands_have_valid_flags():
    for text in stored.COMMANDS.values():
        if text.startswith("--"):
            assert not list(test_references._missing_flags(text)), text
        else:
            assert importlib.util.find_spec(text.split()[0]), text


def test_no_audited_family_was_pretrained():
    problems = audit.list_problems(split="")
    families = {entry.family for entry in suite.list_entries() if entry.name in problems}
    for path in pretrained.SHIPPED.parent.glob("*.json"):
        assert not families & set(json.loads(path.read_text())["families"].split(","))


# Figures in prose that no table or run has: what they are.
_NOT_MEASURED = {
    **{"3.11": "Python", "0.001": "a tolerance", "0.97": "a limit", "0.06": "a limit"},
    **{"1.5869": "a data sheet", "8.74": "a data sheet", "4.29": "a data sheet"},
    "27.34": "a data sheet",
    "60.24": "published",
}


@pytest.mark.parametrize("page", pages.PAGES)
def test_figures_in_prose_have_sources(page):
    """A figure is in a table of the page, or of one that the paragraph links to, or in a quote.

    Below `<!-- sentences: NAME -->` these are all numbers, elsewhere those with two decimals.
    """
    quotes = [quote for quoted_page, quote in _list_quotes() if quoted_page == page]
    lines, prose_of_page = _text(page).splitlines(), ""
    for token in pages.tokens(page):
        if token.type != "inline":
            continue
        children = token.children or ()
        targets = [str(child.attrs.get("href", "")).partition("#")[0] for child in children]
        paths = [(pages.ROOT / page).parent / target for target in targets if target]
        names = [str(path.relative_to(pages.ROOT)) for path in paths if path.suffix == ".md"]
        prose = " ".join(token.content.split())
        prose_of_page += f" {prose}"
        for quote in quotes:
            prose = prose.replace(quote, "")
        prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", prose)
        start = token.map[0]
        while start and lines[start - 1] and not lines[start - 1].startswith("#"):
            start -= 1
        is_marked = bool(_SENTENCES_MARK.fullmatch(lines[max(start - 2, 0)]))
        pattern = r"\d[\d,]*(?:\.\d+)?" if is_marked else r"\d+\.\d{2,}(?![\w.])"
        for text in re.findall(rf"(?<![\w.,-]){pattern}", prose):
            figure = text.rstrip(",").replace(",", "")
            decimals = len(figure.partition(".")[2])
            error = 0.51 * 10.0**-decimals if decimals else 0
            numbers = (number for name in (page, *names) for number in _list_numbers(name))
            is_known = any(abs(number - float(figure)) <= error for number in numbers)
            assert is_known or figure in _NOT_MEASURED, f"{page}: {text}: {prose}"
    for quote in quotes:
        assert quote in prose_of_page


@functools.cache
def _list_quotes() -> list[tuple[str, str]]:
    """Returns pages, and texts on them whose figures follow from tables or stored runs."""
    gains = [row[5][:4] for row in readers.TABLES["concurrent_gains"]()[1]]
    verdicts = [row[-1] for row in readers.TABLES["audit_conclusions"]()[1]]
    cases = [row[2] for row in readers.TABLES["conclusions"]()[1]]
    scotch, min_cut, planner = np.array(
        [
            [float(cell.split()[0]) for cell in row[3:6]]
            for row in readers.TABLES["hierarchical"]()[1]
        ]
    ).T
    slower = [(scotch / planner - 1), (min_cut / planner - 1)]
    runs = ("hierarchical", "hierarchical-4", "hierarchical-8")
    minutes = [round(stored.read_json(run)["wall_s"] / 60) for run in runs]
    pretraining = json.loads((pretrained.SHIPPED.parent / "hsdag_makespan.json").read_text())
    excess = [
        run.points[-1].evaluations
        for run in audit.read_stored()
        if run.problem in audit.list_problems() and run.points[-1].evaluations > run.budget > 0
    ]
    exceeding = (
        f"exceed the budget of 1,000 evaluations: `cpsat` ({min(excess):,} to {max(excess):,})"
    )
    quotes = [
        ("README.md", f"Inception-V3 takes {gains[0]} of"),
        ("README.md", f"a two-branch network {gains[1]}"),
        ("docs/METHODS.md", exceeding),
        ("docs/REPRODUCTION.md", exceeding),
        ("docs/REPRODUCTION.md", f"{verdicts.count('holds')} of {len(verdicts)} conclusions hold"),
        (
            "docs/REPRODUCTION.md",
            f"that hold: {verdicts.count('holds')} of {len(verdicts)}; that do not hold: "
            f"{verdicts.count('does not')}; inconclusive: {verdicts.count('inconclusive')}",
        ),
        ("docs/REPRODUCTION.md", f"{cases.count('holds')} of {len(cases)} cases hold"),
        (
            "docs/REPRODUCTION.md",
            f"Cases that hold: {cases.count('holds')} of {len(cases)}. Cases that do not hold: "
            f"{cases.count('does not')}. Inconclusive: {cases.count('inconclusive')}.",
        ),
        ("docs/REPRODUCTION.md", f"Scotch {min(slower[0]):.0%} to {max(slower[0]):.0%}"),
        ("docs/REPRODUCTION.md", f"MinCut is {min(slower[1]):.0%} to {max(slower[1]):.0%}"),
        ("docs/REPRODUCTION.md", f"take {minutes[0]} minutes on two cores"),
        ("docs/REPRODUCTION.md", f"takes {minutes[1]} and {minutes[2]} minutes"),
        ("docs/PRETRAINING.md", f"trained in {pretraining['elapsed_s'] / 60:.0f} minutes"),
    ]
    # Searches that the time limit ended early.
    results = audit.evaluate(audit.list_problems())
    for method in filter(learned.is_learned, results.scores):
        counts = [
            run.points[-1].evaluations
            for problem in results.problems
            for run in results.runs[method, problem]
            if run.budget > 0 and run.points[-1].seconds >= audit.LIMIT_S
        ]
        if counts and np.median(counts) < audit.EVALUATIONS:
            quotes.append(("docs/REPRODUCTION.md", f"`{method}` ({np.median(counts):,.0f})"))
    networks = {graph: network for network, graph in papers.GRAPHS.items()}
    evaluations: dict[tuple[str, str], list[int]] = {}
    for row in stored.read_rows(runs):
        if learned.is_learned(row["method"]):
            evaluations.setdefault((row["method"], row["graph"]), []).append(row["evaluations"])
    for (method, graph), counts in evaluations.items():
        if np.median(counts) < 0.95 * audit.EVALUATIONS:  # the last step may not fit the budget
            text = f"`{method}` on {networks[graph]} ({np.median(counts):,.0f})"
            quotes.append(("docs/REPRODUCTION.md", text))
    return quotes


def _text(page: str) -> str:
    return (pages.ROOT / page).read_text("utf-8")


@functools.cache
def _list_numbers(page: str) -> list[float]:
    cells = (cell for rows in pages.tables(page) for row in rows for cell in row)
    return [float(n) for cell in cells for n in re.findall(r"\d+\.?\d*", cell.replace(",", ""))]
