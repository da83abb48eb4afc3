"""Text in tables: a terminal folds it between words, a file gets every line whole.

A word ends at white space, and within a name such as 'hsdag:num_samples=16' after a sign.
"""

import os
import re
import sys

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNLIMITED = 100_000  # columns
_BREAK = re.compile(r"(?<=\s)(?=\S)|(?<=[^\W_][,:/+=_-])(?=[^\W\d_])")


class Words:
    """A cell of a table."""

    def __init__(
        self,
        text: str,
        *,
        widest: int | None = None,
        on_terminal: str | None = None,
        style: str = "",
    ):
        """A text without markup.

        Args:
          text: one line.
          widest: columns that are enough for it on a terminal.
          on_terminal: what stands there instead, with line breaks.
          style: of Rich.
        """
        self._text, self._style = text, style
        self._widest = widest
        self._on_terminal = text if on_terminal is None else on_terminal

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        if not console.is_terminal:
            return Measurement(cell_len(self._text), cell_len(self._text))
        lines = self._on_terminal.split("\n")
        word = max(cell_len(piece.rstrip()) for line in lines for piece in _pieces(line))
        whole = max(map(cell_len, lines))
        wanted = whole if self._widest is None else max(word, min(whole, self._widest))
        return Measurement(word, wanted).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._text
        if console.is_terminal:
            lines = self._on_terminal.split("\n")
            text = "\n".join(part for line in lines for part in fold(line, options.max_width))
        yield Text(text, style=self._style, no_wrap=True, overflow="ignore")


def fold(line: str, width: int) -> list[str]:
    """Folds a line to at most so many columns, in a word only if that is wider."""
    folded, current = [], ""
    for piece in _pieces(line):
        if current and cell_len((current + piece).rstrip()) > width:
            folded.append(current.rstrip())
            current = ""
        current += piece
        if cell_len(current.rstrip()) > width:
            *whole, current = chop_cells(current.rstrip(), width)
            folded += whole
    return [*folded, current.rstrip()]


class _LastingConsole(Console):
    """A console that outlives its reader, such as `head`: the program goes on."""

    def on_broken_pipe(self) -> None:
        """Discards all further output, where Rich would exit."""
        self.quiet = True
        discarded = os.open(os.devnull, os.O_WRONLY)
        os.dup2(discarded, sys.stdout.fileno())
        os.close(discarded)


def console() -> Console:
    """Makes where to print: a terminal, or something that takes lines of any length."""
    made = _LastingConsole()
    return made if made.is_terminal else _LastingConsole(width=_UNLIMITED)


def show(table: Table, on: Console) -> None:
    """Prints a table; of one that is not for a terminal what stands above and below it is whole."""
    if on.is_terminal:
        on.print(table)
        return
    wide = Console(file=on.file, width=_UNLIMITED)
    title, caption, table.title, table.caption = table.title, table.caption, None, None
    if title:
        wide.print(title)
    wide.print(table)
    if caption:
        wide.print(caption)


def _pieces(line: str) -> list[str]:
    return _BREAK.split(line)
