"""Candidates on trial: compiled, checked alone, then timed in rounds with one another."""

import gc
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import register
from placement.runtime.errors import FailedError, attempt, essence, raise_if_exhausted
from placement.runtime.execution import threads
from placement.runtime.execution.executor import Executor, overlap
from placement.runtime.execution.stream import Stream
from placement.runtime.measurement.request import TIME_LIMIT, Candidate
from placement.runtime.measurement.worker import inference
from placement.runtime.measurement.worker.heartbeat import Heartbeat
from placement.runtime.measurement.worker.inference import AnyRequest
from placement.runtime.measurement.worker.loaded import LoadedModel, OverError

_THREAD_SLACK = 1.25  # times the number of threads asked for
_THREAD_TRIES = 3
_STREAM = 5  # inferences of each request
_OVERLAPS = 5  # inferences whose median overlap counts
_NO_TIME = "no time was left to compile its submodels; give a longer time limit"


class Rounds(NamedTuple):
    """Candidates of a `request.Measure` that are timed with one another."""

    candidates: dict[int, Candidate]  # by their index in the request, the baseline first
    min_rounds: int
    time_limit_s: float
    compile_s: float
    accept_wrong: bool


class _Runner(NamedTuple):
    """A candidate that passed its checks."""

    request: AnyRequest
    facts: dict[str, Any]  # fields of `request.Measurement`


class Trials:
    """Compiles, checks and times candidates; the baseline is kept for the next request."""

    def __init__(
        self, loaded: LoadedModel, heartbeat: Heartbeat, send: Callable[[tuple[Any, ...]], None]
    ):
        """Tries candidates of a model.

        Args:
          loaded: the model.
          heartbeat: tells what candidate is at what stage.
          send: told ('checked', index, facts) or ('failure', index, stage, cause) of candidates.
        """
        self._loaded = loaded
        self._heartbeat = heartbeat
        self._send = send
        self._kept: tuple[tuple[int, Candidate], _Runner] | None = None
        self._compile_until_s = math.inf  # of the candidate on trial, on the monotonic clock

    def run(self, rounds: Rounds) -> dict[int, np.ndarray]:
        """Checks every candidate alone, then times those that are right in rounds.

        Returns:
          Of each that ran in all rounds, by index, the seconds of every inference, float64 [R].
        """
        runners: dict[int, _Runner] = {}
        baseline = next(iter(rounds.candidates))
        until_s = time.monotonic() + rounds.compile_s
        for index, candidate in rounds.candidates.items():
            self._compile_until_s = math.inf if index == baseline else until_s
            try:
                if time.monotonic() > self._compile_until_s:
                    raise FailedError(TIME_LIMIT, _NO_TIME)
                runners[index] = self._checked(
                    index, candidate, keep=index == baseline, accept_wrong=rounds.accept_wrong
                )
            except FailedError as failed:
                self._send(("failure", index, failed.stage, str(failed)))
            else:
                self._send(("checked", index, runners[index].facts))
        requests = {index: runner.request for index, runner in runners.items()}
        times = self._time(requests, rounds.min_rounds, rounds.time_limit_s)
        return {index: np.array(seconds) for index, seconds in times.items()}

    def _checked(
        self, index: int, candidate: Candidate, *, keep: bool, accept_wrong: bool
    ) -> _Runner:
        if self._kept and self._kept[0] == (index, candidate):
            return self._kept[1]
        if keep:
            self._kept = None
        runner = self._check(index, candidate, accept_wrong)
        if keep:
            self._kept = (index, candidate), runner
        return runner

    def _check(self, index: int, candidate: Candidate, accept_wrong: bool) -> _Runner:
        """Compiles a candidate and checks it alone."""
        start = time.perf_counter()
        self._heartbeat.set(index, "compile")
        attempt("compile", register, self._loaded.core, candidate.devices)
        compile_ = self._hetero if candidate.segments is None else self._concurrent
        request, facts = compile_(index, candidate)
        compile_s = time.perf_counter() - start
        self._heartbeat.set(index, "infer")
        compared, checked = attempt("infer", self._loaded.compare, request, candidate.used())
        if not (checked.right or accept_wrong):
            raise FailedError("wrong output", checked.describe())
        facts |= {
            "thread_share": self._thread_share(index, candidate, request),
            "output_error": compared.error,
            "nan_share": compared.nan_share,
            "tolerance": checked.tolerance,
            "compile_s": compile_s,
        }
        return _Runner(request, facts)

    def _hetero(self, index: int, candidate: Candidate) -> tuple[AnyRequest, dict[str, Any]]:
        """Compiles what OpenVINO runs by itself, submodels one after another."""
        compiled = attempt(
            "compile",
            self._loaded.compiled,
            candidate.affinity,
            candidate.devices,
        )
        self._heartbeat.set(index, "request")
        facts = {
            "submodels": _submodels(compiled),
            "execution_devices": tuple(compiled.get_property("EXECUTION_DEVICES")),
            "overlap": 0.0,
        }
        made = self._loaded.stream if candidate.num_requests is None else self._loaded.request
        return attempt("request", made, compiled), facts

    def _concurrent(self, index: int, candidate: Candidate) -> tuple[Executor, dict[str, Any]]:
        """Compiles a placement whose devices work at the same time."""
        assert candidate.segments is not None
        assert candidate.num_requests is not None
        self._loaded.compile_until_s = self._compile_until_s
        try:
            executor = attempt(
                "compile",
                self._loaded.executor,
                candidate.segments,
                candidate.devices,
                candidate.num_requests,
            )
        except OverError as error:
            raise FailedError(TIME_LIMIT, _NO_TIME) from error
        finally:
            self._loaded.compile_until_s = math.inf
        self._heartbeat.set(index, "infer")
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

    def _thread_share(self, index: int, candidate: Candidate, request: AnyRequest) -> float:
        """Returns how many threads compute at once, at the best of a few tries."""
        asked = [device.num_threads for device in candidate.used()]
        bound: set[str] = set()
        allowed = _THREAD_SLACK * max(asked)
        if isinstance(request, Executor):
            # The thread that waits for the inference computes nothing, but may wait for a core.
            bound = _bound_threads(request) | {str(threading.get_native_id())}
            free = [device.num_threads for device in request.devices if device.core is None]
            allowed = _THREAD_SLACK * (1 + sum(free)) - 1
        shares: list[float] = []
        while len(shares) < _THREAD_TRIES:
            threads.settle(lambda: self._heartbeat.set(index, "infer"))
            found = threads.shares(request, lambda: self._heartbeat.set(index, "infer"))
            shares.append(threads.at_once(s for thread, s in found.items() if thread not in bound))
            if shares[-1] <= allowed:
                return threads.at_once(found.values())
        beside = " beside those of the devices" if bound else ""
        cause = f"computes on {min(shares):.2f} threads at once{beside}, over {allowed:g}"
        raise FailedError("threads", cause)

    def _time(
        self, requests: dict[int, AnyRequest], min_rounds: int, seconds: float
    ) -> dict[int, list[float]]:
        """Seconds of every inference, one a round; a request that fails in between drops out.

        Where a round begins rotates, and its direction alternates, so that none always follows the
        same one. Variables start anew before each: a state that
        grows would make every inference slower than the one before.
        """
        times: dict[int, list[float]] = {index: [] for index in requests}
        gc.collect()
        gc.disable()
        threads.settle(self._heartbeat.alive)
        start, number = time.perf_counter(), -1  # round -1 warms up
        while times and (number < min_rounds or time.perf_counter() - start < seconds):
            order = list(times)
            shift = number % len(order)
            order = order[shift:] + order[:shift]
            for index in order if number % 2 else order[::-1]:
                self._heartbeat.set(index, "infer")
                try:
                    taken_s = self._timed(requests[index])
                except RuntimeError as error:
                    raise_if_exhausted(error)
                    del times[index]
                    self._send(("failure", index, "infer", essence(error)))
                    continue
                if number >= 0:
                    times[index].append(taken_s)
            number += 1
        gc.enable()
        return times

    def _timed(self, request: AnyRequest) -> float:
        """Seconds of an inference; where several are under way at once, what each adds to a stream.

        The inference is the second in a row, as those of a service are: what the other candidates
        leave in the caches slows down the first, by up to a tenth.
        """
        if isinstance(request, Executor | Stream) and request.num_requests > 1:
            return request.stream(_STREAM * request.num_requests)
        taken_s = 0.0
        for _ in range(2):
            self._heartbeat.touch()
            if self._loaded.stateful:
                request.reset_state()
            taken_s = inference.infer_s(request)
        return taken_s


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


def _submodels(compiled: ov.CompiledModel) -> int:
    """1 where it was compiled without HETERO, which alone has the property."""
    if "HETERO_NUMBER_OF_SUBMODELS" not in compiled.get_property("SUPPORTED_PROPERTIES"):
        return 1
    return int(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
