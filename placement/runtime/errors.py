"""What goes wrong in OpenVINO, in one line, and whether the process can go on after it."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from placement.errors import UserError

# What RuntimeErrors of OpenVINO, and the system behind it, say when memory, or room for a thread's
# stack, runs out.
_EXHAUSTED = (
    *("bad_alloc", "Failed to allocate", "Cannot allocate memory"),
    "Resource temporarily unavailable",
)

# Lines of OpenVINO's exceptions that say where in its source, or nothing.
_NOT_TELLING = (
    *("Exception from ", "Check '", "RuntimeError: Check '", "While validating", "Summary:"),
    *("FrontEnd API failed", "Loading input", "Converting input", "Shape inference input"),
    *("Model wasn't fully converted", "Unable to read the"),
)


class FailedError(Exception):
    """A candidate cannot be measured."""

    def __init__(self, stage: str, cause: str):
        super().__init__(cause)
        self.stage = stage


class UnusableError(Exception):
    """The reference device cannot run the model with its inputs."""


class RemoteFaultError(Exception):
    """A fault of the program in another process; its traceback is the text."""


def essence(error: BaseException) -> str:
    """One line of an exception: OpenVINO's say where in its source they come from first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    places = ("Exception from ", "Standard exception from ")
    telling = [line for line in lines if not line.startswith(places)] or lines
    return " ".join(telling)[:500] or type(error).__name__


def why(error: BaseException, otherwise: str) -> str:
    """The line of an exception of OpenVINO's readers that says what is wrong, if any does.

    With the operation that it is about, where it names one.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if not line.startswith(_NOT_TELLING) and not line.endswith("with a message:")
    ]
    if not telling:
        return otherwise
    reason = telling[0].lstrip("- ").rstrip(".!; ")
    culprit = re.search(r"with friendly_name '(.*)'", str(error))
    return f"{reason} (operation {culprit[1]!r})" if culprit else reason


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Discards what reaches standard error meanwhile.

    Protocol buffers log there what they cannot parse, which the exception says in one line.
    """
    sys.stderr.flush()
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


def attempt(stage: str, function: Any, *arguments: Any) -> Any:
    """Calls a function, and returns what it does.

    Raises:
      FailedError: OpenVINO raised a RuntimeError, or the candidate cannot be, a UserError.
      MemoryError: that was for want of memory.
    """
    try:
        return function(*arguments)
    except (RuntimeError, UserError) as error:
        raise_if_exhausted(error)
        raise FailedError(stage, essence(error)) from error


def raise_if_exhausted(error: Exception) -> None:
    """Raises a MemoryError, which ends the process: others need the memory that it holds."""
    if any(sign in str(error) for sign in _EXHAUSTED):
        raise MemoryError(essence(error)) from error
