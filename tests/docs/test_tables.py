"""Tables of the pages are those of the stored runs, and so are the figures of sentences."""

import importlib.util
import json
import re

import numpy as np

from experiments.tables import __main__ as command
from experiments.tables import audit, readers, stored
from placement import methods, suite
from placement.methods import pretrained
from tests.docs import pages, test_references

# Tables of numbers that no stored run has, by a cell of their header.
_DATA_SHEETS = ("memory GB/s", "bert_base ms", "laptop_155h_cpu", "laptop_358h_cpu")
_TABLE_MARK = re.compile(r"<!-- documents: (\w+) -->")


def read_text(page):
    return (pages.ROOT / page).read_text("utf-8")


def test_tables_match_stored_runs(monkeypatch):
    names, read = set(), stored.read
    monkeypatch.setattr(stored, "read", lambda run, file: names.add(run) or read(run, file))
    assert command.find_stale(write=False) == []
    assert names == set(stored.COMMANDS)
    marks = [m for page in pages.PAGES for m in _TABLE_MARK.findall(read_text(page)) if m != "NAME"]
    assert {*marks} == {*readers.TABLES}


def test_measured_tables_are_generated():
    for page in pages.PAGES:
        lines = read_text(page).splitlines()
        generated = [
            pages.cells(next(text for text in lines[number:] if text.startswith("|")))
            for number, line in enumerate(lines)
            if _TABLE_MARK.fullmatch(line)
        ]
        for header, *rows in pages.tables(page):
            has_numbers = any(re.match(r"\**\d[\d,]*\.\d", c) for row in rows for c in row[1:])
            is_known = header in generated or {*header} & {*_DATA_SHEETS}
            assert is_known or not has_numbers, f"{page}: {header}"


def test_figures_in_sentences_have_sources():
    """A figure with decimals below `<!-- sentences: NAME -->` is in the table of this name."""
    checked = 0
    for page in pages.PAGES:
        found = re.findall(r"<!-- sentences: (\w+) -->\n\n(.*?)\n\n", read_text(page), re.DOTALL)
        for name, sentences in found:
            if name == "NAME":
                continue
            cells = [cell for row in readers.TABLES[name]()[1] for cell in row]
            numbers = [float(n) for cell in cells for n in re.findall(r"\d+\.?\d*", cell)]
            for figure in re.findall(r"\b\d+\.\d+\b", re.sub(r"`[^`]*`", "", sentences)):
                error = 0.51 * 10.0 ** -len(figure.partition(".")[2])
                is_known = any(abs(number - float(figure)) <= error for number in numbers)
                assert is_known, f"{page}: {figure} is not in the table {name}"
                checked += 1
    assert checked > 30


def test_counts_in_sentences_have_sources():
    gains = [row[5][:4] for row in readers.TABLES["concurrent_gains"]()[1]]
    verdicts = [row[-1] for row in readers.TABLES["audit_conclusions"]()[1]]
    planner_rows = readers.TABLES["hierarchical"]()[1]
    scotch, min_cut, planner = np.array(
        [[float(cell.split()[0]) for cell in row[3:6]] for row in planner_rows]
    ).T
    slower = [scotch / planner - 1, min_cut / planner - 1]
    results = audit.evaluate(audit.list_problems())
    budgeted = {
        method: [
            run.points[-1]
            for problem in results.problems
            for run in results.runs[method, problem]
            if run.budget > 0
        ]
        for method in results.scores
    }
    excess = [p.evaluations for p in budgeted["cpsat"] if p.evaluations > audit.EVALUATIONS]
    texts = {
        "README.md": [
            f"Inception-V3 takes {gains[0]} of",
            f"a two-branch network {gains[1]}",
            f"Of {len(verdicts)} conclusions of the papers [{verdicts.count('holds')} hold here]",
        ],
        "docs/METHODS.md": [
            f"the budget of 1,000 evaluations: `cpsat` ({min(excess):,} to {max(excess):,})",
        ],
        "docs/REPRODUCTION.md": [
            f"{verdicts.count('holds')} of {len(verdicts)} conclusions hold",
            f"that hold: {verdicts.count('holds')} of {len(verdicts)}; that do not hold: "
            f"{verdicts.count('does not')}; undecided: {verdicts.count('undecided')}; "
            f"with fewer than six problems: {verdicts.count('too few problems')}",
            f"Scotch {min(slower[0]):.0%} to {max(slower[0]):.0%}",
            f"MinCut is {min(slower[1]):.0%} to {max(slower[1]):.0%}",
        ],
    }
    for method in filter(methods.is_learned, budgeted):  # of searches that the time limit ended
        late = [p.evaluations for p in budgeted[method] if p.seconds >= audit.LIMIT_S]
        if late and np.median(late) < audit.EVALUATIONS:
            texts["docs/REPRODUCTION.md"].append(f"`{method}` ({np.median(late):,.0f})")
    for page, expected in texts.items():
        prose = " ".join(read_text(page).split())
        for text in expected:
            assert text in prose, f"{page}: {text}"


def test_commands_have_valid_flags():
    for text in stored.COMMANDS.values():
        if text.startswith("--"):
            assert not list(test_references.missing_flags(text)), text
        else:
            assert importlib.util.find_spec(text.split()[0]), text


def test_no_audited_family_was_pretrained():
    problems = audit.list_problems(split="")
    families = {
        entry.family
        for entry in suite.list_entries(version=audit.VERSION)
        if entry.name in problems
    }
    for path in pretrained.SHIPPED.parent.glob("*.json"):
        assert not families & set(json.loads(path.read_text())["families"].split(","))
