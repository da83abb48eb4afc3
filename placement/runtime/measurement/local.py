"""Measures a model on this machine's devices, in a separate process.

OpenVINO may crash, hang or run out of memory on a placement. So a worker process
(`placement.runtime.measurement.worker`) runs everything. A candidate that ends the worker is
recorded as a `Failure`, and the others are measured again in a new worker. A worker that dies while
it works on no candidate is replaced a few times.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.measurement import conditions
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.process import Progress, WorkerDiedError, WorkerProcess
from placement.runtime.measurement.request import (
    Answer,
    Failure,
    Interval,
    Measure,
    Measurement,
    Request,
    Rounds,
    median_interval,
)
from placement.runtime.models import inputs as inputs_lib
from placement.runtime.models import operations, serialization
from placement.runtime.models.inputs import Inputs
from placement.runtime.tempdir import TempDir

MAX_CHUNK_SIZE = 15  # candidates in the same rounds, without the first baseline

_CHUNK_BYTES = 4 << 30  # weights that are compiled at once; a device keeps up to two copies
_MIN_JUDGED_SAMPLES = 20  # intervals of fewer samples are wide on an idle machine too
_MAX_DEATHS = 3  # deaths of the worker without a candidate to blame that end a measurement


class LocalMeasurer(contextlib.AbstractContextManager["LocalMeasurer"]):
    """The `measurer.Measurer` of this machine; a context manager that owns the worker process."""

    def __init__(
        self,
        model: ov.Model,
        devices: Sequence[Device],
        *,
        inputs: Inputs | None = None,
        timeout_s: float = 60.0,
    ):
        """Writes the model for the worker, which starts with the first request.

        Args:
          model: static, folded, with unique friendly names (`frontend.prepare`).
          devices: in the order of the indices of a placement.
          inputs: the inputs that the model runs with; None draws them (`inputs.load_inputs`).
          timeout_s: limit on one compilation, or one inference.

        Raises:
          OSError: the model cannot be written.
        """
        inputs = inputs_lib.load_inputs(model) if inputs is None else inputs
        self.devices = tuple(devices)
        self._timeout_s = timeout_s
        self.computed_ops = frozenset(operations.computed_names(model))
        self._tempdir = TempDir()
        directory = self._tempdir.path
        try:
            serialization.write_model(model, directory)
            with serialization.report_free_space(directory):
                arrays = [array for sample in inputs.samples for array in sample]
                np.savez(
                    directory / "inputs.npz",
                    *arrays,
                    max_error=np.array(inputs.max_error),
                    description=np.array(inputs.description),
                )
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
        self._worker: WorkerProcess | None = None
        self._conditions: dict[str, Conditions] = {}

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes its files."""
        self._stop_worker()
        self._tempdir.close()

    def progress(self) -> Progress | None:
        """Returns the state of the worker, None without one; other threads may call this."""
        worker = self._worker
        return None if worker is None else worker.progress()

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request; the baselines' outcomes are those of the first chunk.

        Raises:
          ChildProcessError: the worker does not start, keeps dying without a candidate to blame, or
            cannot run the request.
        """
        content: Any
        if isinstance(request, Measure):
            outcomes: dict[int, Measurement | Failure] = {}
            for chunk in self.measure_chunks(request):
                outcomes = chunk | outcomes
            content = [outcomes[i] for i in range(len(request.candidates))]
        else:
            try:
                ((_, content),) = self._exchange(request)
            except WorkerDiedError as died:
                raise ChildProcessError(died.failure.cause) from died
        return request.parse(content)

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures chunk by chunk, each with all baselines that have not failed; see `Measurer`."""
        baselines = list(range(request.num_baselines))
        non_baselines = list(range(request.num_baselines, len(request.candidates)))
        size = max(1, self._chunk_size + 1 - request.num_baselines)
        chunks = [non_baselines[i : i + size] for i in range(0, len(non_baselines), size)] or [[]]
        for chunk in chunks:
            rounds = Rounds(
                {i: request.candidates[i] for i in (*baselines, *chunk)},
                request.min_rounds,
                request.time_limit_s / len(chunks),
                request.compile_s / len(chunks),
            )
            outcomes = self._measure_chunk(rounds, request.num_baselines)
            baselines = [i for i in baselines if isinstance(outcomes[i], Measurement)]
            yield outcomes

    def conditions(self) -> dict[str, Conditions]:
        """Returns the conditions of all measurements so far, by kind; see `Measurer`."""
        return dict(self._conditions)

    def _measure_chunk(
        self, rounds: Rounds, num_baselines: int
    ) -> dict[int, Measurement | Failure]:
        """Measures candidates in the same rounds; starts again without one that ends the worker."""
        candidates = rounds.candidates
        failures: dict[int, Measurement | Failure] = {}
        num_deaths = 0
        while remaining := {i: c for i, c in candidates.items() if i not in failures}:
            facts: dict[int, dict[str, Any]] = {}
            try:
                for kind, *content in self._exchange(rounds._replace(candidates=remaining)):
                    if kind == "failure":
                        index, stage, cause = content
                        failures[index] = Failure(stage, cause)
                    elif kind == "checked":
                        index, candidate_facts = content
                        facts[index] = candidate_facts
                    else:
                        return failures | self._summarize(facts, content[0], num_baselines)
            except WorkerDiedError as died:
                if died.candidate in remaining:
                    failures[died.candidate] = died.failure
                    continue
                num_deaths += 1
                if num_deaths == _MAX_DEATHS:
                    raise ChildProcessError(died.failure.cause) from died
        return failures

    def _summarize(
        self,
        facts: dict[int, dict[str, Any]],
        latencies_s: dict[int, np.ndarray],
        num_baselines: int,
    ) -> dict[int, Measurement | Failure]:
        """Makes measurements of the latencies, float64 [rounds] for each candidate that ran."""
        no_interval = Interval(np.nan, np.nan, np.nan, 0)
        measurements: dict[int, Measurement | Failure] = {}
        judged_intervals = []
        for i, samples_s in latencies_s.items():
            latency = median_interval(samples_s)
            ratios = tuple(
                median_interval(samples_s / latencies_s[baseline])
                if baseline in latencies_s
                else no_interval
                for baseline in range(num_baselines)
            )
            measurements[i] = Measurement(
                latency=latency, ratio=ratios[0], ratios=ratios, **facts[i]
            )
            if latency.n >= _MIN_JUDGED_SAMPLES:
                judged_intervals.append((latency.low, latency.high))
        width = conditions.median_width(judged_intervals)
        self._add_conditions("measure", Conditions(interval_width=width))
        return measurements

    def _exchange(self, request: Request[Any] | Rounds) -> Iterator[tuple[Any, ...]]:
        """Sends a request to a running worker and yields its messages, the last being 'done'."""
        if self._worker is not None and not self._worker.is_alive():
            self._stop_worker()
        if self._worker is None:
            self._worker = WorkerProcess(self._tempdir.path)
        is_complete = False
        kind = "measure" if isinstance(request, Rounds) else "profile"
        clock = conditions.WorkClock((os.getpid(), self._worker.process.pid))
        try:
            for message in self._worker.ask(request, self._timeout_s):
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
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
