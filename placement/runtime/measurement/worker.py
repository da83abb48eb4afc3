"""The process that owns `ov.Core`: it compiles, checks and times candidates, and may die of it.

`python -m placement.runtime.measurement.worker FD DIRECTORY` answers requests that arrive over the
connection FD, on the model, inputs and devices that `placement.runtime.measurement.local` left in
DIRECTORY. While it works it writes what it works at into a small shared file (`Heartbeat`), so that
whoever waits can tell the guilty candidate of a crash, and a hang from a long task, without a
message per inference.

It loads no JAX: that would take longer than most measurements.
"""

import contextlib
import ctypes
import gc
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement.errors import UserError
from placement.runtime.devices import Device, open_core, reference_device, register
from placement.runtime.errors import (
    FailedError,
    UnusableError,
    attempt,
    essence,
    raise_if_exhausted,
)
from placement.runtime.execution import threads
from placement.runtime.execution.executor import Executor, Workers, overlap
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.measurement import profile, submodel_times
from placement.runtime.models import colocation, outputs

STAGES = ("open", "compile", "request", "infer", "wrong output", "threads")

_PR_SET_PDEATHSIG = 1

_STATEFUL_INFERENCES = 4  # compared from the initial state on, of a model with variables

_THREAD_SLACK = 1.25  # times the number of threads asked for
_WARM_UP = 2
_STREAM = 5  # requests a lane
_OVERLAPS = 5  # inferences whose median overlap counts


class Task(NamedTuple):
    """A candidate as the worker receives it."""

    number: int
    affinity: Affinity | None
    devices: tuple[Device, ...]
    segments: tuple[Segment, ...] | None
    num_requests: int

    def used(self) -> tuple[Device, ...]:
        """The devices that may compute."""
        if self.affinity is None:
            return self.devices
        names = set(self.affinity.values())
        return tuple(device for device in self.devices if device.name in names)


class Heartbeat:
    """Three numbers in a file that two processes map: candidate (-1: none), stage and a counter."""

    def __init__(self, directory: Path, *, create: bool = False):
        mode = "w+" if create else "r+"
        self._numbers = np.memmap(directory / "beat", dtype=np.int64, mode=mode, shape=(3,))  # type: ignore[call-overload]

    def set(self, candidate: int, stage: str) -> None:
        """Tells what is worked at from now on: a candidate, -1 for none, and one of `STAGES`."""
        self._numbers[0], self._numbers[1] = candidate, STAGES.index(stage)
        self._numbers[2] += 1

    def touch(self) -> None:
        """Still at the same."""
        self._numbers[2] += 1

    def read(self) -> tuple[int, str, int]:
        """Candidate, stage, counter."""
        candidate, stage, count = (int(number) for number in self._numbers)
        return candidate, STAGES[stage], count


class _Runner(NamedTuple):
    """A candidate that passed its checks."""

    request: ov.InferRequest | Executor
    facts: dict[str, Any]  # fields of `measure.Measurement`


class _OverError(Exception):
    """Compiling was given up: the time for it is over."""


class _Session:
    """What lasts from request to request: the core, the model and the reference outputs."""

    def __init__(self, connection: Connection, directory: Path):
        self._connection = connection
        self._beat = Heartbeat(directory)
        self._beat.set(-1, "open")
        self._core = open_core([])
        self._model = self._core.read_model(directory / "model.xml")
        with np.load(directory / "inputs.npz") as arrays:
            stored = [arrays[name] for name in arrays.files]
        size = max(1, len(self._model.inputs))
        self._samples = [stored[i : i + size] for i in range(0, len(stored), size)] or [[]]
        self._inputs = self._samples[0]  # what is timed
        self._until_s = math.inf  # on the monotonic clock: when to give up compiling submodels
        self._submodels = Submodels(self._core, self._model, alive=self._compiling)
        self._workers = Workers()
        self._stateful = colocation.is_stateful(self._model)
        self._quantised = outputs.is_quantised(self._model)
        compiled = compile_placement(self._core, self._model, None, [reference_device()])
        try:
            self._references = list(self._all_outputs(self._request(compiled)))
        except RuntimeError as error:
            raise_if_exhausted(error)
            raise UnusableError(essence(error)) from error
        self._kept: tuple[Task, _Runner] | None = None

    def measure(
        self, tasks: Sequence[Task], min_rounds: int, seconds: float, accept_wrong: bool
    ) -> None:
        """Checks every task alone, then times all in rounds; sends what it finds."""
        runners: dict[int, _Runner] = {}
        for task in tasks:
            try:
                runners[task.number] = self._checked(
                    task, keep=task is tasks[0], accept_wrong=accept_wrong
                )
            except FailedError as failed:
                self._connection.send(("failure", task.number, failed.stage, str(failed)))
            else:
                self._connection.send(("checked", task.number, runners[task.number].facts))
        requests = {index: runner.request for index, runner in runners.items()}
        times = self._rounds(requests, min_rounds, seconds)
        self._connection.send(("done", {i: np.array(t) for i, t in times.items()}))

    def profile(self, devices: Sequence[Device], seconds: float, until_s: float) -> None:
        """Sends a `profile.Profiled`."""
        register(self._core, devices)
        found = profile.profile_devices(
            self._core, self._model, self._inputs, devices, seconds, until_s, self._alive
        )
        self._connection.send(("done", found))

    def output_errors(self, devices: Sequence[Device]) -> None:
        """Sends an `outputs.Checked` for each device, which computes all that it supports."""
        register(self._core, devices)
        found = []
        for device in devices:
            self._alive()
            used, affinity = profile.alone(self._core, self._model, device)
            compiled = compile_placement(self._core, self._model, affinity, used)
            compared = self._compared(self._request(compiled))
            allowed = outputs.tolerance([device], quantised=self._quantised)
            found.append(outputs.Checked(compared.error, allowed))
        self._connection.send(("done", found))

    def transfers(self, devices: Sequence[Device], until_s: float) -> None:
        """Sends a `profile.RawTransfers`."""
        register(self._core, devices)
        found = profile.measure_transfers(self._core, self._model, devices, until_s, self._alive)
        self._connection.send(("done", found))

    def transfer_shapes(self) -> None:
        """Sends the shapes of the model's chains, and what copying a byte takes."""
        self._alive()
        found = profile.transfer_shapes(self._model), profile.copy_s_per_byte()
        self._connection.send(("done", found))

    def timeline(
        self,
        segments: Sequence[Segment],
        devices: Sequence[Device],
        inferences: int,
        until_s: float,
        shape: tuple[int, ...] | None,
    ) -> None:
        """Sends when each part ran, [inferences, P, 2], seconds from the first; fewer inferences,
        or none, where time is over. With a shape: parts of `profile.chain`, not of the model.
        """
        register(self._core, devices)
        self._until_s = until_s
        rows: list[np.ndarray] = []
        with contextlib.suppress(_OverError):
            executor = self._executor(segments, devices, shape=shape)
            took_s = 0.0
            while len(rows) < inferences + _WARM_UP and time.monotonic() + took_s < until_s:
                self._alive()
                begin_s = time.monotonic()
                executor.infer()
                took_s = time.monotonic() - begin_s
                rows.append(_spans(executor))
        self._until_s = math.inf
        warm = rows[_WARM_UP:] or rows[-1:]
        self._connection.send(("done", np.array(warm) if warm else np.empty((0, 0, 2))))

    def submodel_times(
        self, affinity: Affinity | None, devices: Sequence[Device], inferences: int
    ) -> None:
        """Sends what `submodel_times.measure` returns."""
        register(self._core, devices)
        found = submodel_times.measure(
            self._core, self._model, self._inputs, affinity, devices, inferences, self._alive
        )
        self._connection.send(("done", found))

    def own_choice(self, devices: Sequence[Device]) -> None:
        """Sends what HETERO chooses for every operation where nothing is labelled."""
        register(self._core, devices)
        names = ",".join(device.name for device in devices)
        self._connection.send(
            ("done", dict(self._core.query_model(self._model, f"HETERO:{names}")))
        )

    def _alive(self) -> None:
        self._beat.set(-1, "infer")

    def _compiling(self) -> None:
        self._beat.touch()
        if time.monotonic() > self._until_s:
            raise _OverError

    def _checked(self, task: Task, *, keep: bool, accept_wrong: bool) -> _Runner:
        """Compiles a task and checks it alone; the baseline is kept for the next request."""
        if self._kept and self._kept[0] == task:
            return self._kept[1]
        if keep:
            self._kept = None
        runner = self._check(task, accept_wrong)
        if keep:
            self._kept = (task, runner)
        return runner

    def _check(self, task: Task, accept_wrong: bool) -> _Runner:
        start = time.perf_counter()
        self._beat.set(task.number, "compile")
        attempt("compile", register, self._core, task.devices)
        if task.segments is None:
            request, facts = self._hetero(task)
        else:
            request, facts = self._concurrent(task)
        compile_s = time.perf_counter() - start
        self._beat.set(task.number, "infer")
        compared = attempt("infer", self._compared, request)
        allowed = outputs.tolerance(task.used(), quantised=self._quantised)
        checked = outputs.Checked(compared.error, allowed)
        if not (checked.right or accept_wrong):
            raise FailedError("wrong output", checked.told())
        facts |= {
            "thread_share": self._threads(task, request),
            "output_error": compared.error,
            "nan_share": compared.nan_share,
            "tolerance": allowed,
            "compile_s": compile_s,
        }
        return _Runner(request, facts)

    def _hetero(self, task: Task) -> tuple[ov.InferRequest, dict[str, Any]]:
        """A placement whose submodels follow one another."""
        compiled = attempt(
            "compile", compile_placement, self._core, self._model, task.affinity, task.devices
        )
        self._beat.set(task.number, "request")
        facts = {
            "submodels": _submodels(compiled),
            "execution_devices": tuple(compiled.get_property("EXECUTION_DEVICES")),
            "overlap": 0.0,
        }
        return attempt("request", self._request, compiled), facts

    def _concurrent(self, task: Task) -> tuple[Executor, dict[str, Any]]:
        """A placement whose devices work at the same time."""
        assert task.segments is not None
        executor = attempt(
            "compile", self._executor, task.segments, task.devices, task.num_requests
        )
        self._beat.set(task.number, "infer")
        overlaps: list[float] = []
        while len(overlaps) < _OVERLAPS:
            attempt("infer", executor.infer)
            overlaps.append(overlap(executor.spans))
        facts = {
            "submodels": len(executor.split.parts),
            "execution_devices": tuple(device.name for device in executor.devices),
            "overlap": float(np.median(overlaps)),
        }
        return executor, facts

    def _executor(
        self,
        segments: Sequence[Segment],
        devices: Sequence[Device],
        num_requests: int = 1,
        shape: tuple[int, ...] | None = None,
    ) -> Executor:
        """An executor with its inputs in place, of the model or of a chain of a shape."""
        submodels, inputs = self._submodels, self._inputs
        if shape is not None:
            submodels = Submodels(self._core, profile.chain(shape), alive=self._compiling)
            inputs = [np.zeros(shape, np.float32)]
        executor = Executor(submodels, segments, devices, self._workers, num_requests=num_requests)
        _give(executor, inputs)
        return executor

    def _threads(self, task: Task, request: ov.InferRequest | Executor) -> float:
        """The share of a task, at the best of three tries."""
        asked = [device.num_threads for device in task.used()]
        bound: set[str] = set()
        allowed = _THREAD_SLACK * max(asked)
        if isinstance(request, Executor):
            # The thread that waits for the inference computes nothing, but may wait for a core.
            bound = _bound_threads(request) | {str(threading.get_native_id())}
            free = [device.num_threads for device in request.devices if device.core is None]
            allowed = _THREAD_SLACK * (1 + sum(free)) - 1
        shares: list[float] = []
        while len(shares) < 3:
            threads.settle(lambda: self._beat.set(task.number, "infer"))
            found = threads.shares(request, lambda: self._beat.set(task.number, "infer"))
            shares.append(threads.at_once(s for thread, s in found.items() if thread not in bound))
            if shares[-1] <= allowed:
                return threads.at_once(found.values())
        beside = " beside those of the devices" if bound else ""
        cause = f"computes on {min(shares):.2f} threads at once{beside}, over {allowed:g}"
        raise FailedError("threads", cause)

    def _request(self, compiled: ov.CompiledModel) -> ov.InferRequest:
        """A request with its inputs in place, so that `infer()` needs no arguments."""
        request = compiled.create_infer_request()
        _give(request, self._inputs)
        return request

    def _compared(self, request: ov.InferRequest | Executor) -> outputs.Comparison:
        """The worst of what differs from the reference device, over all inputs."""
        pairs = zip(self._references, self._all_outputs(request), strict=True)
        found = [outputs.compare(reference, arrays) for reference, arrays in pairs]
        return outputs.Comparison(*map(max, zip(*found, strict=True)))

    def _all_outputs(self, request: ov.InferRequest | Executor) -> Iterator[list[np.ndarray]]:
        """Its outputs on all inputs, in turn; then it has those that are timed again."""
        for arrays in self._samples:
            _give(request, arrays)
            yield self._outputs(request)
        _give(request, self._inputs)

    def _outputs(self, request: ov.InferRequest) -> list[np.ndarray]:
        """All outputs; of a model with variables those of several inferences, as a state that is
        not carried over shows in the second only.
        """
        if not self._stateful:
            return _outputs(request)
        request.reset_state()
        found = [array for _ in range(_STATEFUL_INFERENCES) for array in _outputs(request)]
        request.reset_state()
        return found

    def _rounds(
        self, requests: dict[int, ov.InferRequest], min_rounds: int, seconds: float
    ) -> dict[int, list[float]]:
        """Seconds of every inference, one a round; a request that fails in between drops out.

        Where a round begins rotates, and its direction alternates: what an inference leaves in the
        caches is not always found by the same one. Variables start anew before each: a state that
        grows would make every inference slower than the one before.
        """
        times: dict[int, list[float]] = {index: [] for index in requests}
        gc.collect()
        gc.disable()
        threads.settle(self._alive)
        start, number = time.perf_counter(), -1  # round -1 warms up
        while times and (number < min_rounds or time.perf_counter() - start < seconds):
            order = list(times)
            shift = number % len(order)
            order = order[shift:] + order[:shift]
            for index in order if number % 2 else order[::-1]:
                self._beat.set(index, "infer")
                if self._stateful:
                    requests[index].reset_state()
                try:
                    taken_s = _timed(requests[index])
                except RuntimeError as error:
                    raise_if_exhausted(error)
                    del times[index]
                    self._connection.send(("failure", index, "infer", essence(error)))
                    continue
                if number >= 0:
                    times[index].append(taken_s)
            number += 1
        gc.enable()
        return times


def _spans(executor: Executor) -> np.ndarray:
    """Begin and end of each part in the last inference, [P, 2], seconds from the first."""
    found = np.full((len(executor.split.parts), 2), np.nan)
    for span in executor.spans:
        found[span.part] = span.begin_s, span.end_s
    return found - found.min()


def _timed(request: ov.InferRequest | Executor) -> float:
    """Seconds of an inference; where several are under way at once, what each adds to a stream."""
    if isinstance(request, Executor) and request.num_requests > 1:
        return request.stream(_STREAM * request.num_requests)
    begin = time.perf_counter()
    request.infer()
    return time.perf_counter() - begin


def _bound_threads(executor: Executor) -> set[str]:
    """The threads of those devices that have a core, each found to be on that core alone."""
    bound = set()
    for device in executor.devices:
        if device.core is None:
            continue
        thread = executor.workers.threads[device.name]
        cores = os.sched_getaffinity(thread)
        if cores != {device.core}:
            listed = ", ".join(map(str, sorted(cores)))
            cause = f"the thread of {device.name} may run on cores {listed}, not on its own alone"
            raise FailedError("threads", cause)
        bound.add(str(thread))
    return bound


def _give(request: ov.InferRequest | Executor, arrays: Sequence[np.ndarray]) -> None:
    for i, array in enumerate(arrays):
        request.set_input_tensor(i, ov.Tensor(array))


def _outputs(request: ov.InferRequest | Executor) -> list[np.ndarray]:
    request.infer()
    return [np.array(tensor.data) for tensor in request.output_tensors]


def _submodels(compiled: ov.CompiledModel) -> int:
    """1 where it was compiled without HETERO, which alone has the property."""
    if "HETERO_NUMBER_OF_SUBMODELS" not in compiled.get_property("SUPPORTED_PROPERTIES"):
        return 1
    return int(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))


def main(descriptor: int, directory: Path) -> None:
    """Answers requests until the connection closes. Ctrl-C is left to the parent.

    A parent that is killed takes this process with it, even one that computes or hangs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = Connection(descriptor)
    try:
        try:
            session = _Session(connection, directory)
        except UnusableError as error:
            connection.send(("unusable", str(error)))
            return
        connection.send(("ready", "jax" in sys.modules))
        methods: dict[str, Callable[..., None]] = {
            "measure": session.measure,
            "profile": session.profile,
            "output_errors": session.output_errors,
            "transfers": session.transfers,
            "transfer_shapes": session.transfer_shapes,
            "own_choice": session.own_choice,
            "timeline": session.timeline,
            "submodel_times": session.submodel_times,
        }
        while True:
            method, *arguments = connection.recv()
            try:
                methods[method](*arguments)
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
