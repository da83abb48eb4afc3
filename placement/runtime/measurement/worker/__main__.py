"""The process that owns `ov.Core`: it compiles, checks and times candidates, and may die of them.

`python -m placement.runtime.measurement.worker FD DIRECTORY` answers requests from the connection
FD about the model and inputs that `placement.runtime.measurement.local` left in DIRECTORY.
Meanwhile it writes its current candidate and stage into a small shared file (`Heartbeat`). The
waiting process can then blame a candidate for a crash, and tell a hang from a long task, without a
message per inference.

It does not load JAX, because that would take longer than most measurements.
"""

import ctypes
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from placement.errors import UserError
from placement.runtime.errors import UnusableError, summarise_error
from placement.runtime.measurement.worker.session import Session

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, directory: Path) -> None:
    """Answers requests until the connection closes.

    Ctrl-C is left to the parent. If the parent is killed, the kernel kills this process too, even
    while it computes or hangs.
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
            request, request_time_s = connection.recv()
            try:
                session.answer(request, request_time_s)
            except (RuntimeError, UserError) as error:
                connection.send(("error", summarise_error(error)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent closed the connection, or ended
    except MemoryError as error:
        connection.send(("exhausted", summarise_error(error)))
    except (RuntimeError, UserError, OSError) as error:  # the session did not open
        connection.send(("error", summarise_error(error)))
    except Exception:
        connection.send(("fault", traceback.format_exc()))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
