"""Printable forms of names. A name is data and may contain any character.

Files that programs read (placement.json, details.json) keep names unchanged. Terminals, pages and
figures show a character that cannot be printed, such as a line break, the start of a terminal
command, a change of text direction or half a surrogate pair, as Python writes it: 'a\\x1b'.
"""

import re
from collections.abc import Callable
from typing import Any

# An escape, emphasis or HTML, a link's destination, the start of a heading or a quotation.
_MARKUP = re.compile(r"\\(?=[!-/:-@\[-`{-~])|[*<]|\](?=[(\[])|^[#>]")


def text(value: str) -> str:
    """Returns one line of printable characters."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def lines(value: str) -> str:
    """Returns `text` of every line."""
    return "\n".join(map(text, value.split("\n")))


def data(value: Any, shown: Callable[[str], str] = lines) -> Any:
    """Returns JSON data with `shown` applied to every text in it, keys included."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(key): data(item, shown) for key, item in value.items()}
    return [data(item, shown) for item in value] if isinstance(value, list | tuple) else value


def markdown(value: Any) -> Any:
    """Returns JSON data whose texts contain no Markdown syntax, inside backquotes or outside.

    A text becomes one line without backquotes. Tables escape their cell separators themselves.
    """

    def literal(value: str) -> str:
        return _MARKUP.sub(r"\\\g<0>", text(value.replace("\n", " ").replace("`", "'")))

    return data(value, literal)
