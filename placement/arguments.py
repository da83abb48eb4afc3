"""Texts such as 'nmt:layers=4,steps=30': a name, a colon, and its arguments."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from placement.errors import UserError

Value = bool | int | float | str


def entries(text: str) -> tuple[str, ...]:
    """Returns the entries of a comma list, whose arguments may hold commas themselves.

    'resnet50,nmt:layers=2,steps=30' is two: what looks like KEY=VALUE belongs to the one before.
    """
    found: list[str] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        if found and ":" in found[-1] and re.fullmatch(r"\w+=[^:/]*", entry):
            found[-1] += f",{entry}"
        else:
            found.append(entry)
    return tuple(found)


def split(text: str, kind: str = "graph") -> tuple[str, dict[str, str]]:
    """Splits 'nmt:layers=4,steps=30' into ('nmt', {'layers': '4', 'steps': '30'}).

    Args:
      text: to split.
      kind: what it names, for errors.

    Raises:
      UserError: an argument is not KEY=VALUE, or is given twice.
    """
    name, colon, rest = text.partition(":")
    given: dict[str, str] = {}
    for entry in rest.split(",") if colon else ():
        key, _, value = entry.partition("=")
        if not (key and value):
            raise UserError(
                f"{kind} {text!r} has the malformed argument {entry!r}; "
                "write NAME:KEY=VALUE,KEY=VALUE, or NAME alone for its defaults"
            )
        if key in given:
            raise UserError(f"{kind} {text!r} gives argument {key!r} twice; keep one")
        given[key] = value
    return name, given


def check(kind: str, value: str, valid: Collection[str], *, within: str = "") -> None:
    """Refuses a value that is not among the valid ones.

    Args:
      kind: what the value names.
      value: given.
      valid: the names that there are.
      within: the text that the value is a part of, for the error; by default it is all of it.

    Raises:
      UserError: as `unknown` has it.
    """
    if value not in valid:
        raise unknown(kind, value, valid, within=within)


def unknown(kind: str, value: str, valid: Iterable[str], *, within: str = "") -> UserError:
    """Returns the error of a value that is not among the valid ones: it names them.

    It asks whether one was meant that is spelt much the same; arguments of the value do not matter.
    """
    valid = tuple(valid)
    near = difflib.get_close_matches(value.split(":")[0], valid, n=1)
    meant = f": did you mean {near[0]!r}?" if near else ";"
    where = f" in {within}" if within else ""
    return UserError(f"unknown {kind} {value!r}{where}{meant} valid: {', '.join(valid)}")


def values(
    text: str,
    given: Mapping[str, str],
    defaults: Mapping[str, Value],
    *,
    least: Mapping[str, int] | None = None,
    kind: str = "graph",
) -> dict[str, Any]:
    """Returns every argument's value: the one given, of the default's type, else the default.

    Args:
      text: what the user wrote, for errors.
      given: from `split`.
      defaults: the valid arguments.
      least: the smallest valid number for some whole numbers; 1 for the others.
      kind: what the text names, for errors.

    Raises:
      UserError: an argument that is not valid, of another type, or too small.
    """
    listed = ", ".join(f"{key}={value}" for key, value in defaults.items())
    valid = f"valid arguments and their defaults: {listed or 'none'}"
    chosen: dict[str, Any] = dict(defaults)
    for key, value in given.items():
        if key not in defaults:
            raise UserError(f"{kind} {text!r} has the unknown argument {key!r}; {valid}")
        try:
            chosen[key] = _value(value, defaults[key], (least or {}).get(key, 1))
        except UserError as error:
            wanted = f"{kind} {text!r} gives {key} as {value!r}; {error}; {valid}"
            raise UserError(wanted) from None
    return chosen


def _value(text: str, default: Value, least: int) -> Value:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise UserError("give True or False")
        return text.lower() == "true"
    if isinstance(default, int):
        if not text.isdecimal() or int(text) < least:
            raise UserError(f"give a whole number of at least {least}")
        return int(text)
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise UserError("give a number") from None
    return text
