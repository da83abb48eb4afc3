"""The parent's side of the process that measures: it starts, asks and kills it."""

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

_START_S = 120.0  # for loading OpenVINO and the model, and the reference outputs
_POLL_S = 0.25


class Progress(NamedTuple):
    """What the worker is at."""

    pid: int
    candidate: int  # index in the request, -1 for none of them
    stage: str  # one of `heartbeat.STAGES`
    candidates: int = 0  # in the request; 0 where it is about none
    timing: bool = False  # those that are measured together are compiled and checked


class DiedError(Exception):
    """The worker crashed or hung."""

    def __init__(self, candidate: int, failure: Failure):
        super().__init__(failure.cause)
        self.candidate = candidate
        self.failure = failure


class WorkerProcess:
    """The parent's side of a worker process.

    Not a `multiprocessing.Process`: spawning would import the caller's main module there, and with
    it JAX.
    """

    def __init__(self, directory: Path):
        self._heartbeat = Heartbeat(directory, create=True)
        self._connection, theirs = multiprocessing.connection.Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        descriptor = theirs.fileno()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "placement.runtime.measurement.worker",
                str(descriptor),
                str(directory),
            ],
            pass_fds=[descriptor],
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        theirs.close()
        try:
            kind, content = self._receive(_START_S)
        except DiedError as died:
            kind, content = "error", died.failure.cause
        except (KeyboardInterrupt, RemoteFaultError):  # nobody knows of the process yet
            self.kill()
            raise
        if kind == "error":
            self.kill()
            raise ChildProcessError(f"measuring did not start: {content}")
        if kind == "unusable":
            self.kill()
            raise UserError(
                f"the plain CPU cannot run the model: {content}; where that is for an input's "
                "values, give them, such as --config.input_values='length:12'"
            )
        assert kind == "ready"
        assert not content, "the worker loaded JAX"

    def ask(self, request: object, timeout_s: float) -> Iterator[tuple[Any, ...]]:
        """Sends a request and yields what comes back, up to 'done'.

        Raises:
          DiedError: the worker crashed, or its heartbeat stood still for `timeout_s`.
          ChildProcessError: it answers with an error that is no candidate's.
          RemoteFaultError: a fault of the program ended it.
        """
        self._heartbeat.set(-1, "open")  # to blame no candidate of the last request
        _limit_sending(self._connection, timeout_s)
        try:
            self._connection.send(request)
        except BlockingIOError as error:
            cause = f"the worker took no request within {timeout_s:g} s"
            raise DiedError(-1, Failure("timeout", cause)) from error
        except BrokenPipeError:
            pass  # found out, with the cause, by receiving
        while True:
            message = self._receive(timeout_s)
            if message[0] == "error":
                raise ChildProcessError(message[1])
            yield message
            if message[0] == "done":
                return

    def progress(self) -> Progress:
        """Returns what the worker is at."""
        candidate, stage, _ = self._heartbeat.read()
        return Progress(self.process.pid, candidate, stage)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Ends the process at once, hung or not."""
        self.process.kill()
        self.process.wait()
        self._connection.close()

    def _receive(self, timeout_s: float) -> tuple[Any, ...]:
        """The next message.

        Raises:
          DiedError: the process ended, ran out of memory, or its heartbeat stood still for
            `timeout_s`.
          RemoteFaultError: a fault of the program ended it.
        """
        count, since = self._heartbeat.read()[2], time.monotonic()
        while not self._connection.poll(min(_POLL_S, timeout_s)):
            candidate, stage, now = self._heartbeat.read()
            if now != count:
                count, since = now, time.monotonic()
            elif time.monotonic() - since > timeout_s:
                cause = f"no end of {stage!r} within {timeout_s:g} s"
                raise DiedError(candidate, Failure("timeout", cause))
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            candidate, stage, _ = self._heartbeat.read()
            cause = f"worker {_ending(self.process.wait())} during {stage!r}"
            raise DiedError(candidate, Failure("crash", cause)) from error
        if message[0] == "fault":
            raise RemoteFaultError(message[1])
        if message[0] == "exhausted":
            candidate, stage, _ = self._heartbeat.read()
            cause = f"out of memory during {stage!r}: {message[1]}"
            raise DiedError(candidate, Failure("memory", cause))
        return message


def _limit_sending(connection: multiprocessing.connection.Connection, seconds: float) -> None:
    """Lets `send` raise a BlockingIOError if the other side does not read for so long."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "ended by signal SIGKILL, as when the machine runs out of memory,"
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return f"ended with code {code}"
