"""What the documentation names is there: links, files, modules, flags, keys, methods."""

import functools
import pkgutil
import re
from collections.abc import Iterator

import pytest
from ml_collections import ConfigDict

from configs import common
from experiments.benchmarks import __main__
from placement import cli, simulators, zoo
from placement.costs import roofline
from placement.pipeline import loading, method_runs, tasks
from tests.docs import pages

KEYS = set(common.base())
# Flags of absl and of the entry point; `--config.KEY` are checked by their key.
FLAGS = {"--config", "--workdir", "--task", "--help", "--helpfull", "--verbosity"}
_EXTENSIONS = "py|md|json|jsonl|xml|bin|blob|csv|html|png|svg|cff|toml"
_FILE = re.compile(rf"[\w.*/-]*\w\.({_EXTENSIONS})|[\w.-]+(/[\w.*-]+)*/")
_DOTTED = re.compile(r"(?:placement|experiments|configs)(?:\.\w+)+")
_SEARCHED = ("placement", "experiments", "configs", "tests", "third_party")

every_page = pytest.mark.parametrize("page", pages.PAGES)


@functools.cache
def _sources() -> str:
    """All code of the project, but for what tests the pages."""
    found = [p for top in _SEARCHED for p in (pages.ROOT / top).rglob("*.py")]
    return "\n".join(p.read_text("utf-8") for p in found if p.parent.name != "docs")


@functools.cache
def _names() -> set[str]:
    """Of all files of the project."""
    return {p.name for top in _SEARCHED for p in (pages.ROOT / top).rglob("*.*")}


def _missing_link(page: str, target: str) -> bool:
    """Whether a link within the project leads nowhere; others are not followed."""
    if re.match(r"https?://", target):
        return False
    path, _, anchor = target.partition("#")
    file = (pages.ROOT / page).parent / path if path else pages.ROOT / page
    if not file.exists():
        return True
    return bool(anchor) and anchor not in pages.headings(str(file.relative_to(pages.ROOT)))


def _missing_file(page: str, name: str) -> bool:
    """Whether a file is none of the project's, of a run directory's or of the examples'."""
    if name.startswith(("runs/", "http")) or name in ("model.onnx", "workload.json"):
        return False
    name = name.replace("NAME", "*")  # to be filled in
    here = (pages.ROOT, (pages.ROOT / page).parent)
    if "/" in name.rstrip("/"):
        return not any(list(top.glob(name.rstrip("/"))) for top in here)
    written = name.rstrip("/")
    return not (
        any((top / name).exists() for top in here)
        or written in _names()
        or any(block.name == written for block in pages.blocks(page))
        or re.search(rf"[\"/]{re.escape(written)}\"", _sources())
    )


def _missing_flags(text: str) -> Iterator[str]:
    for flag, value in re.findall(r"(--[\w.]+)(?:=(\S+))?", text):
        key = flag.removeprefix("--config.")
        if key != flag:
            if key not in KEYS | {"KEY"}:
                yield flag
        elif flag not in FLAGS:
            yield flag
        if flag == "--task" and value and value not in tasks.TASKS:
            yield f"{flag}={value}"
        files = (pages.ROOT / value, pages.ROOT / "configs" / f"{value}.py")
        if flag == "--config" and value and not any(file.is_file() for file in files):
            yield f"{flag}={value}"


def _missing_names(text: str) -> Iterator[str]:
    """Dotted names that cannot be imported, constants that no code has."""
    for name in _DOTTED.findall(text):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            yield name
    if re.fullmatch(r"[A-Z][A-Z_]{3,}", text) and not re.search(rf"\b{text}\b", _sources()):
        yield text


def _wrong(page: str) -> Iterator[tuple[str, int]]:
    """What a page names and is not there, with its line."""
    for target, line in pages.links(page):
        if _missing_link(page, target):
            yield target, line
    for text, line in pages.code(page):
        if _FILE.fullmatch(text):
            missing = [text] if _missing_file(page, text) else []
        else:
            missing = [*_missing_flags(text), *_missing_names(text)]
        yield from ((name, line) for name in missing)


@every_page
def test_named_things_exist(page):
    wrong = {f"{page}:{line}: {name}" for name, line in _wrong(page)}
    assert not wrong


def test_inline_commands_exist():
    """`make` targets, benchmarks and test folders that are named in passing."""
    targets = re.findall(r"^(\w+):", (pages.ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [text for page in pages.PAGES for text, _ in pages.code(page)]
    for text in named:
        for command in text.split("&&"):
            words = [word for word in command.split() if "=" not in word]
            if words[:1] == ["make"]:
                assert set(words[1:]) <= set(targets), text
            if words[1:3] == ["-m", "experiments.benchmarks"]:
                assert words[3] in __main__.BENCHMARKS, text
            if words[1:3] == ["-m", "pytest"]:
                assert (pages.ROOT / words[3]).is_dir(), text
    assert sum(text.startswith("make") for text in named) > 2


def test_tables_are_complete():
    readme, experiments, methods = "README.md", "docs/EXPERIMENTS.md", "docs/METHODS.md"
    assert _listed(methods, "method", "what") == set(method_runs.names())
    assert _listed(methods, "objective") == set(simulators.OBJECTIVES)
    assert _listed(experiments, "task") == set(tasks.TASKS)
    commands = {row[0].strip("`").split()[1] for row in _rows(readme, "command")}
    assert commands == set(cli.main.commands)
    assert _listed(experiments, "key") == KEYS
    assert _listed("docs/DEVICES.md", "kind") == set(roofline.SPECS)
    config: ConfigDict = common.base()
    summaries = {
        row[0].strip("`"): set(re.findall(r"\w+", row[1])) for row in _rows(experiments, "key")
    }
    assert summaries["backend"] >= set(loading.BACKENDS)
    assert summaries["graph"] >= set(zoo.names())
    assert config.graph in zoo.names()


def _rows(page: str, *header: str) -> list[list[str]]:
    """The rows of all tables of a page whose first columns are called so."""
    found = [
        rows
        for rows in pages.tables(page)
        if tuple(cell.strip("`-") for cell in rows[0][: len(header)]) == header
    ]
    return [row for rows in found for row in rows[1:]]


def _listed(page: str, *header: str) -> set[str]:
    """The words `between backquotes`, or alone, in the first column of such tables."""
    firsts = [row[0].split(" (")[0] for row in _rows(page, *header)]
    return {word.strip("` ") for first in firsts for word in first.split(",")}
