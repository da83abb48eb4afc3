"""Candidates on trial: each is compiled and checked alone, then all are timed in rounds."""

import functools
import gc
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from placement.runtime.devices import register_devices
from placement.runtime.errors import FailedError, raise_if_exhausted, run_stage, summarise_error
from placement.runtime.execution import threads
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.stream import Stream
from placement.runtime.measurement.request import TIME_LIMIT, Candidate, Rounds
from placement.runtime.measurement.worker import inference
from placement.runtime.measurement.worker.channel import Heartbeat
from placement.runtime.measurement.worker.inference import AnyRequest
from placement.runtime.measurement.worker.loaded import CompileDeadlineError, LoadedModel

_THREAD_SLACK = 1.25  # tolerated multiple of the number of threads asked for
_THREAD_TRIES = 3
_STREAM_INFERENCES = 5  # per request of a stream
_NO_TIME = "no time was left to compile its submodels; set a longer time limit"


class _Runner(NamedTuple):
    """A candidate that passed its checks."""

    request: AnyRequest
    facts: dict[str, Any]  # fields of `request.Measurement`


class Trials:
    """Compiles, checks and times candidates; the baseline stays compiled for the next request."""

    def __init__(
        self, loaded: LoadedModel, heartbeat: Heartbeat, send: Callable[[tuple[Any, ...]], None]
    ):
        """`send` receives ('checked', index, facts) or ('failure', index, stage, cause)."""
        self._loaded = loaded
        self._heartbeat = heartbeat
        self._send = send
        self._baseline: tuple[tuple[int, Candidate], _Runner] | None = None

    def run(self, rounds: Rounds) -> dict[int, np.ndarray]:
        """Checks every candidate alone, then times those that pass in rounds.

        Returns:
          For each candidate that ran in all rounds, by index, the seconds of its inferences,
          float64 [rounds].
        """
        runners: dict[int, _Runner] = {}
        baseline_index = next(iter(rounds.candidates))
        compile_deadline_s = time.monotonic() + rounds.compile_s
        for index, candidate in rounds.candidates.items():
            is_baseline = index == baseline_index
            deadline_s = math.inf if is_baseline else compile_deadline_s
            try:
                if time.monotonic() > deadline_s:
                    raise FailedError(TIME_LIMIT, _NO_TIME)
                if self._baseline and self._baseline[0] == (index, candidate):
                    runners[index] = self._baseline[1]
                else:
                    if is_baseline:  # its memory is free before the new one is compiled
                        self._baseline = None
                    runners[index] = self._check(index, candidate, deadline_s)
                    if is_baseline:
                        self._baseline = (index, candidate), runners[index]
            except FailedError as failed:
                self._send(("failure", index, failed.stage, str(failed)))
            else:
                self._send(("checked", index, runners[index].facts))
        requests = {index: runner.request for index, runner in runners.items()}
        return self._time(requests, rounds.min_rounds, rounds.time_limit_s)

    def _check(self, index: int, candidate: Candidate, deadline_s: float) -> _Runner:
        """Compiles a candidate and checks its outputs and threads."""
        start_s = time.perf_counter()
        self._heartbeat.set(index, "compile")
        run_stage("compile", register_devices, self._loaded.core, candidate.devices)
        request: AnyRequest
        if candidate.segments is None:
            request, num_submodels = self._compile_hetero(index, candidate)
        else:
            request = self._compile_concurrent(candidate, deadline_s)
            num_submodels = len(request.split.parts)
        compile_s = time.perf_counter() - start_s
        self._heartbeat.set(index, "infer")
        used_devices = candidate.used_devices()
        try:
            check = run_stage("infer", self._loaded.compare, request, used_devices)
        except FailedError:
            self._loaded.drop_compiled()
            raise
        if not check.is_correct:
            raise FailedError("wrong output", check.describe())
        self._check_threads(index, candidate, request)
        facts = {
            "submodels": num_submodels,
            "output_error": check.error,
            "tolerance": check.tolerance,
            "compile_s": compile_s,
        }
        return _Runner(request, facts)

    def _compile_hetero(self, index: int, candidate: Candidate) -> tuple[AnyRequest, int]:
        """Compiles a candidate for OpenVINO alone; returns also the number of submodels."""
        compiled = run_stage(
            "compile", self._loaded.compiled, candidate.affinity, candidate.devices
        )
        self._heartbeat.set(index, "request")
        # Only HETERO has this property; without HETERO there is one submodel.
        key, num_submodels = "HETERO_NUMBER_OF_SUBMODELS", 1
        if key in compiled.get_property("SUPPORTED_PROPERTIES"):
            num_submodels = int(compiled.get_property(key))
        create = functools.partial(inference.create_request, streams=candidate.num_requests is None)
        return run_stage("request", create, compiled, self._loaded.inputs), num_submodels

    def _compile_concurrent(self, candidate: Candidate, deadline_s: float) -> Executor:
        """Compiles a placement whose devices work at the same time."""
        assert candidate.segments is not None
        assert candidate.num_requests is not None
        compile_executor = functools.partial(
            self._loaded.executor,
            candidate.segments,
            candidate.devices,
            num_requests=candidate.num_requests,
            deadline_s=deadline_s,
        )
        try:
            executor: Executor = run_stage("compile", compile_executor)
        except CompileDeadlineError as error:
            raise FailedError(TIME_LIMIT, _NO_TIME) from error
        return executor

    def _check_threads(self, index: int, candidate: Candidate, request: AnyRequest) -> None:
        """Fails a candidate that computes on too many threads at once.

        OpenVINO may ignore the number of threads that it was given, and report it all the same:
        HETERO does with more than one submodel, unless EXCLUSIVE_ASYNC_REQUESTS is off. Such a
        placement would look up to twice as fast as it is. So the threads themselves are watched.
        """
        # Without segments one device computes at a time, on as many threads as it was given.
        bound_threads: set[str] = set()
        limit = _THREAD_SLACK * max(device.num_threads for device in candidate.used_devices())
        if isinstance(request, Executor):
            bound_threads = self._find_bound_threads(request)
            # Threads that are bound to a core do not count. If all are bound, the limit is 0.25.
            unbound = [device.num_threads for device in request.devices if device.core is None]
            limit = _THREAD_SLACK * (1 + sum(unbound)) - 1
        counts: list[float] = []
        for _ in range(_THREAD_TRIES):
            threads.wait_until_idle(lambda: self._heartbeat.set(index, "infer"))
            shares = threads.measure_busy_shares(
                request, lambda: self._heartbeat.set(index, "infer")
            )
            unbound_shares = (s for thread, s in shares.items() if thread not in bound_threads)
            counts.append(threads.count_active_threads(unbound_shares))
            if counts[-1] <= limit:
                return
        other = "other " if bound_threads else ""
        cause = f"{min(counts):.2f} {other}threads compute at once; the limit is {limit:g}"
        raise FailedError("threads", cause)

    def _find_bound_threads(self, executor: Executor) -> set[str]:
        """Returns the threads of the devices that have a core; each must run on that core alone."""
        # The thread that waits for the inference computes nothing, but may wait for a core.
        bound_threads = {str(threading.get_native_id())}
        for device in executor.devices:
            if device.core is None:
                continue
            thread = executor.workers.thread_ids[device.name]
            cores = os.sched_getaffinity(thread)
            if cores != {device.core}:
                listed = ", ".join(map(str, sorted(cores)))
                cause = (
                    f"the thread of {device.name} may run on cores {listed}, not on its own alone"
                )
                raise FailedError("threads", cause)
            bound_threads.add(str(thread))
        return bound_threads

    def _time(
        self, requests: dict[int, AnyRequest], min_rounds: int, time_limit_s: float
    ) -> dict[int, np.ndarray]:
        """Times all requests in rounds; one that fails drops out.

        The first request of a round rotates and the direction alternates, so that no request always
        follows the same one.
        """
        latencies_s: dict[int, list[float]] = {index: [] for index in requests}
        gc.collect()
        gc.disable()
        threads.wait_until_idle(self._heartbeat.keep_alive)
        start_s, number = time.perf_counter(), -1  # round -1 warms up
        while latencies_s and (number < min_rounds or time.perf_counter() - start_s < time_limit_s):
            order = list(latencies_s)
            shift = number % len(order)
            order = order[shift:] + order[:shift]
            for index in order if number % 2 else order[::-1]:
                self._heartbeat.set(index, "infer")
                try:
                    latency_s = self._measure_latency(requests[index])
                except RuntimeError as error:
                    raise_if_exhausted(error)
                    self._loaded.drop_compiled()
                    self._baseline = None
                    del latencies_s[index]
                    self._send(("failure", index, "infer", summarise_error(error)))
                    continue
                if number >= 0:
                    latencies_s[index].append(latency_s)
            number += 1
        gc.enable()
        return {index: np.array(samples_s) for index, samples_s in latencies_s.items()}

    def _measure_latency(self, request: AnyRequest) -> float:
        """Returns the seconds of an inference, or for a stream those that each request adds.

        The second of two inferences is timed, as in a service that repeats one model. The first
        finds the caches as the other candidates left them, which slows it down by up to a tenth.
        """
        if isinstance(request, Executor | Stream) and request.num_requests > 1:
            return request.stream(_STREAM_INFERENCES * request.num_requests)
        latency_s = 0.0
        for _ in range(2):
            self._heartbeat.touch()
            if self._loaded.stateful:  # a growing state would make every inference slower
                request.reset_state()
            latency_s = inference.infer_s(request)
        return latency_s
