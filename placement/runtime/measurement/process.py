"""The parent's side of the measuring process: starts it, sends it requests and kills it."""

import multiprocessing.connection
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from placement.errors import UserError
from placement.runtime.errors import RemoteFaultError
from placement.runtime.measurement.request import Failure
from placement.runtime.measurement.worker.heartbeat import Heartbeat

_START_S = 120.0  # limit on loading OpenVINO and the model and computing the reference outputs
_POLL_S = 0.25


class Progress(NamedTuple):
    """The state of the worker."""

    pid: int
    candidate: int  # index in the request; -1 if it works on no candidate
    stage: str  # one of `heartbeat.STAGES`
    candidates: int = 0  # number in the request; 0 if the request measures none
    timing: bool = False  # whether the current chunk is being timed: all compiled and checked


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
          UserError: the reference device cannot run the model.
        """
        self._heartbeat = Heartbeat(directory, create=True)
        self._connection, worker_connection = multiprocessing.connection.Pipe()
        python_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        descriptor = worker_connection.fileno()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "placement.runtime.measurement.worker",
                str(descriptor),
                str(directory),
            ],
            pass_fds=[descriptor],
            env={**os.environ, "PYTHONPATH": python_path},
            start_new_session=True,  # Ctrl-C in the terminal reaches the parent only
        )
        worker_connection.close()
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
            raise UserError(
                f"the plain CPU cannot run the model: {content}; if the model does not accept the "
                "drawn input values, give others, such as --config.input_values='length:12'"
            )
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
        # A worker that hangs reads nothing, and a large request fills the pipe. The limit makes
        # `send` raise a BlockingIOError then.
        limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))  # a C timeval
        with socket.socket(fileno=os.dup(self._connection.fileno())) as pipe_end:
            pipe_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            self._connection.send(request)
        except BlockingIOError as error:
            cause = f"the worker accepted no request within {timeout_s:g} s"
            raise WorkerDiedError(-1, Failure("timeout", cause)) from error
        except BrokenPipeError:
            pass  # receiving finds the cause
        while True:
            message = self._receive(timeout_s)
            if message[0] == "error":
                raise ChildProcessError(message[1])
            yield message
            if message[0] == "done":
                return

    def progress(self) -> Progress:
        """Returns the state of the worker, without the fields about the request."""
        candidate, stage, _ = self._heartbeat.read()
        return Progress(self.process.pid, candidate, stage)

    def is_alive(self) -> bool:
        """Returns whether the process is running."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Ends the process at once, even if it hangs."""
        self.process.kill()
        self.process.wait()
        self._connection.close()

    def _receive(self, timeout_s: float) -> tuple[Any, ...]:
        """Waits for the next message; raises as `ask` does."""
        beats, last_beat_s = self._heartbeat.read()[2], time.monotonic()
        while not self._connection.poll(min(_POLL_S, timeout_s)):
            candidate, stage, beats_now = self._heartbeat.read()
            if beats_now != beats:
                beats, last_beat_s = beats_now, time.monotonic()
            elif time.monotonic() - last_beat_s > timeout_s:
                cause = f"{stage!r} did not end within {timeout_s:g} s"
                raise WorkerDiedError(candidate, Failure("timeout", cause))
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            candidate, stage, _ = self._heartbeat.read()
            code = self.process.wait()
            if code == -signal.SIGKILL:
                ending = "ended by signal SIGKILL, as when the machine runs out of memory,"
            elif code < 0:
                ending = f"ended by signal {signal.Signals(-code).name}"
            else:
                ending = f"ended with code {code}"
            cause = f"worker {ending} during {stage!r}"
            raise WorkerDiedError(candidate, Failure("crash", cause)) from error
        if message[0] == "fault":
            raise RemoteFaultError(message[1])
        if message[0] == "exhausted":
            candidate, stage, _ = self._heartbeat.read()
            cause = f"out of memory during {stage!r}: {message[1]}"
            raise WorkerDiedError(candidate, Failure("memory", cause))
        return message
