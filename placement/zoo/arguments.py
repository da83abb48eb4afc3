"""Texts such as 'nmt:layers=4,steps=30': a name, a colon, and its arguments."""

from collections.abc import Mapping
from typing import Any


def split(text: str) -> tuple[str, dict[str, str]]:
    """'nmt:layers=4,steps=30' as ('nmt', {'layers': '4', 'steps': '30'}).

    Raises:
      ValueError: an argument is not KEY=VALUE, or is given twice.
    """
    name, colon, rest = text.partition(":")
    given: dict[str, str] = {}
    for entry in rest.split(",") if colon else ():
        key, _, value = entry.partition("=")
        if not (key and value):
            raise ValueError(
                f"graph {text!r} has the malformed argument {entry!r}; "
                "write NAME:KEY=VALUE,KEY=VALUE, or NAME alone for its defaults"
            )
        if key in given:
            raise ValueError(f"graph {text!r} gives argument {key!r} twice; keep one")
        given[key] = value
    return name, given


def values(
    text: str,
    given: Mapping[str, str],
    defaults: Mapping[str, int | str],
    *,
    least: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Every argument's value: the one given, else the default.

    Args:
      text: what the user wrote, for errors.
      given: from `split`.
      defaults: the valid arguments; where the default is a number, the value must be one.
      least: the smallest valid number for some arguments; 1 for the others.

    Raises:
      ValueError: an argument that is not valid, not a whole number, or too small.
    """
    listed = ", ".join(f"{key}={value}" for key, value in defaults.items())
    valid = f"valid arguments and their defaults: {listed or 'none'}"
    chosen: dict[str, Any] = dict(defaults)
    for key, value in given.items():
        if key not in defaults:
            raise ValueError(f"graph {text!r} has the unknown argument {key!r}; {valid}")
        if isinstance(defaults[key], str):
            chosen[key] = value
            continue
        lowest = (least or {}).get(key, 1)
        if not value.isdecimal() or int(value) < lowest:
            raise ValueError(
                f"graph {text!r} gives {key} as {value!r}; "
                f"give a whole number of at least {lowest}; {valid}"
            )
        chosen[key] = int(value)
    return chosen
