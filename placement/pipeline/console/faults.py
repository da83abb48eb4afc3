"""Faults and failures of a task, which are reported after its results are written.

After a fault of the program, or a failure of the machine such as a worker that died, a task
continues as far as possible: a method that fails is a row of the table, a figure that cannot be
drawn is left out. The errors are raised once everything is written: `experiments.main` then writes
the traceback of a fault to `FILE` in the run directory, and prints a failure as one line.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from placement.errors import UserError
from placement.reporting import runs
from placement.runtime.errors import find_reason

FILE = "fault.txt"


class Faults:
    """The faults and failures of a task, in the order in which they happened."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def add(self, fault: Exception, activity: str) -> None:
        """Records an error after which the task continues; `activity` was interrupted."""
        fault = out_of_memory(fault) or fault
        fault.add_note(f"while {activity}")
        self._errors.append(fault)

    @contextlib.contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Records an error of the block and continues after it; a UserError is raised."""
        try:
            yield
        except UserError:
            raise
        except Exception as fault:
            self.add(fault, activity)

    def __len__(self) -> int:
        return len(self._errors)

    def tracebacks(self) -> list[str]:
        """Returns the traceback of each error, for another process."""
        return ["".join(traceback.format_exception(error)) for error in self._errors]

    def raise_all(self) -> None:
        """Raises the only error, or a group of several; only failures raise the first of them."""
        # Failures of the machine; other exceptions are faults.
        failures = [error for error in self._errors if isinstance(error, OSError | MemoryError)]
        if len(self._errors) > max(1, len(failures)):
            raise ExceptionGroup("several faults", self._errors)
        if self._errors:
            raise self._errors[0]


@contextlib.contextmanager
def raise_at_end() -> Iterator[Faults]:
    """Collects the errors of a block and raises them when it has ended."""
    faults = Faults()
    try:
        yield faults
    except Exception as error:
        if not len(faults):
            raise
        faults.add(error, "going on")
    faults.raise_all()


def out_of_memory(fault: Exception) -> MemoryError | None:
    """Returns JAX's message if it ran out of memory; None for any other fault."""
    return MemoryError(summarise(fault)) if "RESOURCE_EXHAUSTED" in str(fault) else None


def forget(workdir: Path) -> None:
    """Removes the traceback that an earlier command has left in a run directory."""
    if os.access(workdir, os.W_OK):
        (workdir / FILE).unlink(missing_ok=True)


def summarise(fault: Exception) -> str:
    """Returns one line: the type and message of an exception, or those of a group."""
    if isinstance(fault, ExceptionGroup):
        return "; ".join(map(summarise, fault.exceptions))
    lines = str(fault).strip().splitlines() or [""]
    # An error of another process is a traceback, whose last line has the type and message.
    if lines[0].startswith("Traceback") and len(lines) > 1:
        return lines[-1]
    return f"{type(fault).__name__}: {find_reason(fault, '')}".rstrip(": ")


def write(fault: Exception, workdir: Path | None) -> Path | None:
    """Writes the traceback to the run directory; returns None if that is impossible."""
    if workdir is None:
        return None
    command = " ".join(sys.argv)
    text = f"{command}\n\n{''.join(traceback.format_exception(fault))}"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        runs.write_text(workdir / FILE, text)
    except OSError:
        return None
    return workdir / FILE
