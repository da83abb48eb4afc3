"""The documentation runs: every block of code, and every command at least as far as its settings.

The commands of `RUN` run as written but with less to do; of all others the flags and the methods
are checked. Blocks of one page run in order in one directory; pages that measure share theirs. A
block of `text exact` is what the block before it prints, and one of `text output` the same but for
its numbers, with '...' for any lines; other blocks of text are not run.
"""

import importlib
from pathlib import Path

import pytest

from placement import arguments
from placement.pipeline import method_runs
from tests.docs import pages
from tests.docs.reader import Reader

# The work directories of the commands that run, with flags that are appended to these commands, so
# that all of them together take seconds.
_SMALLER = ("--config.budget=64", "--config.time_limit_s=1", "--config.measure_s=0.2")
_TINY = "synthetic:family=layered,ops=12,seed=1"
RUN = {
    "runs/mine": _SMALLER,
    "runs/watched": _SMALLER,
    "runs/compare": (*_SMALLER, f"--config.graphs={_TINY}", "--config.seeds=1"),
}

# Smaller images, a smaller graph and shorter measurements in the code of the pages.
SMALLER_CODE = {
    **{"64, 64": "16, 16", "8,3,64,64": "8,3,16,16"},
    **{"layered,ops=40,": "layered,ops=12,", "num_samples=16": "num_samples=4"},
    **{"time_limit_s=5.0, measure_s=2.0": "time_limit_s=1.0, measure_s=0.2"},
}

# These follow one another: the tutorial makes the model and the run that the others go on with.
MEASURING = ("docs/TUTORIAL.md", "README.md", "docs/DEPLOY.md", "docs/EXPERIMENTS.md")


def _reader(directory: Path) -> Reader:
    return Reader(directory, RUN, SMALLER_CODE)


@pytest.mark.alone
def test_measuring_pages_run(tmp_path):
    reader = _reader(tmp_path)
    for page in MEASURING:
        reader.follow(page)
    made = {path.name + "/" * path.is_dir() for path in tmp_path.rglob("runs/**/*")}
    named = _first_column("docs/EXPERIMENTS.md", "file") | _first_column("docs/DEPLOY.md", "file")
    assert named <= made
    printed = (tmp_path / "runs/mine/report.md").read_text().splitlines()
    # On a fast processor the latencies are in microseconds.
    headers = [[cell.replace(" us", " ms") for cell in pages.cells(line)] for line in printed]
    (shown,) = [rows[0] for rows in pages.tables("README.md") if "predicted ms" in rows[0]]
    assert shown in headers


@pytest.mark.parametrize("page", [page for page in pages.PAGES if page not in MEASURING])
def test_other_pages_run(page, tmp_path):
    _reader(tmp_path).follow(page)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\npython -m experiments.main --task=plaice\n```", "plaice"),
        ("```sh\nrm -r runs\n```", "is not a command"),
        ("```python\n1 / 0\n```", "page.md:2"),
        ("```python\nprint('a 1')\n```\n\n```text output\nb 1\n```", "not what is printed"),
    ],
)
def test_wrong_blocks_are_noticed(text, said, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(f"{text}\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    reader = Reader(tmp_path, RUN, {})
    pages.tokens.cache_clear()
    with pytest.raises(AssertionError, match=said):
        reader.follow("page.md")


def test_tables_here_are_used():
    blocks = [block for page in pages.PAGES for block in pages.blocks(page)]
    shell = [block for block in blocks if block.language in ("sh", pages.INDENTED)]
    words = {word for block in shell for words in pages.commands(block) for word in words}
    assert {f"--workdir={workdir}" for workdir in RUN} <= words
    assert set(MEASURING) <= set(pages.PAGES)


_PLANNED = ["reproduce_hierarchical", "reproduce_hsdag"]


@pytest.mark.parametrize("workdir", [*_PLANNED, "ablation"])
def test_tables_have_all_methods(workdir):
    page = "docs/REPRODUCTION.md"
    written = [words for block in pages.blocks(page) for words in pages.commands(block)]
    (flags,) = [words for words in written if f"--workdir=runs/{workdir}" in words]
    given = dict(flag.split("=", 1) for flag in flags if "=" in flag)
    config = importlib.import_module(f"configs.{Path(given['--config']).stem}")
    chosen = arguments.split_list(given.get("--config.methods", config.get_config().methods))
    for method in chosen:
        method_runs.check(method, given.get("--config.objective", config.get_config().objective))
    if workdir in _PLANNED:
        listed = ["graph", "best single device", *chosen]
        headers = [rows[0] for rows in pages.tables(page)]
        assert any(header[: len(listed)] == listed and "reduction" in header for header in headers)
    else:
        listed = {f"`{method}`" for method in (*chosen, "best single device")}
        assert listed in [{row[0] for row in rows[1:]} for rows in pages.tables(page)]


def _first_column(page: str, header: str) -> set[str]:
    """What stands `between backquotes` in the first column of a page's tables with this header."""
    found = [rows[1:] for rows in pages.tables(page) if rows[0][0] == header]
    return {name.strip("` ") for rows in found for row in rows for name in row[0].split(",")}
