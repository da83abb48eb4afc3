"""Exit codes of a command, and the line on stderr for every kind of error."""

import contextlib
import errno
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from placement.errors import UserError
from placement.reporting import printable

EXIT_CODES = {
    0: "done, or stopped by Ctrl-C with a table of the results",
    1: "a fault of the program; results are kept, fault.txt has the traceback",
    2: "the command asks for something invalid",
    3: "the machine failed: a full disk, a lost device, a worker that dies, no placement that runs",
    130: "stopped by Ctrl-C before there was a table",
}


def unchanged(text: str) -> str:
    """Returns a message unchanged, in the syntax of `python -m experiments.main`."""
    return text


@contextlib.contextmanager
def exit_on_error(
    workdir: Path | None, rewrite: Callable[[str], str] = unchanged
) -> Iterator[None]:
    """Ends the process with one line and an exit code when the block raises.

    fault.txt is in the run directory. `rewrite` translates messages to the command's syntax.
    """
    try:
        yield
    except UserError as error:
        report_mistake(error, rewrite)
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            report_mistake(UserError(f"{error.filename!r} is too long a name; give a shorter one"))
        report_failure(error)
    except KeyboardInterrupt:
        print("interrupted; the same command continues from the saved state", file=sys.stderr)
        sys.exit(130)
    except Exception as fault:
        report_fault(fault, workdir)


def report_mistake(error: Exception, rewrite: Callable[[str], str] = unchanged) -> NoReturn:
    """Prints the error in one line and exits with 2."""
    text = rewrite(" ".join(str(error).splitlines()))  # names may have more than one space
    print(f"error: {printable.text(text)}", file=sys.stderr)
    sys.exit(2)


def report_failure(error: OSError | MemoryError) -> NoReturn:
    """Prints the failure, with the file if there is one, and exits with 3."""
    file, cause = "", str(error) or "out of memory"
    if isinstance(error, OSError):
        file, cause = f"{error.filename}: " if error.filename else "", error.strerror or cause
    line = (
        f"error: {file}{' '.join(cause.split())}; the same command continues from the saved state"
    )
    print(printable.text(line), file=sys.stderr)
    sys.exit(3)


def report_fault(fault: Exception, workdir: Path | None) -> NoReturn:
    """Writes the traceback to a file, names it in one line, and exits with 1.

    If JAX ran out of memory, the machine failed instead, and the exit code is 3.
    """
    # Imported late: commands that print help or a mistake start faster without it.
    faults = importlib.import_module("placement.pipeline.console.faults")
    if (failure := faults.out_of_memory(fault)) is not None:
        report_failure(failure)
    file = faults.write(fault, workdir)
    if file is None:
        traceback.print_exception(fault)
    location = f"in {file}" if file else "above"
    line = f"fault of the program: {faults.summarise(fault)}; the traceback is {location}"
    print(printable.text(line), file=sys.stderr)
    sys.exit(1)
