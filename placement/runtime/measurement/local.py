"""Measured latencies of placements, or the reason why there is none.

What a number here means. The candidates of one call are compiled, checked alone, and then timed in
rounds: in every round each candidate infers once, so that whatever slows the machine down slows
all of them, and the ratio of two candidates in one round is far steadier than either time. The
first candidate is the baseline of the ratios. Quoted are medians with the exact binomial interval:
of n sorted samples, the k-th from either end enclose the median with probability

    1 - 2 P[Binomial(n, 1/2) < k],

whatever their distribution; k is the largest that keeps this at 95%. It takes samples for
independent, so that it says nothing about a drift longer than the measurement.

Everything happens in another process (`placement.runtime.measurement.worker`), because OpenVINO may
crash or hang on a placement, or run out of memory. A candidate that does is recorded as a `Failure`
and the others are measured again in a new process. A process that dies while it is at no candidate
is replaced, a few times.
"""

import errno
import functools
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement.costs import transfers
from placement.costs.tables import DeviceProfile
from placement.costs.transfers import TransferFit
from placement.runtime.devices import Device, reference_device
from placement.runtime.errors import essence
from placement.runtime.execution.hetero import Affinity, quotient
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import conditions
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.process import DiedError, Failure, Progress, WorkerProcess
from placement.runtime.measurement.profile import ROUNDS
from placement.runtime.measurement.worker import Task
from placement.runtime.models import extract
from placement.runtime.models import inputs as inputs_lib
from placement.runtime.models.inputs import Inputs
from placement.runtime.models.outputs import Checked
from placement.runtime.tempdir import Scratch

MIN_SAMPLES = 6  # fewer have no 95% interval of the median
MOST_AT_ONCE = 15  # candidates in the same rounds, beside the first

_CHUNK_BYTES = 4 << 30  # of weights compiled at once; a device keeps up to two copies
_TELLING = 20  # samples: intervals of fewer are wide on an idle machine too
_DEATHS = 3  # of a worker, at no candidate, before measuring is given up


class Candidate(NamedTuple):
    """What can be measured: a placement on devices."""

    affinity: Affinity | None  # None: HETERO's own choice; with one device, that device alone
    devices: tuple[Device, ...]
    # The affinity's devices work at the same time, each through its segments in turn; None: as
    # HETERO runs it.
    segments: tuple[Segment, ...] | None = None
    # Requests under way at once. Of more than one the latency is what each adds to a stream of
    # them, the reciprocal of the throughput.
    num_requests: int = 1


class Interval(NamedTuple):
    """A median and its 95% interval."""

    median: float
    low: float
    high: float
    n: int  # samples


class Measurement(NamedTuple):
    """A candidate that ran."""

    latency: Interval  # seconds
    ratio: Interval  # latency over the baseline's in the same round; nan if the baseline failed
    submodels: int
    overlap: float  # share of an inference during which several devices computed; 0 under HETERO
    parts: int | None  # connected sets of operations on one device; None if HETERO chose
    acyclic: bool | None  # the parts' graph; where it is not, OpenVINO splits parts
    execution_devices: tuple[str, ...]
    thread_share: float  # threads that were computing, or waiting for a core, on average
    output_error: float  # against the reference device, see `outputs.compare`
    nan_share: float  # of the output values, those that are NaN here and in the reference
    tolerance: float  # the output_error that would have been a failure
    compile_s: float


def interval(samples: np.ndarray) -> Interval:
    """The median of samples and its 95% interval.

    Args:
      samples: float [n].

    Raises:
      ValueError: fewer than `MIN_SAMPLES` samples.
    """
    count = len(samples)
    if count < MIN_SAMPLES:
        raise ValueError(f"{count} samples have no 95% interval; take {MIN_SAMPLES} or more")
    ordered = np.sort(samples)
    rank = _rank(count)
    return Interval(
        float(np.median(ordered)), float(ordered[rank - 1]), float(ordered[-rank]), count
    )


@functools.cache
def _rank(count: int) -> int:
    """The largest k with P[Binomial(count, 1/2) < k] <= 2.5%, in integers, hence exact."""
    term, total, k = 1, 1, 0  # total = sum of C(count, i) for i <= k
    while 40 * total <= 2**count:
        term = term * (count - k) // (k + 1)
        k += 1
        total += term
    return k


class LocalMeasurer:
    """Measures placements of one model; a context manager that owns the worker process."""

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
        self._scratch = Scratch()
        directory = self._scratch.path
        try:
            ov.serialize(model, directory / "model.xml", directory / "model.bin")
            stored = [array for arrays in inputs.samples for array in arrays]
            np.savez(directory / "inputs.npz", *stored)
        except (RuntimeError, OSError) as error:  # OpenVINO's has no cause: 'iostream error'
            free = shutil.disk_usage(directory).free >> 20
            self._scratch.close()
            cause = f"cannot write the model, {free} MiB are free: {essence(error)}"
            raise OSError(errno.EIO, cause, str(directory)) from error
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
        self._scratch.close()

    def progress(self) -> Progress | None:
        """What the worker is at, as a progress display may ask from another thread."""
        worker = self._worker
        if worker is None:
            return None
        return worker.progress()._replace(candidates=self._candidates, timing=self._timing)

    def measure(
        self,
        candidates: Sequence[Candidate],
        *,
        min_rounds: int,
        time_limit_s: float,
        accept_wrong: bool = False,
    ) -> list[Measurement | Failure]:
        """Measures candidates against the first of them.

        Many are timed in chunks, each with the first among them, whose own measurement is that of
        the first chunk.

        Args:
          candidates: the baseline first.
          min_rounds: inferences of each at least, `MIN_SAMPLES` or more.
          time_limit_s: rounds go on until their times sum to this over all chunks; compiling and
            checking come on top.
          accept_wrong: time candidates whose outputs are wrong too, as `output_error` then tells:
            for questions about time alone.

        Returns:
          What became of each candidate, in order.

        Raises:
          ValueError: too few rounds.
          ChildProcessError: the worker does not start, or keeps dying while it is at no candidate.
        """
        results: dict[int, Measurement | Failure] = {}
        for part in self.parts(
            candidates, min_rounds=min_rounds, time_limit_s=time_limit_s, accept_wrong=accept_wrong
        ):
            results = part | results
        return [results[i] for i in range(len(candidates))]

    def parts(
        self,
        candidates: Sequence[Candidate],
        *,
        min_rounds: int,
        time_limit_s: float,
        accept_wrong: bool = False,
    ) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures as `measure` does, and yields each chunk when it is measured.

        Yields:
          What became of the candidates of a chunk, by index. The first of all is in every chunk
          unless it failed in the first.
        """
        if min_rounds < MIN_SAMPLES:
            raise ValueError(f"min_rounds is {min_rounds}; give {MIN_SAMPLES} or more")
        others = list(range(1, len(candidates)))
        chunks = [others[i : i + self._chunk] for i in range(0, len(others), self._chunk)] or [[]]
        how = (min_rounds, time_limit_s / len(chunks), accept_wrong)
        first: Measurement | Failure | None = None
        self._candidates = len(candidates)
        try:
            for chunk in chunks:
                indices = chunk if isinstance(first, Failure) else [0, *chunk]
                found = self._measure_chunk(candidates, indices, how)
                first = first or found[0]
                yield found
        finally:
            self._candidates = 0

    def profile(
        self,
        devices: Sequence[Device] | None = None,
        *,
        seconds: float = 6.0,
        limit_s: float = math.inf,
    ) -> tuple[DeviceProfile, ...]:
        """What the model costs on each device, their inferences interleaved.

        Args:
          devices: the measurer's, by default.
          seconds: of inference, over all devices.
          limit_s: wall time from now on; beyond it only an inference on each device is begun.
        """
        devices = self.devices if devices is None else tuple(devices)
        found = self._answer("profile", devices, seconds, time.monotonic() + limit_s)
        intervals = [interval(s)[1:3] for s in found.latencies_s if len(s) >= MIN_SAMPLES]
        self._add("profile", Conditions(unsteady=conditions.width(intervals)))
        if found.rounds < ROUNDS[0]:
            self._leave_out(f"operations timed {max(1, found.rounds)} times, not {ROUNDS[0]}")
        return tuple(
            DeviceProfile(device.label, raw.latency_s, raw.kernels, raw.unsupported)
            for device, raw in zip(devices, found.devices, strict=True)
        )

    def output_errors(self, devices: Sequence[Device]) -> list[Checked]:
        """How far the outputs of each device are from the reference's, on all inputs.

        What it does not support runs on the plain CPU meanwhile.
        """
        return self._answer("output_errors", tuple(devices))

    def transfers(self, *, limit_s: float = math.inf) -> tuple[TransferFit, ...]:
        """What handing a tensor from device to device costs, see `profile.measure_transfers`.

        Args:
          limit_s: wall time from now on; beyond it only the smallest tensor is handed over.
        """
        found = self._answer("transfers", self.devices, time.monotonic() + limit_s)
        if found.left_out:
            self._leave_out(f"the {found.left_out} largest of the tensors handed over")
        return tuple(
            transfers.fit(pair, samples, found.copy_s_per_byte)
            for pair, samples in found.samples.items()
        )

    def transfer_shapes(self) -> tuple[list[tuple[int, ...]], float]:
        """Shapes of chains of which `timeline` takes one, those that tell most first; and the
        seconds that copying a byte takes on this machine.
        """
        return self._answer("transfer_shapes")

    def timeline(
        self,
        segments: Sequence[Segment],
        *,
        inferences: int,
        limit_s: float = math.inf,
        shape: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """When the segments of a placement run, devices at the same time.

        Args:
          segments: of the measurer's devices, as `split.split` takes them.
          inferences: how many to look at.
          limit_s: wall time from now on, after which there are fewer of them, or none.
          shape: of tensors; then a chain of operations on them is run, not the model
            (`profile.chain`).

        Returns:
          float64 [inferences, P, 2]: begin and end of each part, seconds from the first begin. P
          counts the segments that compute anything, and is 0 where there are no inferences.

        Raises:
          ChildProcessError: the segments cannot be run.
        """
        until_s = time.monotonic() + limit_s
        found = self._answer("timeline", tuple(segments), self.devices, inferences, until_s, shape)
        if len(found) < inferences:
            what = "the model in parts" if shape is None else "some of the tensors handed over"
            self._leave_out(f"{len(found)} inferences of {what}, not {inferences}")
        return found

    def conditions(self) -> dict[str, Conditions]:
        """Those under which everything was measured so far: 'profile', its costs, and 'measure',
        placements.
        """
        return dict(self._conditions)

    def submodel_times(
        self, candidate: Candidate, *, inferences: int
    ) -> list[tuple[tuple[str, ...], float]]:
        """How long each submodel of a placement computes under HETERO.

        Args:
          candidate: without segments.
          inferences: to average over.

        Returns:
          The names of each submodel's nodes, operations of the model or not, and its seconds, in
          the order in which they run. What lies between two submodels is not counted.

        Raises:
          ChildProcessError: the placement cannot be run.
        """
        return self._answer("submodel_times", candidate.affinity, candidate.devices, inferences)

    def own_choice(self) -> dict[str, str]:
        """What HETERO chooses where nothing is labelled: operation name -> device name."""
        return self._answer("own_choice", self.devices)

    def _measure_chunk(
        self, candidates: Sequence[Candidate], indices: list[int], how: tuple[int, float, bool]
    ) -> dict[int, Measurement | Failure]:
        """Measures until no candidate brings the worker down; each that does is left out."""
        failures: dict[int, Measurement | Failure] = {}
        deaths = 0
        while left := [i for i in indices if i not in failures]:
            tasks = [Task(i, *candidates[i]) for i in left]
            facts: dict[int, dict[str, Any]] = {}
            self._timing = False
            try:
                for kind, *content in self._ask("measure", tasks, *how):
                    if kind == "failure":
                        failures[content[0]] = Failure(content[1], content[2])
                    elif kind == "checked":
                        facts[content[0]] = content[1]
                    else:
                        return failures | self._summaries(candidates, facts, content[0])
                    self._timing = len(failures.keys() | facts.keys()) == len(indices)
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
        candidates: Sequence[Candidate],
        facts: dict[int, dict[str, Any]],
        times: dict[int, np.ndarray],
    ) -> dict[int, Measurement | Failure]:
        missing = Interval(np.nan, np.nan, np.nan, 0)
        summaries: dict[int, Measurement | Failure] = {}
        for i, samples in times.items():
            affinity = candidates[i].affinity
            shape = None if affinity is None else quotient(self._graph, affinity)
            summaries[i] = Measurement(
                latency=interval(samples),
                ratio=interval(samples / times[0]) if 0 in times else missing,
                parts=shape.parts if shape else None,
                acyclic=shape.acyclic if shape else None,
                **facts[i],
            )
        told = [s.latency for s in summaries.values() if isinstance(s, Measurement)]
        intervals = [one[1:3] for one in told if one.n >= _TELLING]
        self._add("measure", Conditions(unsteady=conditions.width(intervals)))
        return summaries

    def _answer(self, *request: Any) -> Any:
        try:
            ((_, content),) = self._ask(*request)
        except DiedError as died:
            raise ChildProcessError(died.failure.cause) from died
        return content

    def _ask(self, *request: Any) -> Iterator[tuple[Any, ...]]:
        """Yields the messages that answer a request, up to the last, 'done'."""
        if self._worker is not None and not self._worker.is_alive():
            self._stop()
        if self._worker is None:
            self._worker = WorkerProcess(self._scratch.path)
        complete = False
        kind = "measure" if request[0] == "measure" else "profile"
        clock = conditions.Clock((os.getpid(), self._worker.process.pid))
        try:
            for message in self._worker.ask(request, self._timeout_s):
                complete = message[0] == "done"
                if complete:
                    self._add(kind, clock.conditions())
                yield message
        finally:  # after a crash, an error or Ctrl-C its state is unknown
            if not complete:
                self._stop()

    def _add(self, kind: str, found: Conditions) -> None:
        self._conditions[kind] = self._conditions.get(kind, Conditions()) + found

    def _leave_out(self, words: str) -> None:
        self._add("profile", Conditions(left_out=(words,)))

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
