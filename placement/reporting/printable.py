"""Names as people see them. A name is data, and may hold anything that a string can.

Files that programs read (placement.json, details.json) have names as they are. On terminals, pages
and figures a character that is none to print, such as a line break, the beginning of a terminal's
command, a change of direction or half a surrogate pair, is written as in Python: 'a\\x1b'.
"""

import re
from typing import Any


def text(given: str) -> str:
    """Returns one line that holds only what can be printed."""
    if given.isprintable():
        return given
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in given)


def lines(given: str) -> str:
    """Returns the same of every line."""
    return "\n".join(map(text, given.split("\n")))


def markdown(given: str) -> str:
    """Returns a name in Markdown, of which no character means anything."""
    return re.sub(r"([\\`*<\[|])", r"\\\1", text(given))


def data(given: Any) -> Any:
    """Returns what JSON can hold, with every text in it as `lines` writes it."""
    if isinstance(given, str):
        return lines(given)
    if isinstance(given, dict):
        return {key: data(value) for key, value in given.items()}
    return list(map(data, given)) if isinstance(given, list | tuple) else given
