"""Measures a model on this machine's devices, in a process of its own.

OpenVINO may crash or hang on a placement, or run out of memory. So everything happens in another
process (`placement.runtime.measurement.worker`): a candidate that brings it down is recorded as a
`Failure`, and the others are measured again in a new process. A process that dies while it is at no
candidate is replaced, a few times.
"""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from placement.runtime.devices import Device, reference_device
from placement.runtime.execution.hetero import quotient
from placement.runtime.measurement import conditions
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.process import DiedError, Progress, WorkerProcess
from placement.runtime.measurement.request import (
    Answer,
    Candidate,
    Failure,
    Interval,
    Measure,
    Measurement,
    Request,
    interval,
)
from placement.runtime.measurement.worker.trials import Rounds
from placement.runtime.models import extract, serialization
from placement.runtime.models import inputs as inputs_lib
from placement.runtime.models.inputs import Inputs
from placement.runtime.tempdir import TempDir

MOST_AT_ONCE = 15  # candidates in the same rounds, beside the first

_CHUNK_BYTES = 4 << 30  # of weights compiled at once; a device keeps up to two copies
_TELLING = 20  # samples: intervals of fewer are wide on an idle machine too
_DEATHS = 3  # of a worker, at no candidate, before measuring is given up


class LocalMeasurer:
    """The `measurer.Measurer` of this machine; a context manager that owns the worker process."""

    def __init__(
        self,
        model: ov.Model,
        devices: Sequence[Device],
        *,
        inputs: Inputs | None = None,
        timeout_s: float = 60.0,
    ):
        """Writes the model where the worker reads it; the worker starts with the first request.

        Args:
          model: static, folded, with unique friendly names (`frontend.prepare`).
          devices: what placements are on, in the order of their indices.
          inputs: that the model is run with; None for drawn ones (`inputs.find`).
          timeout_s: what one compilation, or one inference, may take.

        Raises:
          OSError: the model cannot be written.
        """
        inputs = inputs_lib.find(model) if inputs is None else inputs
        self.devices = tuple(devices)
        self.reference = reference_device().label
        self._timeout_s = timeout_s
        self._graph = extract.op_graph(model, name="model", constants=False).graph
        self.computed = frozenset(
            name
            for name, kind in zip(self._graph.op_names, self._graph.op_types, strict=True)
            if kind not in ("Parameter", "Result")
        )
        self._tempdir = TempDir()
        directory = self._tempdir.path
        try:
            serialization.write(model, directory)
            with serialization.naming_free_space(directory):
                stored = [array for arrays in inputs.samples for array in arrays]
                np.savez(directory / "inputs.npz", *stored)
        except OSError:
            self._tempdir.close()
            raise
        self.fingerprint = _fingerprint(directory, inputs.key)
        weights = (directory / "model.bin").stat().st_size
        self._chunk = max(1, min(MOST_AT_ONCE, _CHUNK_BYTES // max(1, 2 * weights) - 1))
        self._worker: WorkerProcess | None = None
        self._candidates, self._timing = 0, False  # as of `Progress`
        self._conditions: dict[str, Conditions] = {}

    def __enter__(self) -> "LocalMeasurer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes what was written for it."""
        self._stop()
        self._tempdir.close()

    def progress(self) -> Progress | None:
        """Returns what the worker is at; a progress display asks from another thread."""
        worker = self._worker
        if worker is None:
            return None
        return worker.progress()._replace(candidates=self._candidates, timing=self._timing)

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request.

        Many candidates are timed in chunks, each with the baselines among them, whose own
        measurements are those of the first chunk.

        Raises:
          ChildProcessError: the worker does not start, keeps dying while it is at no candidate, or
            cannot run what is asked for.
        """
        raw = self._measure(request) if isinstance(request, Measure) else self._found(request)
        return request.read(raw)

    def parts(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures chunk by chunk, and yields each when it is measured.

        Yields:
          What became of the candidates of a chunk, by index. A baseline is in every chunk unless
          it failed in an earlier one.

        Raises:
          ChildProcessError: as of `ask`.
        """
        baselines = list(range(request.num_baselines))
        others = list(range(request.num_baselines, len(request.candidates)))
        size = max(1, self._chunk + 1 - request.num_baselines)
        chunks = [others[i : i + size] for i in range(0, len(others), size)] or [[]]
        self._candidates = len(request.candidates)
        try:
            for chunk in chunks:
                outcomes = self._measure_chunk(
                    {i: request.candidates[i] for i in (*baselines, *chunk)},
                    dataclasses.replace(
                        request,
                        time_limit_s=request.time_limit_s / len(chunks),
                        compile_s=request.compile_s / len(chunks),
                    ),
                )
                baselines = [i for i in baselines if isinstance(outcomes[i], Measurement)]
                yield outcomes
        finally:
            self._candidates = 0

    def conditions(self) -> dict[str, Conditions]:
        """Returns those under which everything was measured so far, by kind.

        The kinds are 'profile', the model's costs, and 'measure', placements.
        """
        return dict(self._conditions)

    def _measure(self, request: Measure) -> list[Measurement | Failure]:
        outcomes: dict[int, Measurement | Failure] = {}
        for part in self.parts(request):
            outcomes = part | outcomes
        return [outcomes[i] for i in range(len(request.candidates))]

    def _measure_chunk(
        self,
        candidates: dict[int, Candidate],
        request: Measure,
    ) -> dict[int, Measurement | Failure]:
        """Measures until no candidate brings the worker down; each that does is left out."""
        failures: dict[int, Measurement | Failure] = {}
        deaths = 0
        while left := {i: c for i, c in candidates.items() if i not in failures}:
            facts: dict[int, dict[str, Any]] = {}
            self._timing = False
            limits = request.time_limit_s, request.compile_s
            rounds = Rounds(left, request.min_rounds, *limits, request.accept_wrong)
            try:
                for kind, *content in self._messages(rounds):
                    if kind == "failure":
                        failures[content[0]] = Failure(content[1], content[2])
                    elif kind == "checked":
                        facts[content[0]] = content[1]
                    else:
                        return failures | self._summaries(
                            candidates, facts, content[0], request.num_baselines
                        )
                    self._timing = len(failures.keys() | facts.keys()) == len(candidates)
            except DiedError as died:
                if died.candidate in left:
                    failures[died.candidate] = died.failure
                    continue
                deaths += 1
                if deaths == _DEATHS:
                    raise ChildProcessError(died.failure.cause) from died
        return failures

    def _summaries(
        self,
        candidates: dict[int, Candidate],
        facts: dict[int, dict[str, Any]],
        times_s: dict[int, np.ndarray],
        num_baselines: int,
    ) -> dict[int, Measurement | Failure]:
        missing = Interval(np.nan, np.nan, np.nan, 0)
        summaries: dict[int, Measurement | Failure] = {}
        intervals = []
        for i, samples in times_s.items():
            affinity = candidates[i].affinity
            shape = None if affinity is None else quotient(self._graph, affinity)
            latency = interval(samples)
            ratios = tuple(
                interval(samples / times_s[baseline]) if baseline in times_s else missing
                for baseline in range(num_baselines)
            )
            summaries[i] = Measurement(
                latency=latency,
                ratio=ratios[0],
                ratios=ratios,
                parts=shape.parts if shape else None,
                acyclic=shape.acyclic if shape else None,
                **facts[i],
            )
            if latency.n >= _TELLING:
                intervals.append((latency.low, latency.high))
        self._add("measure", Conditions(unsteady=conditions.width(intervals)))
        return summaries

    def _found(self, request: Request[Any]) -> Any:
        """Returns what the worker finds, before the request makes its answer of it."""
        try:
            ((_, content, _),) = self._messages(request)
        except DiedError as died:
            raise ChildProcessError(died.failure.cause) from died
        return content

    def _messages(self, request: Request[Any] | Rounds) -> Iterator[tuple[Any, ...]]:
        """Yields the messages that answer a request, up to the last, 'done'."""
        asked_s = time.monotonic()
        if self._worker is not None and not self._worker.is_alive():
            self._stop()
        if self._worker is None:
            self._worker = WorkerProcess(self._tempdir.path)
        complete = False
        kind = "measure" if isinstance(request, Rounds) else "profile"
        clock = conditions.Clock((os.getpid(), self._worker.process.pid))
        try:
            for message in self._worker.ask((request, asked_s), self._timeout_s):
                complete = message[0] == "done"
                if complete:
                    self._add(kind, clock.conditions() + message[2])
                yield message
        finally:  # after a crash, an error or Ctrl-C its state is unknown
            if not complete:
                self._stop()

    def _add(self, kind: str, more: Conditions) -> None:
        self._conditions[kind] = self._conditions.get(kind, Conditions()) + more

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def _fingerprint(directory: Path, inputs: str) -> str:
    """SHA-256 of the model, inputs given, the machine's processor and OpenVINO's version."""
    digest = hashlib.sha256()
    for name in ("model.xml", "model.bin"):
        with open(directory / name, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    machine = [ov.get_version(), ov.Core().get_property("CPU", "FULL_DEVICE_NAME")]
    digest.update(json.dumps(machine).encode() + inputs.encode())
    return digest.hexdigest()
