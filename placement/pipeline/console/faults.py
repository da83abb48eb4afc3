"""Exit codes of a command, and the faults and failures of a task.

After a fault of the program, or a failure of the machine such as a worker that died, a task
continues as far as possible: a method that fails is a row of the table, a figure that cannot be
drawn is left out. The errors are raised once everything is written (`raise_at_end`).
"""

import contextlib
import errno
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from placement.errors import UserError
from placement.reporting import printable
from placement.runtime.errors import find_reason

EXIT_CODES = {
    0: "done, or stopped by Ctrl-C with a table of the results",
    1: "a fault of the program; results are kept, fault.txt has the traceback",
    2: "the command asks for something invalid",
    3: "the machine failed: a full disk, a lost device, a worker that dies, no placement that runs",
    130: "stopped by Ctrl-C before there was a table",
}
FILE = "fault.txt"
_CONTINUES = "the same command continues from the saved state"


class Faults(list[Exception]):
    """The faults and failures of a task, in the order in which they happened."""

    def add(self, fault: Exception, activity: str) -> None:
        """Records an error after which the task continues; `activity` was interrupted."""
        fault.add_note(f"while {activity}")
        self.append(fault)

    @contextlib.contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Records an error of the block and continues after it; a UserError is raised."""
        try:
            yield
        except UserError:
            raise
        except Exception as fault:
            self.add(fault, activity)


@contextlib.contextmanager
def raise_at_end() -> Iterator[Faults]:
    """Collects the errors of a block, and raises the only one, or a group, when it has ended.

    If all are failures of the machine, it raises the first one.
    """
    faults = Faults()
    try:
        yield faults
    except Exception as error:
        if not faults:
            raise
        faults.add(error, "going on")
    if len(faults) > 1 and not all(map(_is_failure, faults)):
        raise ExceptionGroup("several faults", faults)
    if faults:
        raise faults[0]


@contextlib.contextmanager
def exit_on_error(workdir: Path | None) -> Iterator[None]:
    """Ends the process with one line and an exit code when the block raises.

    A fault also prints its traceback, and writes it to `FILE` in the run directory. A block that
    ends without an error removes the file that an earlier command has left there.
    """
    try:
        yield
    except UserError as error:
        exit_with(2, f"error: {error}")
    except KeyboardInterrupt:
        exit_with(130, f"interrupted; {_CONTINUES}")
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            exit_with(2, f"error: {error.filename!r} is too long a name; use a shorter one")
        if _is_failure(error):
            file = getattr(error, "filename", None)
            cause = getattr(error, "strerror", None) or str(error) or "out of memory"
            exit_with(3, f"error: {f'{file}: ' if file else ''}{cause}; {_CONTINUES}")
        text = "".join(traceback.format_exception(error))
        print(text, file=sys.stderr)
        location = ""
        if workdir is not None:
            with contextlib.suppress(OSError):
                workdir.mkdir(parents=True, exist_ok=True)
                from placement.reporting import runs  # late: it loads NumPy

                runs.write_text(workdir / FILE, f"{' '.join(sys.argv)}\n\n{text}")
                location = f"; the traceback is in {workdir / FILE}"
        exit_with(1, f"fault of the program: {summarise(error)}{location}")
    if workdir is not None:
        with contextlib.suppress(OSError):
            (workdir / FILE).unlink()


def exit_with(code: int, line: str) -> NoReturn:
    """Prints a line on stderr and exits with one of `EXIT_CODES`."""
    print(printable.text(" ".join(line.splitlines())), file=sys.stderr)
    sys.exit(code)


def _is_failure(error: Exception) -> bool:
    """Whether the machine failed; that of JAX when memory runs out is a RuntimeError."""
    return isinstance(error, OSError | MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def summarise(fault: Exception) -> str:
    """Returns one line: the type and message of an exception, or those of a group."""
    if isinstance(fault, ExceptionGroup):
        return "; ".join(map(summarise, fault.exceptions))
    lines = str(fault).strip().splitlines() or [""]
    # An error of another process is a traceback, whose last line has the type and message.
    if lines[0].startswith("Traceback") and len(lines) > 1:
        return lines[-1]
    return f"{type(fault).__name__}: {find_reason(fault, '')}".rstrip(": ")
