"""The process that owns `ov.Core`: it compiles, checks and times candidates, and may die of them.

`python -m placement.runtime.measurement.worker DIRECTORY` answers requests from standard input on
standard output (`Channel`), about the model and inputs that `placement.runtime.measurement.local`
left in DIRECTORY. Meanwhile it writes its current candidate and stage into a small shared file
(`Heartbeat`). The waiting process can then blame a candidate for a crash, and tell a hang from a
long task, without a message per inference.

It does not load JAX, because that would take longer than most measurements.
"""

import os
import signal
import sys
import traceback
from pathlib import Path

from placement.errors import UserError
from placement.runtime import processors
from placement.runtime.errors import UnusableError, summarise_error
from placement.runtime.measurement.worker.channel import Channel
from placement.runtime.measurement.worker.session import Session


def main(directory: Path) -> None:
    """Answers requests until the parent ends.

    Ctrl-C is left to the parent. If the parent is killed, this process ends too, even while it
    computes: its standard input ends, and Linux kills it even if it hangs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processors.end_with_parent()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints does not disturb the messages
    channel = Channel(requests, replies, close_callback=lambda: os._exit(0))
    send = channel.send
    try:
        try:
            session = Session(send, directory)
        except UnusableError as error:
            send(("unusable", str(error)))
            return
        send(("ready", "jax" in sys.modules))
        while True:
            request = channel.receive()
            try:
                session.answer(request)
            except (RuntimeError, UserError) as error:
                send(("error", summarise_error(error)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent ended
    except MemoryError as error:
        send(("exhausted", summarise_error(error)))
    except (RuntimeError, UserError, OSError) as error:  # the session did not open
        send(("error", summarise_error(error)))
    except Exception:
        send(("fault", traceback.format_exc()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
