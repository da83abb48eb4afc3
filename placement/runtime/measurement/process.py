"""The parent's side of the measuring process: starts it, sends it requests and kills it."""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from placement.errors import UserError
from placement.runtime.errors import RemoteFaultError
from placement.runtime.measurement.request import Failure
from placement.runtime.measurement.worker.channel import Channel, Heartbeat

_START_S = 120.0  # limit on loading OpenVINO and the model and computing the reference outputs
_POLL_S = 0.25
# Ctrl-C in the terminal reaches the parent only: POSIX has sessions for this, Windows groups.
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


class Progress(NamedTuple):
    """The state of the worker."""

    pid: int
    candidate: int  # index in the request; -1 if it works on no candidate
    stage: str  # one of `channel.STAGES`


class WorkerDiedError(Exception):
    """The worker crashed, hung or ran out of memory."""

    def __init__(self, candidate: int, failure: Failure):
        super().__init__(failure.cause)
        self.candidate = candidate
        self.failure = failure


class WorkerProcess:
    """The parent's side of a worker process.

    This is not a `multiprocessing.Process`, because spawning one would import the caller's main
    module, and JAX with it, into the worker.
    """

    def __init__(self, directory: Path):
        """Starts the worker on the model and inputs in `directory`, and waits until it is ready.

        Raises:
          ChildProcessError: the worker does not start.
          UserError: the reference device cannot run the model, or does not repeat its outputs.
        """
        self._heartbeat = Heartbeat(directory, create=True)
        python_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "placement.runtime.measurement.worker", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": python_path},
            start_new_session=True,
            creationflags=_NEW_GROUP,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._pipes = self.process.stdin, self.process.stdout
        self._channel = Channel(self.process.stdout, self.process.stdin)
        try:
            kind, content = self._receive(_START_S)
        except WorkerDiedError as died:
            kind, content = "error", died.failure.cause
        except (KeyboardInterrupt, RemoteFaultError):  # the caller has no object to close yet
            self.kill()
            raise
        if kind == "error":
            self.kill()
            raise ChildProcessError(f"measuring did not start: {content}")
        if kind == "unusable":
            self.kill()
            raise UserError(content)
        assert kind == "ready"
        assert not content, "the worker loaded JAX"

    def ask(self, request: object, timeout_s: float) -> Iterator[tuple[Any, ...]]:
        """Sends a request and yields the worker's messages up to 'done'.

        Raises:
          WorkerDiedError: the worker crashed, or its heartbeat stood still for `timeout_s`.
          ChildProcessError: the worker reports an error that no candidate caused.
          RemoteFaultError: a fault of the program ended the worker.
        """
        # No candidate yet, so that a crash is not blamed on the last request's candidate.
        self._heartbeat.set(-1, "open")
        # A worker that hangs reads nothing, and a large request fills the pipe: another thread
        # waits there, until it is done or the worker is killed.
        sender = threading.Thread(target=self._send, args=(pickle.dumps(request),), daemon=True)
        sender.start()
        sender.join(timeout_s)
        if sender.is_alive():
            cause = f"the worker accepted no request within {timeout_s:g} s"
            raise WorkerDiedError(-1, Failure("timeout", cause))
        while True:
            message = self._receive(timeout_s)
            if message[0] == "error":
                raise ChildProcessError(message[1])
            yield message
            if message[0] == "done":
                return

    def progress(self) -> Progress:
        """Returns the state of the worker."""
        candidate, stage, _ = self._heartbeat.read()
        return Progress(self.process.pid, candidate, stage)

    def is_alive(self) -> bool:
        """Returns whether the process is running."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Ends the process at once, even if it hangs."""
        self.process.kill()
        self.process.wait()
        self._channel.join()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # what was not sent yet
                pipe.close()

    def _send(self, pickled_request: bytes) -> None:
        with contextlib.suppress(OSError):  # receiving finds the cause
            self._pipes[0].write(pickled_request)
            self._pipes[0].flush()

    def _receive(self, timeout_s: float) -> tuple[Any, ...]:
        """Waits for the next message; raises as `ask` does."""
        beats, last_beat_s = self._heartbeat.read()[2], time.monotonic()
        message = None
        while message is None:
            try:
                message = self._channel.receive(min(_POLL_S, timeout_s))
            except queue.Empty:
                candidate, stage, beats_now = self._heartbeat.read()
                if beats_now != beats:
                    beats, last_beat_s = beats_now, time.monotonic()
                elif time.monotonic() - last_beat_s > timeout_s:
                    cause = f"{stage!r} did not end within {timeout_s:g} s"
                    raise WorkerDiedError(candidate, Failure("timeout", cause)) from None
            except EOFError as error:
                raise self._describe_death() from error
        if message[0] == "fault":
            raise RemoteFaultError(message[1])
        if message[0] == "exhausted":
            candidate, stage, _ = self._heartbeat.read()
            cause = f"out of memory during {stage!r}: {message[1]}"
            raise WorkerDiedError(candidate, Failure("memory", cause))
        return message

    def _describe_death(self) -> WorkerDiedError:
        candidate, stage, _ = self._heartbeat.read()
        code = self.process.wait()
        ending = f"ended with code {code}"
        if code < 0:  # by a signal, which Windows does not have
            name = signal.Signals(-code).name
            memory = ", as when the machine runs out of memory," if name == "SIGKILL" else ""
            ending = f"ended by signal {name}{memory}"
        return WorkerDiedError(candidate, Failure("crash", f"worker {ending} during {stage!r}"))
