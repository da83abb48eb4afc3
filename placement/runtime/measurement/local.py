"""Measures a model on this machine's devices, in a separate process.

OpenVINO may crash, hang or run out of memory on a placement. So a worker process
(`placement.runtime.measurement.worker`) runs everything. A candidate that ends the worker is
recorded as a `Failure`, and the others are measured again in a new worker. A worker that dies while
it works on no candidate is replaced a few times.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from placement.errors import UserError
from placement.runtime.devices import Device
from placement.runtime.errors import RemoteFaultError
from placement.runtime.measurement import conditions
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.request import (
    Answer,
    Failure,
    Interval,
    Measure,
    Measurement,
    Request,
    median_interval,
)
from placement.runtime.measurement.worker.channel import Channel, Heartbeat
from placement.runtime.models import inputs as inputs_lib
from placement.runtime.models import operations, serialization
from placement.runtime.models.inputs import Inputs
from placement.runtime.tempdir import TempDir

MAX_CHUNK_SIZE = 15  # candidates in the same rounds, without the first baseline

_CHUNK_BYTES = 4 << 30  # weights that are compiled at once; a device keeps up to two copies
_MIN_JUDGED_SAMPLES = 20  # intervals of fewer samples are wide on an idle machine too
_MAX_DEATHS = 3  # deaths of the worker without a candidate to blame that end a measurement
_START_S = 120.0  # limit on loading OpenVINO and the model and computing the reference outputs
_TIMEOUT_S = 60.0  # limit on one compilation, or one inference
_POLL_S = 0.25
# Ctrl-C in the terminal reaches the parent only: POSIX has sessions for this, Windows groups.
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


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
        self.heartbeat = Heartbeat(directory, create=True)
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

    def ask(self, request: object) -> Iterator[tuple[Any, ...]]:
        """Sends a request and yields the worker's messages up to 'done'.

        Raises:
          WorkerDiedError: the worker crashed, or its heartbeat stood still.
          ChildProcessError: the worker reports an error that no candidate caused.
          RemoteFaultError: a fault of the program ended the worker.
        """
        # No candidate yet, so that a crash is not blamed on the last request's candidate.
        self.heartbeat.set(-1, "open")
        pickled_request = pickle.dumps(request)

        def send() -> None:
            with contextlib.suppress(OSError):  # receiving finds the cause
                self._pipes[0].write(pickled_request)
                self._pipes[0].flush()

        # A worker that hangs reads nothing, and a large request fills the pipe: another thread
        # waits there, until it is done or the worker is killed.
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        sender.join(_TIMEOUT_S)
        if sender.is_alive():
            cause = f"the worker accepted no request within {_TIMEOUT_S:g} s"
            raise WorkerDiedError(-1, Failure("timeout", cause))
        while True:
            message = self._receive(_TIMEOUT_S)
            if message[0] == "error":
                raise ChildProcessError(message[1])
            yield message
            if message[0] == "done":
                return

    def kill(self) -> None:
        """Ends the process at once, even if it hangs."""
        self.process.kill()
        self.process.wait()
        self._channel.join()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # what was not sent yet
                pipe.close()

    def _receive(self, timeout_s: float) -> tuple[Any, ...]:
        """Waits for the next message; raises as `ask` does."""
        beats, last_beat_s = self.heartbeat.read()[2], time.monotonic()
        message = None
        while message is None:
            try:
                message = self._channel.receive(min(_POLL_S, timeout_s))
            except queue.Empty:
                candidate, stage, beats_now = self.heartbeat.read()
                if beats_now != beats:
                    beats, last_beat_s = beats_now, time.monotonic()
                elif time.monotonic() - last_beat_s > timeout_s:
                    cause = f"{stage!r} did not end within {timeout_s:g} s"
                    raise WorkerDiedError(candidate, Failure("timeout", cause)) from None
            except EOFError as error:
                candidate, stage, _ = self.heartbeat.read()
                code = self.process.wait()
                ending = f"ended with code {code}"
                if code < 0:  # by a signal, which Windows does not have
                    name = signal.Signals(-code).name
                    memory = ", as when the machine runs out of memory," * (name == "SIGKILL")
                    ending = f"ended by signal {name}{memory}"
                cause = f"worker {ending} during {stage!r}"
                raise WorkerDiedError(candidate, Failure("crash", cause)) from error
        if message[0] == "fault":
            raise RemoteFaultError(message[1])
        if message[0] == "exhausted":
            candidate, stage, _ = self.heartbeat.read()
            cause = f"out of memory during {stage!r}: {message[1]}"
            raise WorkerDiedError(candidate, Failure("memory", cause))
        return message


class LocalMeasurer(contextlib.AbstractContextManager["LocalMeasurer"]):
    """The `measurer.Measurer` of this machine; a context manager that owns the worker process."""

    def __init__(self, model: ov.Model, devices: Sequence[Device], *, inputs: Inputs | None = None):
        """Writes the model for the worker, which starts with the first request.

        Args:
          model: static, folded, with unique friendly names (`frontend.prepare`).
          devices: in the order of the indices of a placement.
          inputs: the inputs that the model runs with; None draws them (`inputs.load_inputs`).
        """
        inputs = inputs_lib.load_inputs(model) if inputs is None else inputs
        self.devices = tuple(devices)
        self.computed_ops = frozenset(operations.computed_names(model))
        self._tempdir = TempDir()
        directory = self._tempdir.path
        try:
            serialization.write_model(model, directory)
            with serialization.report_free_space(directory):
                (directory / "inputs.pickle").write_bytes(pickle.dumps(inputs))
        except OSError:
            self._tempdir.close()
            raise
        digest = hashlib.sha256()
        for name in ("model.xml", "model.bin"):
            with open(directory / name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        machine = [ov.get_version(), ov.Core().get_property("CPU", "FULL_DEVICE_NAME")]
        digest.update(json.dumps(machine).encode() + inputs.key.encode())
        self.fingerprint = digest.hexdigest()
        weights_bytes = (directory / "model.bin").stat().st_size
        chunk_size = _CHUNK_BYTES // max(1, 2 * weights_bytes) - 1
        self._chunk_size = max(1, min(MAX_CHUNK_SIZE, chunk_size))
        self.worker: WorkerProcess | None = None  # None: the next request starts one
        self._conditions: dict[str, Conditions] = {}

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes its files."""
        self._stop_worker()
        self._tempdir.close()

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request; the baselines' outcomes are those of the first chunk."""
        answer: Any
        if isinstance(request, Measure):
            outcomes: dict[int, Measurement | Failure] = {}
            for chunk in self.measure_chunks(request):
                outcomes = chunk | outcomes
            answer = [outcomes[i] for i in range(len(request.candidates))]
        else:
            try:
                ((_, answer),) = self._exchange(request)
            except WorkerDiedError as died:
                raise ChildProcessError(died.failure.cause) from died
        return answer

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures chunk by chunk, each with all baselines that have not failed; see `Measurer`."""
        baselines = list(range(request.num_baselines))
        non_baselines = list(range(request.num_baselines, len(request.candidates)))
        size = max(1, self._chunk_size + 1 - request.num_baselines)
        chunks = [non_baselines[i : i + size] for i in range(0, len(non_baselines), size)] or [[]]
        for chunk in chunks:
            outcomes: dict[int, Measurement | Failure] = {}
            # Of those that ran, float64 [rounds]; in a race the first rounds alone.
            latencies_s: dict[int, np.ndarray] = {}
            num_deaths = 0
            # After the death of a worker all begin again, without the candidate that ended it.
            while not latencies_s and (
                remaining := [i for i in (*baselines, *chunk) if i not in outcomes]
            ):
                facts: dict[int, dict[str, Any]] = {}
                part = dataclasses.replace(
                    request,
                    candidates=[request.candidates[i] for i in remaining],
                    time_limit_s=request.time_limit_s / len(chunks),
                    compile_s=request.compile_s / len(chunks),
                )
                try:
                    for kind, *content in self._exchange(part):
                        if kind == "failure":
                            position, stage, cause = content
                            outcomes[remaining[position]] = Failure(stage, cause)
                        elif kind == "checked":
                            position, facts[remaining[position]] = content
                        else:
                            latencies_s = {remaining[i]: s for i, s in content[0].items()}
                except WorkerDiedError as died:
                    if died.candidate >= 0:
                        outcomes[remaining[died.candidate]] = died.failure
                        continue
                    num_deaths += 1
                    if num_deaths == _MAX_DEATHS:
                        raise ChildProcessError(died.failure.cause) from died

            widths = []
            no_interval = Interval(np.nan, np.nan, np.nan, 0)
            for i, samples_s in latencies_s.items():
                latency = median_interval(samples_s)
                ratios = tuple(
                    median_interval(samples_s / latencies_s[baseline][: len(samples_s)])
                    if baseline in latencies_s
                    else no_interval
                    for baseline in range(request.num_baselines)
                )
                outcomes[i] = Measurement(
                    latency=latency, ratio=ratios[0], ratios=ratios, **facts[i]
                )
                if latency.n >= _MIN_JUDGED_SAMPLES:
                    widths.append(latency.high / latency.low)
            width = float(np.median(widths or [1.0]))
            self._add_conditions("measure", Conditions(interval_width=width))
            baselines = [i for i in baselines if isinstance(outcomes[i], Measurement)]
            yield outcomes

    def conditions(self) -> dict[str, Conditions]:
        """Returns the conditions of all measurements so far, by kind; see `Measurer`."""
        return dict(self._conditions)

    def _exchange(self, request: Request[Any]) -> Iterator[tuple[Any, ...]]:
        """Sends a request to a running worker and yields its messages, the last being 'done'."""
        if self.worker is not None and self.worker.process.poll() is not None:  # it has ended
            self._stop_worker()
        if self.worker is None:
            self.worker = WorkerProcess(self._tempdir.path)
        is_complete = False
        kind = "measure" if isinstance(request, Measure) else "profile"
        clock = conditions.WorkClock((os.getpid(), self.worker.process.pid))
        try:
            for message in self.worker.ask(request):
                is_complete = message[0] == "done"
                if is_complete:
                    self._add_conditions(kind, clock.conditions())
                yield message
        finally:
            # After a crash, an error or Ctrl-C the state of the worker is unknown.
            if not is_complete:
                self._stop_worker()

    def _add_conditions(self, kind: str, new: Conditions) -> None:
        self._conditions[kind] = self._conditions.get(kind, Conditions()) + new

    def _stop_worker(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None
