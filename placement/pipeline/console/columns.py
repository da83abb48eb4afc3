"""Two columns of text for a terminal: names, and what each one is."""

import shutil
import textwrap
from collections.abc import Mapping

_MAX_WIDTH = 100  # columns of the terminal


def two_columns(texts: Mapping[str, str], *, width: int | None = None) -> str:
    """Returns one indented entry per name, its text wrapped beside it.

    Args:
      texts: by name.
      width: where lines are wrapped, by default at the terminal's width; 0 wraps none.
    """
    if width is None:
        width = min(_MAX_WIDTH, shutil.get_terminal_size().columns)
    column = max(map(len, texts)) + 4
    lines = []
    for name, text in texts.items():
        wrapped = textwrap.wrap(text, max(20, width - column)) if width else [text]
        lines.append(f"  {name}".ljust(column) + (f"\n{' ' * column}").join(wrapped or [""]))
    return "\n".join(lines)
