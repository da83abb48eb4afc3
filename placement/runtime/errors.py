"""Errors of OpenVINO: one-line summaries, and whether the process can continue after them."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from placement.errors import UserError

# Texts in RuntimeErrors of OpenVINO, and of the system below it, when memory runs out or there is
# no room for a thread's stack.
_OUT_OF_MEMORY_TEXTS = (
    *("bad_alloc", "Failed to allocate", "Cannot allocate memory"),
    "Resource temporarily unavailable",
    # Of the GPU plug-in, and of OpenCL and Level Zero below the plug-ins of GPU and NPU. OpenCL
    # reports CL_OUT_OF_RESOURCES for other faults too, after which no process can continue either.
    *("Exceeded max size of memory object allocation", "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    *("CL_OUT_OF_RESOURCES", "CL_OUT_OF_HOST_MEMORY"),
    *("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY"),
)

# Beginnings of lines in OpenVINO's exceptions that state a place in its source, or nothing useful.
_USELESS_BEGINNINGS = (
    *("Exception from ", "Check '", "RuntimeError: Check '", "While validating", "Summary:"),
    *("FrontEnd API failed", "Loading input", "Converting input", "Shape inference input"),
    *("Model wasn't fully converted", "Unable to read the"),
)


class FailedError(Exception):
    """A candidate cannot be measured; `stage` says which step failed."""

    def __init__(self, stage: str, cause: str):
        super().__init__(cause)
        self.stage = stage


class UnusableError(Exception):
    """The reference device cannot run the model with its inputs."""


class RemoteFaultError(Exception):
    """A fault of the program in another process; the text is its traceback."""


def summarise_error(error: BaseException) -> str:
    """Returns an exception's text in one line, without OpenVINO's lines about its source code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    source_places = ("Exception from ", "Standard exception from ")
    useful_lines = [line for line in lines if not line.startswith(source_places)] or lines
    return " ".join(useful_lines)[:500] or type(error).__name__


def quote_causes(error: BaseException) -> str:
    """Returns what an exception of a plug-in says, in one line, without places in its source.

    If there is another cause, two lines are left out: that the type of the operation is not
    supported, and that OpenVINO's reference implementation cannot stand in.
    """
    useless = (*_USELESS_BEGINNINGS, "Standard exception from ", "Details:", "Not Implemented:")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(useless)]
    specific_causes = [
        cause
        for cause in causes
        if not cause.startswith(("Unsupported operation of type", "Cannot fallback on ngraph"))
    ]
    return "; ".join(dict.fromkeys(specific_causes or causes))[:500] or summarise_error(error)


def find_reason(error: BaseException, otherwise: str) -> str:
    """Returns the line of an exception of OpenVINO's readers that says what is wrong.

    The operation that the exception names, if any, is appended.

    Args:
      error: the exception.
      otherwise: the text to return if no line says what is wrong.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful_lines = [
        line
        for line in lines
        if not line.startswith(_USELESS_BEGINNINGS) and not line.endswith("with a message:")
    ]
    if not useful_lines:
        return otherwise
    reason = useful_lines[0].lstrip("- ").rstrip(".!; ")
    op_name = re.search(r"with friendly_name '(.*)'", str(error))
    return f"{reason} (operation {op_name[1]!r})" if op_name else reason


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Discards everything that is written to standard error inside the block.

    Protocol buffers log there what they cannot parse; the exception says it in one line.
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


def run_stage(stage: str, function: Any, *arguments: Any) -> Any:
    """Calls a function as one stage of measuring a candidate, and returns its result.

    Raises:
      FailedError: OpenVINO raised a RuntimeError, or the candidate is invalid (a UserError).
      MemoryError: OpenVINO ran out of memory.
    """
    try:
        return function(*arguments)
    except (RuntimeError, UserError) as error:
        raise_if_exhausted(error)
        raise FailedError(stage, summarise_error(error)) from error


def raise_if_exhausted(error: Exception) -> None:
    """Raises a MemoryError if an exception of OpenVINO says that memory ran out.

    The MemoryError ends the process, because others need the memory that it holds.
    """
    if any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS):
        raise MemoryError(summarise_error(error)) from error
