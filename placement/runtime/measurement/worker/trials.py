"""Candidates on trial: each is compiled and checked alone, then all are timed in rounds."""

import contextlib
import gc
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil

from placement.errors import UserError
from placement.runtime import processors
from placement.runtime.devices import register_devices
from placement.runtime.errors import FailedError, raise_if_exhausted, summarise_error
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.stream import Stream
from placement.runtime.measurement.request import (
    MIN_SAMPLES,
    Candidate,
    Measure,
    is_decided,
    median_interval,
)
from placement.runtime.measurement.worker import inference
from placement.runtime.measurement.worker.inference import AnyRequest
from placement.runtime.measurement.worker.loaded import LoadedModel

_TASKS = "/proc/self/task"  # a folder for each thread, on Linux
_HAS_SCHEDULER_STATISTICS = os.path.isdir(_TASKS)
# Other systems count in steps of up to 16 ms, and do not count the waiting.
_MEASURING_S = 0.06 if _HAS_SCHEDULER_STATISTICS else 0.5
_PAUSE_S = 0.01 if _HAS_SCHEDULER_STATISTICS else 0.1


class ThreadTime(NamedTuple):
    """A reading of how long a thread had run or waited for a core."""

    busy_ns: int
    read_ns: int  # when this was read


def measure_busy_shares(request: Any, alive: Callable[[], None]) -> dict[str, float]:
    """Returns for each thread the share of time, at most 1, in which it runs or waits for a core.

    Waiting counts, because on a busy machine two threads that share a core would otherwise look
    like one. The request runs for at least `_MEASURING_S`, each time after a call of `alive`.
    """
    first, begin_s = _read_thread_times(), time.perf_counter()
    while time.perf_counter() - begin_s < _MEASURING_S:
        alive()
        request.infer()
    return busy_shares(first, _read_thread_times())


def busy_shares(first: dict[str, ThreadTime], last: dict[str, ThreadTime]) -> dict[str, float]:
    """Returns the share of the time between two readings in which each thread ran or waited.

    A new thread counts from the first reading of all. Each reading has its own time stamp, because
    reading many threads takes long and they run meanwhile.
    """
    begin = ThreadTime(0, min(reading.read_ns for reading in first.values()))
    shares = {}
    for thread, reading in last.items():
        before = first.get(thread, begin)
        share = (reading.busy_ns - before.busy_ns) / max(1, reading.read_ns - before.read_ns)
        # The system books a wait when it ends, although it may have begun before the first reading,
        # and gives the number of a thread that has ended to another one.
        shares[thread] = min(1.0, max(0.0, share))
    return shares


def count_active_threads(shares: Iterable[float]) -> float:
    """Returns how many threads with these busy shares compute at once, at most one per core.

    More threads than cores can only wait for one another.
    """
    return min(sum(shares), float(len(processors.list_allowed_cores())))


def wait_until_idle(alive: Callable[[], None]) -> None:
    """Waits, at most 2 s, until the threads of a compilation or another model stop spinning.

    They yield while they spin, so that on a busy machine this takes them long.
    """
    begin_s, is_busy = time.perf_counter(), True
    while is_busy and time.perf_counter() - begin_s < 2.0:
        alive()
        first = _read_thread_times()
        time.sleep(_PAUSE_S)
        shares = busy_shares(first, _read_thread_times())
        # This thread itself is busy reading if there are many threads.
        shares.pop(str(threading.get_native_id()), None)
        is_busy = sum(shares.values()) > 0.2


def _read_thread_times() -> dict[str, ThreadTime]:
    """Reads how long each thread of this process has run or waited for a core, by thread id."""
    times = {}
    if not _HAS_SCHEDULER_STATISTICS:
        for reading in psutil.Process().threads():
            busy_ns = int((reading.user_time + reading.system_time) * 1e9)
            times[str(reading.id)] = ThreadTime(busy_ns, time.perf_counter_ns())
        return times
    for thread in os.listdir(_TASKS):
        try:
            with open(f"{_TASKS}/{thread}/schedstat") as file:
                running_ns, waiting_ns, _ = map(int, file.read().split())
        except OSError:  # the thread has ended
            continue
        times[thread] = ThreadTime(running_ns + waiting_ns, time.perf_counter_ns())
    return times


_THREAD_SLACK = 1.25  # tolerated multiple of the number of threads asked for
_THREAD_TRIES = 3
_STREAM_INFERENCES = 5  # per request of a stream
_CLEARLY_SLOWER = 1.1  # ratio to the baseline with which a candidate leaves a race


class _Runner(NamedTuple):
    """A candidate that passed its checks."""

    request: AnyRequest
    facts: dict[str, Any]  # fields of `request.Measurement`


class Trials:
    """Compiles, checks and times candidates; the baseline stays compiled for the next request."""

    def __init__(self, loaded: LoadedModel, send: Callable[[tuple[Any, ...]], None]):
        """`send` receives ('checked', index, facts) or ('failure', index, stage, cause)."""
        self._loaded = loaded
        self._heartbeat = loaded.heartbeat
        self._send = send
        self._baseline: tuple[Candidate, _Runner] | None = None
        # Facts of candidates that passed all checks: a run times some of them several times.
        self._passed: list[tuple[Candidate, dict[str, Any]]] = []
        # The devices, and how they run, whose threads were watched.
        self._watched: set[tuple[object, ...]] = set()

    def run(self, measure: Measure) -> dict[int, np.ndarray]:
        """Checks every candidate alone, then times those that pass in rounds.

        The first candidate is the baseline.

        Returns:
          For each candidate whose inferences all ran, by index, their seconds, or for a stream
          those that each request adds, float64 [rounds]. In a race these are the first rounds.
        """
        runners: dict[int, _Runner] = {}
        compile_deadline_s = time.monotonic() + measure.compile_s
        for index, candidate in enumerate(measure.candidates):
            is_baseline = index == 0
            self._loaded.compile_deadline_s = math.inf if is_baseline else compile_deadline_s
            try:
                self._loaded.check_compile_time(0.0)
                if self._baseline and is_baseline and self._baseline[0] == candidate:
                    runners[index] = self._baseline[1]
                else:
                    if is_baseline:  # its memory is free before the new one is compiled
                        self._baseline = None
                    runners[index] = self._check(index, candidate, measure.race)
                    if is_baseline:
                        self._baseline = candidate, runners[index]
            except FailedError as failed:
                self._send(("failure", index, failed.stage, str(failed)))
            else:
                self._send(("checked", index, runners[index].facts))

        self._loaded.compile_deadline_s = math.inf
        latencies_s: dict[int, list[float]] = {index: [] for index in runners}
        gc.collect()
        gc.disable()
        self._heartbeat.set(-1, "infer")
        wait_until_idle(self._heartbeat.touch)
        # Round -1 warms up; in a race the check has done that.
        number, stage, start_s = (0 if measure.race else -1), 1, time.perf_counter()
        running, next_look = list(latencies_s), measure.min_rounds
        while running:
            # The first candidate of a round rotates and the direction alternates, so that none
            # always follows the same one.
            shift = number % len(running)
            order = running[shift:] + running[:shift]
            for index in order if number % 2 else order[::-1]:
                request = runners[index].request
                self._heartbeat.set(index, "infer")
                try:
                    if (
                        isinstance(request, Executor | Stream)
                        and request.num_requests > 1
                        and number >= 0
                    ):
                        latency_s = request.stream(_STREAM_INFERENCES * request.num_requests)
                    else:
                        latency_s = self._loaded.warm_s(request)
                except RuntimeError as error:
                    raise_if_exhausted(error)
                    self._loaded.drop_compiled()
                    self._baseline = None
                    del latencies_s[index]
                    running.remove(index)
                    self._send(("failure", index, "infer", summarise_error(error)))
                    continue
                if number >= 0:
                    latencies_s[index].append(latency_s)
            number += 1
            is_time_over = time.perf_counter() - start_s >= stage * measure.time_limit_s
            if running and number == next_look and not (measure.race or is_time_over):
                next_look *= 2  # few looks, since each may find a difference by chance
                reference_s = latencies_s.get(0, [1.0] * number)
                is_time_over = is_decided(
                    [median_interval(np.divide(latencies_s[i], reference_s)) for i in running]
                )
            if number < stage * measure.min_rounds or not is_time_over:
                continue
            if not measure.race or 0 not in running:
                break
            # Successive halving. One candidate alone stays until its median has an interval.
            stage += 1
            ratios = {
                index: float(np.median(np.divide(latencies_s[index], latencies_s[0])))
                for index in running
                if index != 0
            }
            num_kept = len(ratios) // 2 or int(number < MIN_SAMPLES)
            ranked = sorted(ratios, key=ratios.__getitem__)[:num_kept]
            running = [index for index in ranked if ratios[index] < _CLEARLY_SLOWER]
            if running:
                running = [0, *running]
        gc.enable()
        return {index: np.array(samples_s) for index, samples_s in latencies_s.items()}

    @contextlib.contextmanager
    def _stage(self, index: int, stage: str) -> Iterator[None]:
        """Announces a stage of measuring a candidate, which fails if the block does.

        A RuntimeError of OpenVINO or a UserError (the candidate is invalid) becomes a FailedError,
        but a lack of memory a MemoryError.
        """
        self._heartbeat.set(index, stage)
        try:
            yield
        except (RuntimeError, UserError) as error:
            raise_if_exhausted(error)
            raise FailedError(stage, summarise_error(error)) from error

    def _check(self, index: int, candidate: Candidate, is_race: bool) -> _Runner:
        """Compiles a candidate and checks its outputs and threads.

        In a race, outputs are checked on one sample, and threads once for each set of devices.
        """
        loaded, devices = self._loaded, candidate.devices
        start_s = time.perf_counter()
        request: AnyRequest
        with self._stage(index, "compile"):
            register_devices(loaded.core, devices)
            if candidate.segments is None:
                compiled = loaded.compiled(candidate.affinity, devices)
            else:
                count = candidate.num_requests
                assert count is not None
                request = loaded.executor(candidate.segments, devices, num_requests=count)
                num_submodels = len(request.split.parts)
        if candidate.segments is None:
            # Only HETERO has this property; without HETERO there is one submodel.
            key, num_submodels = "HETERO_NUMBER_OF_SUBMODELS", 1
            if key in compiled.get_property("SUPPORTED_PROPERTIES"):
                num_submodels = int(compiled.get_property(key))
            with self._stage(index, "request"):
                is_stream = candidate.num_requests is None
                request = inference.create_request(compiled, loaded.inputs, streams=is_stream)
        compile_s = time.perf_counter() - start_s
        for passed, passed_facts in self._passed:
            if passed == candidate:
                return _Runner(request, passed_facts)
        with self._stage(index, "infer"):
            try:
                check = loaded.compare(request, candidate.used_devices(), 1 if is_race else None)
            except RuntimeError:
                loaded.drop_compiled()
                raise
        if not check.is_correct:
            raise FailedError("wrong output", check.describe())
        facts = {
            "submodels": num_submodels,
            "output_error": check.error,
            "tolerance": check.tolerance,
            "compile_s": compile_s,
        }
        runner = _Runner(request, facts)
        way_to_run = type(request), candidate.used_devices(), num_submodels > 1
        if is_race and way_to_run in self._watched:
            return runner

        # OpenVINO may ignore the number of threads that it was given, and report it all the same:
        # HETERO does with more than one submodel, unless EXCLUSIVE_ASYNC_REQUESTS is off. Such a
        # placement would look up to twice as fast as it is. So the threads themselves are watched.
        bound_threads: set[str] = set()
        # Without segments one device computes at a time, on as many threads as it was given.
        limit = _THREAD_SLACK * max(device.num_threads for device in candidate.used_devices())
        if isinstance(request, Executor):
            # The thread that waits for the inference computes nothing, but may wait for a core.
            bound_threads.add(str(threading.get_native_id()))
            for device in request.devices:
                if device.core is None:
                    continue
                thread = request.workers.thread_ids[device.name]
                cores = os.sched_getaffinity(thread)
                if cores != {device.core}:
                    listed = ", ".join(map(str, sorted(cores)))
                    cause = f"the thread of {device.name} may run on cores {listed}"
                    raise FailedError("threads", f"{cause}, not on its own alone")
                bound_threads.add(str(thread))
            # Threads that are bound to a core do not count. If all are bound, the limit is 0.25.
            unbound = [device.num_threads for device in request.devices if device.core is None]
            limit = _THREAD_SLACK * (1 + sum(unbound)) - 1
        counts: list[float] = []
        for _ in range(_THREAD_TRIES):
            wait_until_idle(self._heartbeat.touch)
            shares = measure_busy_shares(request, self._heartbeat.touch)
            unbound_shares = (s for thread, s in shares.items() if thread not in bound_threads)
            counts.append(count_active_threads(unbound_shares))
            if counts[-1] <= limit:
                break
        else:
            other = "other " if bound_threads else ""
            cause = f"{min(counts):.2f} {other}threads compute at once; the limit is {limit:g}"
            raise FailedError("threads", cause)
        self._watched.add(way_to_run)
        if not is_race:
            self._passed.append((candidate, facts))
        return runner
