"""The pages of the documentation, taken apart."""

import functools
import re
import shlex
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")))
INDENTED = "indented"


class Block(NamedTuple):
    """Fenced or indented text."""

    page: str  # from ROOT
    line: int  # of its first line of text, from 1
    language: str  # the first word of the fence; of a block without one 'indented'
    name: str  # the rest: 'output', 'exact', or the file that the text is to be saved as
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@functools.cache
def tokens(page: str) -> list[Token]:
    """What Markdown makes of a page, flat; the words of paragraphs are children of their tokens."""
    return MarkdownIt("commonmark").enable("table").parse((ROOT / page).read_text("utf-8"))


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            language, _, name = (token.info.strip() or INDENTED).partition(" ")
            first = token.map[0] + (2 if token.type == "fence" else 1)
            found.append(Block(page, first, language, name, token.content))
    return found


@functools.cache
def module(page: str, name: str) -> types.ModuleType:
    """The module that a page's block of code is, by the name that it is to be saved as."""
    (block,) = [block for block in blocks(page) if block.name == name]
    made = types.ModuleType(name.removesuffix(".py"))
    exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), made.__dict__)
    return made


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block, continued lines joined."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def code(page: str) -> Iterator[tuple[str, int]]:
    """What stands `between backquotes`, with the line that its paragraph begins at."""
    for token in tokens(page):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content, token.map[0] + 1


def links(page: str) -> Iterator[tuple[str, int]]:
    """Where links and pictures lead, with the line that their paragraph begins at."""
    for token in tokens(page):
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if target:
                yield str(target), token.map[0] + 1


def tables(page: str) -> Iterator[list[list[str]]]:
    """The cells of each table as they are written, the header first, without the line below it."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    for token in tokens(page):
        if token.type == "table_open":
            rows = [cells(line) for line in lines[token.map[0] : token.map[1]]]
            yield [rows[0], *rows[2:]]


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def headings(page: str) -> set[str]:
    """What links can lead to within a page: its headings as GitHub writes them."""
    found = set()
    for before, token in zip(tokens(page), tokens(page)[1:], strict=False):
        if before.type == "heading_open":
            kept = re.sub(r"[^\w\- ]", "", token.content.lower())
            found.add(kept.replace(" ", "-"))
    return found
