"""Two-column text for a terminal."""

import shutil
import textwrap
from collections.abc import Mapping


def format_two_columns(texts: Mapping[str, str], *, width: int | None = None) -> str:
    """Formats names with their texts, which wrap within the second column.

    A line has `width` columns; None: those of the terminal, at most 100; 0: lines do not wrap.
    """
    if width is None:
        width = min(100, shutil.get_terminal_size().columns)
    column = max(map(len, texts)) + 4
    lines = []
    for name, text in texts.items():
        wrapped = textwrap.wrap(text, max(20, width - column)) if width else [text]
        lines.append(f"  {name}".ljust(column) + (f"\n{' ' * column}").join(wrapped or [""]))
    return "\n".join(lines)
