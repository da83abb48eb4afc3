"""The error for users' mistakes, as opposed to faults of the program."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


class UserError(ValueError):
    """A mistake in the user's input: one line with the value, the valid ones and the remedy.

    It is raised only where input is checked: a flag, a name, a file, an argument. Every other
    exception, including a `ValueError` of NumPy or JAX, is a fault of the program or the machine
    and is never reported as a mistake of the user's.
    """


def missing_extra(package: str, extra: str) -> str:
    """Returns a message about a package that is not installed and the extra that has it."""
    return f"{package} is not installed; pip install {package}, or the extra {extra!r}"


def import_extra(module: str, extra: str) -> Any:
    """Imports a module of an optional package; without it, a UserError (`missing_extra`)."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(missing_extra(module.partition(".")[0], extra)) from error


@contextlib.contextmanager
def parsing(subject: str = "") -> Iterator[None]:
    """Turns a ValueError of a block that parses a user's data into a UserError about `subject`."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{subject} {error}".strip()) from error
