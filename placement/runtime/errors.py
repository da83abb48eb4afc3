"""Errors of OpenVINO: one-line summaries, and whether the process can continue after them."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator

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

# Places in the source code of OpenVINO, which its exceptions quote.
_SOURCE_PLACE = re.compile(
    r"(RuntimeError: |Caught exception: )?((Standard )?Exception from |Check '.*' failed at )?"
    r"\S+\.[ch]pp:\d+:?"
)
# Beginnings of lines in OpenVINO's exceptions that say nothing about the cause.
_USELESS_BEGINNINGS = (
    *(
        "Exception from ",
        "Standard exception from ",
        "While validating",
        "Summary:",
        "Details:",
        "Not Implemented:",
        "FrontEnd API failed",
    ),
    *("Loading input", "Converting input", "Shape inference input"),
    *("Model wasn't fully converted", "Unable to read the"),
)
_OPERATION_LINE = re.compile(r"(node with name '.*'|^Node .* of type \w+)\n", re.MULTILINE)


class FailedError(Exception):
    """A candidate cannot be measured; `stage` says which step failed."""

    def __init__(self, stage: str, cause: str):
        super().__init__(cause)
        self.stage = stage


class UnusableError(Exception):
    """The reference device cannot run the model with its inputs, or does not repeat its outputs."""


class RemoteFaultError(Exception):
    """A fault of the program in another process; the text is its traceback."""


def summarise_error(error: BaseException) -> str:
    """Returns an exception's text in one line, without places in OpenVINO's source code.

    If there is another cause, two lines are left out: that the type of the operation is not
    supported, and that OpenVINO's reference implementation cannot stand in.
    """
    causes = _list_causes(error)
    specific_causes = [
        cause
        for cause in causes
        if not cause.startswith(("Unsupported operation of type", "Cannot fallback on ngraph"))
    ]
    text = "; ".join(cause.rstrip(".;: ") for cause in dict.fromkeys(specific_causes or causes))
    return text[:500] or type(error).__name__


def find_reason(error: BaseException, otherwise: str) -> str:
    """Returns the line of an exception of OpenVINO that says what is wrong, or else `otherwise`.

    The operation that the exception names, if any, is appended.
    """
    causes = _list_causes(error)
    if not causes:
        return otherwise
    reason = causes[0].lstrip("- ").rstrip(".!; ")
    op_name = re.search(r"with friendly_name '(.*)'", str(error))
    if op_name is None or op_name[1] in reason:
        return reason
    return f"{reason} (operation {op_name[1]!r})"


def _list_causes(error: BaseException) -> list[str]:
    """Returns the lines of an exception that say what is wrong."""
    text = str(error).replace("Standard exception from compilation library: ", "")
    lines = [line.strip() for line in _SOURCE_PLACE.sub("", text).splitlines()]
    causes = [
        line
        for line in lines
        if line
        and not line.startswith(_USELESS_BEGINNINGS)
        and not line.endswith("with a message:")
    ]
    # A line of the CPU plug-in that only names an operation belongs to the line after it.
    return _OPERATION_LINE.sub(r"\1: ", "\n".join(causes)).splitlines()


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


def raise_if_exhausted(error: Exception) -> None:
    """Raises a MemoryError if an exception of OpenVINO says that memory ran out.

    The MemoryError ends the process, because others need the memory that it holds.
    """
    if any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS):
        raise MemoryError(summarise_error(error)) from error
