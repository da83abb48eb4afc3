"""Parsing of texts such as 'nmt:layers=4,steps=30': a name and its arguments."""

import difflib
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from placement.errors import UserError

Value = bool | int | float | str


def split_list(text: str) -> tuple[str, ...]:
    """Splits a comma list whose entries may have arguments with commas.

    'resnet50,nmt:layers=2,steps=30' has two entries: KEY=VALUE belongs to the entry before it.
    Braces list alternatives: 'hsdag:levels={1,2}' has the entries 'hsdag:levels=1' and
    'hsdag:levels=2'.
    """
    result: list[str] = []
    for entry in filter(None, map(str.strip, re.split(r",(?![^{}]*\})", text))):
        if result and ":" in result[-1] and re.fullmatch(r"\w+=[^:/]*", entry):
            result[-1] += f",{entry}"
        else:
            result.append(entry)
    expanded: list[str] = []
    for entry in result:
        # Every second part is a list of alternatives.
        parts = re.split(r"\{([^{}]*,[^{}]*)\}", entry)
        choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
        expanded += map("".join, itertools.product(*choices))
    return tuple(expanded)


def split_name(text: str) -> tuple[str, str]:
    """Splits a name or path from its arguments with their colon, '' without any.

    A path may have colons too: only a last part of the form ':KEY=VALUE,...' are arguments.
    """
    match = re.search(r":(?:\w+=[^:/,]*(?:,|$))+$", text)
    return (text, "") if match is None else (text[: match.start()], match.group())


def split_arguments(text: str, kind: str = "graph") -> tuple[str, dict[str, str]]:
    """Splits 'nmt:layers=4,steps=30' into ('nmt', {'layers': '4', 'steps': '30'}).

    Errors call the text a `kind`. An argument that is not KEY=VALUE, or is given twice, is a
    UserError.
    """
    name, colon, rest = text.partition(":")
    arguments: dict[str, str] = {}
    for entry in rest.split(",") if colon else ():
        key, _, value = entry.partition("=")
        if not (key and value):
            raise UserError(
                f"{kind} {text!r} has the malformed argument {entry!r}; "
                "write NAME:KEY=VALUE,KEY=VALUE, or NAME alone for its defaults"
            )
        if key in arguments:
            raise UserError(f"{kind} {text!r} gives argument {key!r} twice; keep one")
        arguments[key] = value
    return name, arguments


_SIZE_UNITS = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def parse_bytes(text: str, context: str) -> int:
    """Converts a size such as '6GB', '40MB' or '1.5GiB' to bytes; a UserError if it is less than 1.

    KB, MB and GB are decimal, KiB, MiB and GiB binary. Errors name the `context` of the text.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?b|b)", text.strip().lower(), re.ASCII)
    num_bytes = int(float(match[1]) * _SIZE_UNITS[match[2]]) if match else 0
    if num_bytes < 1:
        raise UserError(
            f"{text!r} in {context} is not a size of a memory; set a number above 0 with a unit "
            "(KB, MB, GB, KiB, MiB, GiB), such as 6GB"
        )
    return num_bytes


def check_choice(kind: str, value: str, valid: Collection[str], *, context: str = "") -> None:
    """Checks that a value is one of the valid ones; raises the error of `make_choice_error` if not.

    Args:
      kind: the kind of thing that the value names.
      value, valid: the value, and the valid ones.
      context: the text that contains the value, for the error; '' if the value is the whole text.
    """
    if value not in valid:
        raise make_choice_error(kind, value, valid, context=context)


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Checks that a number is from `low` to `high`; raises a UserError if not, or if it is NaN."""
    if not low <= value <= high:
        valid = f"from {low:,} to {high:,}" if high < math.inf else f"at least {low:,}"
        raise UserError(f"{name}={value} is out of range; set {valid}")


def make_choice_error(
    kind: str, value: str, valid: Iterable[str], *, context: str = ""
) -> UserError:
    """Returns the error for a value that is not valid; see `check_choice` for the arguments.

    It lists the valid values and suggests one with a similar spelling; arguments of the value are
    ignored for that.
    """
    valid = tuple(valid)
    similar = difflib.get_close_matches(value.split(":")[0], valid, n=1)
    suggestion = f": did you mean {similar[0]!r}?" if similar else ";"
    place = f" in {context}" if context else ""
    return UserError(f"unknown {kind} {value!r}{place}{suggestion} valid: {', '.join(valid)}")


def convert_arguments(
    text: str,
    texts: Mapping[str, str],
    defaults: Mapping[str, Value],
    *,
    minimums: Mapping[str, int] | None = None,
    kind: str = "graph",
) -> dict[str, Any]:
    """Converts arguments to the types of their defaults, and adds the missing ones.

    Args:
      text: the user's text, for errors.
      texts: the arguments, from `split_arguments`.
      defaults: the valid arguments.
      minimums: the smallest valid value of some integers; it is 1 for the others.
      kind: the kind of thing that the text names, for errors.

    Raises:
      UserError: an argument is unknown, of another type, or too small.
    """
    options = ", ".join(f"{key}={value}" for key, value in defaults.items())
    valid = f"valid arguments and their defaults: {options or 'none'}"
    result: dict[str, Any] = dict(defaults)
    for key, value in texts.items():
        if key not in defaults:
            raise UserError(f"{kind} {text!r} has the unknown argument {key!r}; {valid}")
        default = defaults[key]
        try:
            if isinstance(default, bool):
                if value.lower() not in ("true", "false"):
                    raise ValueError("set True or False")
                result[key] = value.lower() == "true"
            elif isinstance(default, int):
                minimum = (minimums or {}).get(key, 1)
                if not value.isdecimal() or int(value) < minimum:
                    raise ValueError(f"set a whole number of at least {minimum}")
                result[key] = int(value)
            else:
                result[key] = type(default)(value)
        except ValueError as error:
            message = f"{kind} {text!r} gives {key} as {value!r}; {error}; {valid}"
            raise UserError(message) from None
    return result
