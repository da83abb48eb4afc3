"""One table, for a terminal and in Markdown; the page of a run renders the Markdown as HTML.

A grid has columns and rows of texts. `bold` marks a whole text; everything else in a text is shown
literally by a terminal.
"""

import dataclasses
import itertools
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from placement.reporting import printable

_WIDEST_HEADER, _WIDEST_TEXT = 20, 35  # columns of a terminal
FILLED, EMPTY = "█░"  # characters of a bar
_ASCII = str.maketrans({FILLED: "#", EMPTY: "."})


def bold(text: str) -> str:
    """Returns the text in bold."""
    return f"**{text}**"


@dataclasses.dataclass
class Grid:
    """A table; a console prints it."""

    header: Sequence[str]  # line breaks, also within a word after '-', make narrow columns
    numeric: Sequence[bool] = ()  # of each column; by default of all but the first
    title: str = ""
    notes: Sequence[str] = ()  # lines below the table in a terminal
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.numeric = self.numeric or [False, *[True] * (len(self.header) - 1)]

    def add_row(self, *cells: str) -> None:
        """Adds a row."""
        self.rows.append(cells)

    def markdown(self) -> str:
        """Returns the table in Markdown, without title, notes and final newline."""
        header = [title.replace("-\n", "").replace("\n", " ") for title in self.header]
        rule = ["---:" if right else "---" for right in self.numeric]
        lines = [header, rule, *self.rows]
        return "\n".join(
            "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"
            for cells in lines
        )

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yields title, table and notes; in a file the table is as in a terminal of 100 columns."""
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for title, numeric in zip(self.header, self.numeric, strict=True):
            lines = [textwrap.wrap(line, _WIDEST_HEADER) for line in title.split("\n")]
            table.add_column(
                Text("\n".join(itertools.chain.from_iterable(lines))),
                justify="right" if numeric else "left",
                no_wrap=numeric,
                overflow="fold",
                max_width=None if numeric else _WIDEST_TEXT,
            )
        for row in self.rows:
            texts = [cell.translate(_ASCII) for cell in row] if options.ascii_only else row
            is_bold = [len(cell) > 4 and cell[:2] == cell[-2:] == "**" for cell in row]
            cells = zip(texts, is_bold, strict=True)
            table.add_row(*(Text(c[2:-2], style="bold") if b else Text(c) for c, b in cells))
        if self.title:
            yield Text(printable.text(self.title), style="italic")
        yield table
        yield from map(Text, self.notes)


def new_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Grid:
    """Makes an empty table: columns of texts, then right-aligned ones of numbers."""
    numeric = [False] * len(texts) + [True] * len(numbers)
    return Grid([*texts, *numbers], numeric, title=title)


def listed(names: Sequence[str]) -> str:
    """Lists names as code, with the number of those beyond ten."""
    omitted = [f"{len(names) - 10} more"] if len(names) > 10 else []
    return ", ".join([*(f"`{name}`" for name in names[:10]), *omitted])


def standard_console() -> Console:
    """Returns the console of standard output; only a terminal limits the length of lines.

    If its reader, such as `head`, ends early, the program keeps running; Rich would exit.
    """

    class LastingConsole(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            discarded = os.open(os.devnull, os.O_WRONLY)
            os.dup2(discarded, sys.stdout.fileno())
            os.close(discarded)

    standard = LastingConsole()
    return standard if standard.is_terminal else LastingConsole(width=100_000)
