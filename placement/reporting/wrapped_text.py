"""Text in tables: a terminal wraps it between words, a file gets every line unwrapped.

A line may break at white space, and after a sign in a name such as 'hsdag:num_samples=16'.
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


class WrappedText:
    """A cell of a table whose text wraps between words."""

    def __init__(
        self,
        text: str,
        *,
        widest: int | None = None,
        terminal_text: str | None = None,
        style: str = "",
    ):
        """Makes a cell; the text has no markup.

        Args:
          text: one line.
          widest: the largest width on a terminal, in columns; None: unlimited.
          terminal_text: the text for a terminal, with line breaks; None: `text`.
          style: a style of Rich.
        """
        self._text, self._style = text, style
        self._widest = widest
        self._on_terminal = text if terminal_text is None else terminal_text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        if not console.is_terminal:
            return Measurement(cell_len(self._text), cell_len(self._text))
        lines = self._on_terminal.split("\n")
        longest_word = max(cell_len(piece.rstrip()) for line in lines for piece in _pieces(line))
        longest_line = max(map(cell_len, lines))
        width = (
            longest_line
            if self._widest is None
            else max(longest_word, min(longest_line, self._widest))
        )
        return Measurement(longest_word, width).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._text
        if console.is_terminal:
            lines = self._on_terminal.split("\n")
            text = "\n".join(part for line in lines for part in wrap(line, options.max_width))
        yield Text(text, style=self._style, no_wrap=True, overflow="ignore")


def wrap(line: str, width: int) -> list[str]:
    """Wraps a line to a width in columns; breaks within a word only if the word is wider."""
    folded, current = [], ""
    for piece in _pieces(line):
        if current and cell_len((current + piece).rstrip()) > width:
            folded.append(current.rstrip())
            current = ""
        current += piece
        if cell_len(current.rstrip()) > width:
            *full_lines, current = chop_cells(current.rstrip(), width)
            folded += full_lines
    return [*folded, current.rstrip()]


class _LastingConsole(Console):
    """A console whose program keeps running when its reader, such as `head`, has ended."""

    def on_broken_pipe(self) -> None:
        """Discards all further output; Rich would exit."""
        self.quiet = True
        discarded = os.open(os.devnull, os.O_WRONLY)
        os.dup2(discarded, sys.stdout.fileno())
        os.close(discarded)


def standard_console() -> Console:
    """Returns the console of standard output; only a terminal limits the length of lines."""
    standard = _LastingConsole()
    return standard if standard.is_terminal else _LastingConsole(width=_UNLIMITED)


def print_table(table: Table, output: Console) -> None:
    """Prints a table; only a terminal wraps its title and caption."""
    if output.is_terminal:
        output.print(table)
        return
    wide = Console(file=output.file, width=_UNLIMITED)
    title, caption, table.title, table.caption = table.title, table.caption, None, None
    if title:
        wide.print(title)
    wide.print(table)
    if caption:
        wide.print(caption)


def _pieces(line: str) -> list[str]:
    return _BREAK.split(line)
