"""The process that owns `ov.Core`: it compiles, checks and times candidates, and may die of it.

`python -m placement.runtime.measurement.worker FD DIRECTORY` answers requests that arrive over the
connection FD, on the model and inputs that `placement.runtime.measurement.local` left in DIRECTORY.
While it works it writes what it works at into a small shared file (`Heartbeat`), so that whoever
waits can tell the guilty candidate of a crash, and a hang from a long task, without a message per
inference.

It loads no JAX: that would take longer than most measurements.
"""

import ctypes
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from placement.errors import UserError
from placement.runtime.errors import UnusableError, essence
from placement.runtime.measurement.worker.session import Session

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, directory: Path) -> None:
    """Answers requests until the connection closes. Ctrl-C is left to the parent.

    A parent that is killed takes this process with it, even one that computes or hangs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = Connection(descriptor)
    try:
        try:
            session = Session(connection, directory)
        except UnusableError as error:
            connection.send(("unusable", str(error)))
            return
        connection.send(("ready", "jax" in sys.modules))
        while True:
            request, asked_s = connection.recv()
            try:
                session.answer(request, asked_s)
            except (RuntimeError, UserError) as error:
                connection.send(("error", essence(error)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent closed it, or is gone
    except MemoryError as error:
        connection.send(("exhausted", essence(error)))
    except (RuntimeError, UserError, OSError) as error:  # the session did not open
        connection.send(("error", essence(error)))
    except Exception:
        connection.send(("fault", traceback.format_exc()))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
