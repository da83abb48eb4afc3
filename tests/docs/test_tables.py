"""Tables of the pages are those of the stored runs, and so are the figures of sentences."""

import importlib.util
import itertools
import json
import re

import numpy as np

from experiments.tables import __main__ as command
from experiments.tables import audit, readers, stored
from placement import methods
from placement.methods import pretrained
from tests.docs import pages, test_references

# Tables of numbers that no stored run has, by a cell of their header.
_DATA_SHEETS = ("memory GB/s", "bert_base ms", "laptop_155h_cpu", "laptop_358h_cpu")
_TABLE_MARK = re.compile(r"<!-- documents: (\w+) -->")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# A number and its unit, perhaps that of a list: "10.6, 2.5 and 2.6 ms", "4 to 7%".
_FIGURE = re.compile(
    rf"(?<![\w.,-])({_NUMBER.pattern})"
    r"(?=(?:(?:,| to| and| or|, and) [\d.]+)* ?(%|(?:ms|us|s|minutes|times)\b))"
)
_SOURCE = re.compile(r"\]\(https?:|\[\d+[\d, ]*\]|`(?:python -m |make |tests/)")
# Levels, limits and thresholds.
_DEFINITIONS = {
    ("95", "%"),
    ("20", "s"),
    ("20", "times"),
    *((n, "%") for n in ("2", "5", "10", "25")),
}


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
    """A number with a unit, or with decimals below `<!-- sentences: NAME -->`, has a source.

    It is in the table NAME, or the difference of two that are, in per cent. Without a mark it is in
    any table or printed text of its page; or its paragraph cites a publication, a test or a
    command, or is next to a block of commands. Whole numbers may be in a table by chance, so this
    finds most figures without a source, not all.
    """
    missing = []
    for page in pages.PAGES:
        printed = [block.text for block in pages.blocks(page) if block.language == "text"]
        printed += [cell for table in pages.tables(page) for row in table[1:] for cell in row]
        mark, tokens = "", pages.tokens(page)
        for i, token in enumerate(tokens):
            if token.type == "html_block" and "sentences: " in token.content:
                mark = token.content.split()[2]
            elif token.level == 0 and token.nesting < 0:  # of the marked paragraph or list
                mark = ""
            if token.type != "inline" or tokens[i - 1].type != "paragraph_open":
                continue
            text = "".join(c.content if c.type == "text" else " " for c in token.children)
            figures = [n for n, unit in _FIGURE.findall(text) if (n, unit) not in _DEFINITIONS]
            source = printed
            if mark in readers.TABLES:
                decimals = re.findall(r"\b\d+\.\d+\b", text)
                pairs = itertools.permutations(map(float, decimals), 2)
                header, rows = readers.TABLES[mark]()
                source = [cell for row in (header, *rows) for cell in row]
                source += [f"{100 * abs(a / b - 1):.1f}" for a, b in pairs if b]
                figures += decimals
            elif _SOURCE.search(token.content) or "fence" in [
                t.type for t in tokens[i - 2 : i + 3]
            ]:
                continue
            numbers = [float(n.replace(",", "")) for n in _NUMBER.findall(" ".join(source))]
            for figure in figures:
                error = 0.51 * 10.0 ** -len(figure.partition(".")[2])
                value = float(figure.replace(",", ""))
                if not any(abs(number - value) <= error for number in numbers):
                    missing.append(f"{page}:{token.map[0] + 1}: {figure}")
    assert not missing, "\n".join(missing)


def test_counts_in_sentences_have_sources():
    gains = [row[5][:4] for row in readers.TABLES["concurrent_gains"]()[1]]
    verdicts = [row[-1] for row in readers.TABLES["audit_conclusions"]()[1]]
    planner_rows = readers.TABLES["hierarchical"]()[1]
    scotch, min_cut, planner = np.array(
        [[float(cell.split()[0]) for cell in row[3:6]] for row in planner_rows]
    ).T
    slower = [scotch / planner - 1, min_cut / planner - 1]
    texts = {
        "README.md": [
            f"placements take {min(gains)} to {max(gains)} of the time of one core",
            f"[{verdicts.count('holds')} of {len(verdicts)} holds here]",
        ],
        "docs/REPRODUCTION.md": [
            f"{verdicts.count('holds')} of {len(verdicts)} conclusions hold",
            f"that hold: {verdicts.count('holds')} of {len(verdicts)}; that do not hold: "
            f"{verdicts.count('does not')}; undecided: {verdicts.count('undecided')}.",
            f"Scotch {min(slower[0]):.0%} to {max(slower[0]):.0%}",
            f"MinCut is {min(slower[1]):.0%} to {max(slower[1]):.0%}",
        ],
    }
    late: dict[str, list[int]] = {}  # searches that 30 s ended before the budget
    for result in audit.read_stored():
        is_late = result.evaluations < 984  # a run whose updates have 16 may end at 985
        if is_late and result.limit == audit.CONCLUSION_LIMIT and methods.is_learned(result.method):
            late.setdefault(result.method, []).append(result.evaluations)
    texts["docs/REPRODUCTION.md"] += [f"`{m}` ({np.median(n):,.0f}" for m, n in late.items()]
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
    families = {*audit.list_problems().values()}
    for path in pretrained.SHIPPED.parent.glob("*.json"):
        assert not families & set(json.loads(path.read_text())["families"].split(","))
