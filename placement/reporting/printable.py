"""Names as people see them. A name is data, and may hold anything that a string can.

Files that programs read (placement.json, details.json) have names as they are. On terminals, pages
and figures a character that is none to print, such as a line break, the beginning of a terminal's
command, a change of direction or half a surrogate pair, is written as in Python: 'a\\x1b'.
"""

import re
from typing import Any

# An escape, emphasis or HTML, a link's destination, and what begins a heading or a quotation.
_MARKUP = re.compile(r"\\(?=[!-/:-@\[-`{-~])|[*<]|\](?=[(\[])|^[#>]")


def text(given: str) -> str:
    """Returns one line that holds only what can be printed."""
    if given.isprintable():
        return given
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in given)


def lines(given: str) -> str:
    """Returns the same of every line."""
    return "\n".join(map(text, given.split("\n")))


def data(given: Any) -> Any:
    """Returns what JSON can hold, with every text in it as `lines` writes it."""
    if isinstance(given, str):
        return lines(given)
    if isinstance(given, dict):
        return {key: data(value) for key, value in given.items()}
    return list(map(data, given)) if isinstance(given, list | tuple) else given


def markdown(given: Any) -> Any:
    """Returns data of which no text means anything in Markdown, within backquotes or without.

    A text becomes one line without backquotes. Tables escape what separates their cells.
    """
    if isinstance(given, str):
        line = " ".join(map(text, given.split("\n"))).replace("`", "'")
        return _MARKUP.sub(r"\\\g<0>", line)
    if isinstance(given, dict):
        return {key: markdown(value) for key, value in given.items()}
    return list(map(markdown, given)) if isinstance(given, list | tuple) else given
