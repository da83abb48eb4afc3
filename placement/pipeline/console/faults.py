"""What goes wrong: what was found is written all the same, and what went wrong is told at the end.

A task goes on after a fault of the program, or a failure of the machine such as a worker that died,
as far as it can: a method that fails is a row of the table, a figure that cannot be drawn is left
out. When everything is written it is raised: `experiments.main` writes a fault to `FILE` in the run
directory, and says a failure in one line.
"""

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from placement.errors import UserError
from placement.reporting import runs

FILE = "fault.txt"
_OF_THE_MACHINE = (OSError, MemoryError)  # all else is a fault, but a UserError, which ends a task


class Faults:
    """Faults and failures of a task, in the order in which they happened."""

    def __init__(self) -> None:
        self._seen: list[Exception] = []

    def add(self, fault: Exception, doing: str) -> None:
        """Keeps one that the task goes on after."""
        fault = out_of_memory(fault) or fault
        fault.add_note(f"while {doing}")
        self._seen.append(fault)

    @contextlib.contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """Within it one ends the block alone."""
        try:
            yield
        except UserError:
            raise
        except Exception as fault:
            self.add(fault, doing)

    def __len__(self) -> int:
        return len(self._seen)

    def tracebacks(self) -> list[str]:
        """The text of each, for another process."""
        return ["".join(traceback.format_exception(fault)) for fault in self._seen]

    def tell(self) -> None:
        """Raises the only fault, or a group of several; the first failure if there is no fault."""
        failures = [seen for seen in self._seen if isinstance(seen, _OF_THE_MACHINE)]
        if len(self._seen) > max(1, len(failures)):
            raise ExceptionGroup("several faults", self._seen)
        if self._seen:
            raise self._seen[0]


@contextlib.contextmanager
def told_last() -> Iterator[Faults]:
    """Those of a block, raised when it has ended."""
    faults = Faults()
    try:
        yield faults
    except Exception as error:
        if not len(faults):
            raise
        faults.add(error, "going on")
    faults.tell()


def out_of_memory(fault: Exception) -> MemoryError | None:
    """Returns JAX's own words for memory that ran out; None of any other fault."""
    return MemoryError(in_short(fault)) if "RESOURCE_EXHAUSTED" in str(fault) else None


def forget(workdir: Path) -> None:
    """Removes the traceback of an earlier command, which this one had no part in."""
    (workdir / FILE).unlink(missing_ok=True)


def in_short(fault: Exception) -> str:
    """One line: the exceptions of a group, or the type and what it says."""
    if isinstance(fault, ExceptionGroup):
        return "; ".join(map(in_short, fault.exceptions))
    lines = str(fault).strip().splitlines() or [""]
    # Of another process it is a traceback, whose last line says what happened.
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if line is not lines[0] else f"{type(fault).__name__}: {line}".rstrip(": ")


def write(fault: Exception, workdir: Path | None) -> Path | None:
    """Writes the traceback to the run directory; None where there is none to write to."""
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
