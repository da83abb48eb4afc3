"""What the documentation names is there: links, files, modules, flags, keys, methods."""

import functools
import os
import pkgutil
import re
from collections.abc import Iterator

from ml_collections import ConfigDict

import placement
from configs import common
from placement import cli, simulators, zoo
from placement import methods as registry
from placement.costs import roofline
from placement.pipeline import loading, tasks
from tests.docs import pages

KEYS = set(common.base())
# Flags of absl and of the entry point; `--config.KEY` are checked by their key.
FLAGS = {"--config", "--workdir", "--task", "--help", "--helpfull", "--verbosity"}
_PARAMETERS = [p for command in cli.main.commands.values() for p in command.params]
_OPTIONS = {option for parameter in _PARAMETERS for option in parameter.opts}  # of `placement`
_EXTENSIONS = "py|md|json|jsonl|xml|bin|blob|csv|html|png|svg|cff|toml"
_FILE = re.compile(rf"[\w.*/-]*\w\.({_EXTENSIONS})|[\w.-]+(/[\w.*-]+)*/")
_DOTTED = re.compile(r"(?:placement|experiments|configs)(?:\.\w+)+")
_SEARCHED = ("placement", "experiments", "configs", "tests", "third_party")


@functools.cache
def _sources() -> str:
    """All code of the project, but for what tests the pages."""
    found = [p for top in _SEARCHED for p in (pages.ROOT / top).rglob("*.py")]
    return "\n".join(p.read_text("utf-8") for p in found if p.parent.name != "docs")


@functools.cache
def _names() -> set[str]:
    """Of all files of the project."""
    return {p.name for top in _SEARCHED for p in (pages.ROOT / top).rglob("*.*")}


def missing_flags(text: str) -> Iterator[str]:
    """Yields the flags and keys of a command that do not exist."""
    for flag, value in re.findall(r"(--[\w.-]+)(?:=(\S+))?", text):
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


def find_wrong(page: str) -> Iterator[str]:
    """Yields links, files, flags, names and constants on a page that do not exist."""
    here = (pages.ROOT, (pages.ROOT / page).parent)
    for target, line in pages.links(page):
        if re.match(r"https?://", target):
            continue  # only links within the project are followed
        path, _, anchor = target.partition("#")
        file = (here[1] / path) if path else pages.ROOT / page
        relative = os.path.relpath(file, pages.ROOT)
        if not file.exists() or (anchor and anchor not in pages.headings(relative)):
            yield f"{page}:{line}: {target}"
    for text, line in pages.code(page):
        missing = [flag for flag in missing_flags(text) if flag not in _OPTIONS]
        if _FILE.fullmatch(text):
            name = text.replace("NAME", "*")  # to be filled in
            written = name.rstrip("/")
            if name.startswith(("runs/", "http")) or name in ("model.onnx", "workload.json"):
                is_known = True
            elif "/" in written:
                is_known = any(list(top.glob(written)) for top in here)
            else:  # of the project, of an example on the page, or of a run directory
                is_known = (
                    any((top / name).exists() for top in here)
                    or written in _names()
                    or any(block.name == written for block in pages.blocks(page))
                    or re.search(rf"[\"/]{re.escape(written)}\"", _sources()) is not None
                )
            missing = [] if is_known else [text]
        else:
            for name in _DOTTED.findall(text):
                try:
                    pkgutil.resolve_name(name)
                except (ImportError, AttributeError):
                    missing.append(name)
            if re.fullmatch(r"[A-Z][A-Z_]{3,}", text) and not re.search(rf"\b{text}\b", _sources()):
                missing.append(text)
        yield from (f"{page}:{line}: {name}" for name in missing)


def test_named_things_exist():
    assert [wrong for page in pages.PAGES for wrong in find_wrong(page)] == []


def test_every_page_is_listed():
    section = (pages.ROOT / "README.md").read_text("utf-8").partition("## Documentation")[2]
    listed = set(re.findall(r"\]\((.*?\.md)\)", section))
    assert listed == {"CHANGELOG.md", *pages.PAGES} - {"README.md"}


def test_version_is_the_same_everywhere():
    for page, line in (("CITATION.cff", "version: {}"), ("CHANGELOG.md", "## [{}] - ")):
        text = (pages.ROOT / page).read_text("utf-8")
        assert "\n" + line.format(placement.__version__) in text, page


def test_tables_are_complete():
    readme, reference, methods = "README.md", "docs/COMMANDS.md", "docs/METHODS.md"
    assert _listed(methods, "method", "what") == set(registry.METHODS)
    assert _listed(methods, "objective") == set(simulators.OBJECTIVES)
    assert _listed(reference, "task") == set(tasks.TASKS)
    listed = _rows(readme, "command") + _rows(reference, "command")
    commands = {row[0].strip("`").split()[1] for row in listed}
    assert commands == set(cli.main.commands)
    assert _listed(reference, "key") == KEYS
    assert _listed("docs/DEVICES.md", "kind") == set(roofline.SPECS)
    config: ConfigDict = common.base()
    summaries = {
        row[0].strip("`"): set(re.findall(r"\w+", row[1])) for row in _rows(reference, "key")
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
